import { trustedUid, type Uid } from '../../../src/base/uid.ts'
import { Collector, type CollectOptions, type Collected } from '../../../src/registry/gc/collector.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'
import { historyPrefix } from '../../../src/registry/history/tag-history.ts'
import type { Services } from '../../../src/engine/services.ts'
import { ok } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { startTestHost, type TestHost, type TestUpstream } from '../oci/test-host.ts'

/** How long unneeded blobs and manifests stay, in milliseconds. */
export const graceMs = 24 * 3_600_000

/** A deadline of a test. */
export const soon = (): AbortSignal => AbortSignal.timeout(20_000)

/** Called around a method of the upstream, with what it is given; `work` does it. */
export type Intercept = (given: readonly unknown[], work: () => Promise<unknown>) => Promise<unknown>

/** A host, its clock, and collections of what it holds. */
export interface CollectingHost extends TestHost {
  readonly clock: TestClock
  /** Where an embedded upstream has its files. */
  readonly directory: string | undefined
  /** What comes in between, by the method of the upstream. */
  readonly intercepts: Map<keyof Upstream, Intercept>
  /** Collects, as `services` have it. */
  collect(options?: Partial<CollectOptions>, services?: Services): Promise<Collected>
  /** Collects what has been unneeded for the grace period from now on. */
  collectAfterGrace(): Promise<Collected>
  repoOf(repository: string): Uid
  /** The keys of a repo below a prefix. */
  keysBelow(prefix: string, repo: Uid): Promise<string[]>
  /** CreateTag. */
  tag(repo: Uid, name: string, digest: string): Promise<void>
  /** As if all moves of the repo's tags were too old to keep. */
  forgetHistory(repo: Uid): Promise<void>
}

/** Starts one over an upstream. */
export async function startCollectingHost(upstream: (clock: TestClock) => Promise<TestUpstream>, kind: 'sqlite' | 'etcd' = 'sqlite'): Promise<CollectingHost> {
  const clock = new TestClock()
  const intercepts = new Map<keyof Upstream, Intercept>()
  const wrap = (real: Upstream): Upstream =>
    new Proxy(real, {
      get(target, property) {
        // Casts: whatever the port has, by its name; its methods return promises.
        const name = property as keyof Upstream
        const value = target[name] as unknown
        if (typeof value !== 'function') return value
        const work = (value as (...given: unknown[]) => Promise<unknown>).bind(target)
        return (...given: unknown[]) => intercepts.get(name)?.(given, () => work(...given)) ?? work(...given)
      },
    })
  let directory: string | undefined
  const start = async (): Promise<TestUpstream> => {
    const started = await upstream(clock)
    directory = started.directory
    return started
  }
  const host = await startTestHost({ upstream: start, clock, wrap, store: kind })
  const { store } = host.services
  const collect: CollectingHost['collect'] = (options = {}, services = host.services) =>
    new Collector(services, host.upstream, { graceMs, ...options }).collect(soon())
  return {
    ...host,
    directory,
    clock,
    intercepts,
    collect,
    async collectAfterGrace() {
      await collect()
      clock.advance(2 * graceMs)
      return collect()
    },
    repoOf(repository) {
      const target = findRepository(host.services.cache.tables, repository)
      if (target?.kind !== 'repo') throw new Error(`no repo ${repository}`)
      return trustedUid(target.uid)
    },
    async keysBelow(prefix, repo) {
      return (await store.range({ prefix: `${prefix}${repo}`, limit: 10_000 }, soon())).entries.map(({ key }) => key)
    },
    async tag(parent, name, digest) {
      ok(await host.server.rest.call('CreateTag', { parent, tag: { name, digest } }, { token: await host.server.tokenFor(host.owner) }))
    },
    async forgetHistory(repo) {
      const { entries } = await store.range({ prefix: `${historyPrefix}${repo}:`, limit: 1000 }, soon())
      await store.transact({ guards: [], writes: entries.map(({ key }) => ({ kind: 'delete', key })) }, soon())
    },
  }
}
