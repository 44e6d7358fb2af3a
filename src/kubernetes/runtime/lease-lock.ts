import type { Clock } from '../../base/runtime.ts'
import { KubeError, type KubeApi, type KubeObject, type ObjectDraft } from '../kube-api.ts'
import { objectTypes } from '../object-types.ts'
import type { Timers } from '../../base/timing.ts'
import { microTimeOf } from './micro-time.ts'

const leaseType = objectTypes.lease
/** How long other processes wait before they take over an expired Lease, in seconds. */
const durationSeconds = 12

/** Options of a lock. */
export interface LeaseLockOptions {
  readonly api: Pick<KubeApi, 'get' | 'create' | 'replace'>
  readonly lease: { readonly namespace: string; readonly name: string }
  readonly identity: string
  readonly clock: Clock
  readonly timers: Timers
}

/** The used fields of a Lease's spec. */
interface LeaseSpec {
  readonly holderIdentity?: string
  readonly leaseDurationSeconds?: number
  readonly acquireTime?: string
  readonly renewTime?: string
  readonly leaseTransitions?: number
}

/** The Lease as last read, and the time of its last change on this process's clock. The holder's clock is never used. */
interface SeenLease {
  readonly lease: KubeObject
  readonly spec: LeaseSpec
  readonly since: number
}

/** A Lease with at most one holder. Every write names the version that it is based on, so of two concurrent writes only one succeeds. */
export class LeaseLock {
  readonly #options: LeaseLockOptions
  #seen: SeenLease | undefined

  constructor(options: LeaseLockOptions) {
    this.#options = options
  }

  /** Reads the Lease. Returns the milliseconds until this process may take it, if it is not renewed. Rejects with KubeError. */
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

  /**
   * Takes the Lease as last read. Returns false if another process was first. Rejects with KubeError; even then, the write may have
   * succeeded.
   */
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

  /** Renews the Lease. Returns false if another process holds it. Rejects with KubeError; even then, the write may have succeeded. */
  async renew(signal: AbortSignal): Promise<boolean> {
    const { identity, clock } = this.#options
    for (;;) {
      const spec = this.#seen?.spec
      if (spec === undefined || spec.holderIdentity !== identity) return false
      if (await this.#write({ ...spec, renewTime: microTimeOf(clock.now()) }, signal)) return true
      // A response was lost, or a user edited the Lease. If the Lease still names this process, this process holds it.
      await this.look(signal)
    }
  }

  /** Releases the Lease. Does nothing if another process holds it. Rejects with KubeError. */
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

  /** Writes the spec on top of the last read version. Returns false if there is a newer one. */
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
      // A deleted Lease counts as another version. The next read finds that it is missing.
      if (error instanceof KubeError && ['conflict', 'already_exists', 'not_found'].includes(error.reason)) return false
      throw error
    }
  }

  #note(lease: KubeObject): void {
    this.#seen = { lease, spec: lease.spec ?? {}, since: this.#options.timers.now() }
  }
}
