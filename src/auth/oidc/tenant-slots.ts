/** How many slots there are. */
export interface SlotLimits {
  /** For one tenant at once. */
  readonly each: number
  /** For all tenants at once; beyond it a tenant gets one slot where it holds none, up to ten times as many in all. */
  readonly all: number
}

/** Slots for work that waits for hosts which tenants name. One tenant's slow hosts leave room for every other tenant. */
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

  /** Takes a slot of the first of `tenants` that has one left. Returns what gives it back, to be called once; undefined where none has. */
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
