/** The number of slots for concurrent work. */
export interface SlotLimits {
  /** Maximum number of slots that one tenant can hold at the same time. */
  readonly each: number
  /** Number of slots of all tenants. When they are used up, a tenant without a slot still gets one, until ten times as many are taken. */
  readonly all: number
}

/** Limits concurrent work that waits for hosts which tenants name. The slow hosts of one tenant leave slots for every other tenant. */
export class TenantSlots {
  readonly #limits: SlotLimits
  readonly #taken = new Map<string, number>()
  #all = 0

  constructor(limits: SlotLimits) {
    this.#limits = limits
  }

  /** The number of slots in use. */
  get taken(): number {
    return this.#all
  }

  /**
   * Takes a slot for the first of `tenants` that has one left. Returns a function that releases the slot, to be called once. Undefined if none has a slot
   * left.
   */
  take(tenants: readonly string[]): (() => void) | undefined {
    const tenant = tenants.find((candidate) => this.#hasLeft(candidate))
    if (tenant === undefined) return undefined
    this.#all += 1
    this.#taken.set(tenant, (this.#taken.get(tenant) ?? 0) + 1)
    return () => {
      this.#all -= 1
      const left = (this.#taken.get(tenant) ?? 0) - 1
      if (left > 0) this.#taken.set(tenant, left)
      else this.#taken.delete(tenant)
    }
  }

  #hasLeft(tenant: string): boolean {
    const taken = this.#taken.get(tenant) ?? 0
    return taken === 0 ? this.#all < 10 * this.#limits.all : taken < this.#limits.each && this.#all < this.#limits.all
  }
}
