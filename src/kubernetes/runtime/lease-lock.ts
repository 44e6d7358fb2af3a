import type { Clock } from '../../base/runtime.ts'
import { KubeError, type KubeApi, type KubeObject, type ObjectDraft } from '../kube-api.ts'
import { objectTypes } from '../object-types.ts'
import type { Timers } from '../../base/timing.ts'
import { microTimeOf } from './micro-time.ts'

const leaseType = objectTypes.lease
/** How long a leader that vanished keeps the others waiting. */
const durationSeconds = 12

/** What a lock needs. */
export interface LeaseLockOptions {
  readonly api: Pick<KubeApi, 'get' | 'create' | 'replace'>
  readonly lease: { readonly namespace: string; readonly name: string }
  readonly identity: string
  readonly clock: Clock
  readonly timers: Timers
}

/** What is used of a Lease's spec. */
interface LeaseSpec {
  readonly holderIdentity?: string
  readonly leaseDurationSeconds?: number
  readonly acquireTime?: string
  readonly renewTime?: string
  readonly leaseTransitions?: number
}

/** The Lease as it was last seen, and since when it has been so by this process's own time: what the holder's clock says decides nothing. */
interface SeenLease {
  readonly lease: KubeObject
  readonly spec: LeaseSpec
  readonly since: number
}

/** A Lease that one process at most holds. Every write says on which version it builds: of two that write on the same one wins. */
export class LeaseLock {
  readonly #options: LeaseLockOptions
  #seen: SeenLease | undefined

  constructor(options: LeaseLockOptions) {
    this.#options = options
  }

  /** Reads the Lease; in how many milliseconds it may be taken, unless it is renewed. Rejects with KubeError. */
  async look(signal: AbortSignal): Promise<number> {
    const { api, lease, identity, timers } = this.#options
    const found = await api.get(leaseType, lease, signal)
    if (found === undefined) this.#seen = undefined
    else if (found.metadata.uid !== this.#seen?.lease.metadata.uid || found.metadata.resourceVersion !== this.#seen.lease.metadata.resourceVersion)
      this.#note(found)
    if (this.#seen === undefined) return 0
    const { spec, since } = this.#seen
    if ((spec.holderIdentity ?? '') === '' || spec.holderIdentity === identity) return 0
    return since + (spec.leaseDurationSeconds ?? durationSeconds) * 1000 - timers.now()
  }

  /** Takes the Lease as `look` saw it; false where another was first. Rejects with KubeError; then it may be ours all the same. */
  async take(signal: AbortSignal): Promise<boolean> {
    const { identity, clock } = this.#options
    const now = microTimeOf(clock.now())
    const before = this.#seen?.spec
    const transitions = (before?.leaseTransitions ?? 0) + (before === undefined || before.holderIdentity === identity ? 0 : 1)
    return this.#write(
      { holderIdentity: identity, leaseDurationSeconds: durationSeconds, acquireTime: now, renewTime: now, leaseTransitions: transitions },
      signal,
    )
  }

  /** False where another holds it. Rejects with KubeError; then it may be renewed all the same. */
  async renew(signal: AbortSignal): Promise<boolean> {
    const { identity, clock } = this.#options
    for (;;) {
      const spec = this.#seen?.spec
      if (spec === undefined || spec.holderIdentity !== identity) return false
      if (await this.#write({ ...spec, renewTime: microTimeOf(clock.now()) }, signal)) return true
      // An answer that got lost, or somebody who edited it: still ours where it says so.
      await this.look(signal)
    }
  }

  /** Lets go of it; of no effect where another holds it. Rejects with KubeError. */
  async release(signal: AbortSignal): Promise<void> {
    const { identity, clock } = this.#options
    for (;;) {
      const spec = this.#seen?.spec
      if (spec === undefined || spec.holderIdentity !== identity) return
      const { holderIdentity: _, ...rest } = spec
      if (await this.#write({ ...rest, renewTime: microTimeOf(clock.now()) }, signal)) return
      await this.look(signal)
    }
  }

  /** Writes on the version that was seen last; false where there is another one. */
  async #write(spec: LeaseSpec, signal: AbortSignal): Promise<boolean> {
    const { api, lease } = this.#options
    const seen = this.#seen?.lease
    try {
      if (seen === undefined) this.#note(await api.create(leaseType, { metadata: lease, spec }, signal))
      else {
        const { uid, resourceVersion } = seen.metadata
        const draft: ObjectDraft = { ...seen, metadata: { ...seen.metadata, ...lease, uid, resourceVersion }, spec }
        this.#note(await api.replace(leaseType, draft, signal))
      }
      return true
    } catch (error) {
      // Gone counts as another version: the next look sees nothing.
      if (error instanceof KubeError && ['conflict', 'already_exists', 'not_found'].includes(error.fault)) return false
      throw error
    }
  }

  #note(lease: KubeObject): void {
    // A cast: the API server checks what Leases hold.
    this.#seen = { lease, spec: lease.spec ?? {}, since: this.#options.timers.now() }
  }
}
