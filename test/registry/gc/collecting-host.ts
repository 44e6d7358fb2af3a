import { trustedUid, type Uid } from '../../../src/base/uid.ts'
import { Collector, type CollectOptions, type Collected } from '../../../src/registry/gc/collector.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'
import { historyPrefix } from '../../../src/registry/tags/tag-history.ts'
import type { Services } from '../../../src/engine/services.ts'
import { ok } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { startTestHost, type TestHost, type TestUpstream } from '../oci/test-host.ts'

/** Milliseconds for which unneeded blobs and manifests are kept. */
export const graceMs = 24 * 3_600_000

/** A deadline of a test. */
export const soon = (): AbortSignal => AbortSignal.timeout(20_000)

/** Wraps a method of the upstream; gets its arguments, and `work` calls the method. */
export type Intercept = (given: readonly unknown[], work: () => Promise<unknown>) => Promise<unknown>

/** A host with its clock and garbage collections. */
export interface CollectingHost extends TestHost {
  readonly clock: TestClock
  /** The folder of an embedded upstream. */
  readonly directory: string | undefined
  /** Interceptors, by method of the upstream. */
  readonly intercepts: Map<keyof Upstream, Intercept>
  /** Runs a collection, optionally with other services. */
  collect(options?: Partial<CollectOptions>, services?: Services): Promise<Collected>
  /** Runs a collection after the grace period has passed. */
  collectAfterGrace(): Promise<Collected>
  repoOf(repository: string): Uid
  /** The keys of a repo below a prefix. */
  keysBelow(prefix: string, repo: Uid): Promise<string[]>
  /** Calls CreateTag. */
  tag(repo: Uid, name: string, digest: string): Promise<void>
  /** Deletes the history of the repo's tags, like its expiry. */
  forgetHistory(repo: Uid): Promise<void>
}

/** Starts one over an upstream. */
export async function startCollectingHost(upstream: (clock: TestClock) => Promise<TestUpstream>, kind: 'sqlite' | 'etcd' = 'sqlite'): Promise<CollectingHost> {
  const clock = new TestClock()
  const intercepts = new Map<keyof Upstream, Intercept>()
  const wrap = (real: Upstream): Upstream =>
    new Proxy(real, {
      get(target, property) {
        // Casts: any method of the port by its name; the methods return promises.
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
