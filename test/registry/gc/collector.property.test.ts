import { fromBinary } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { readdir, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../src/base/digest.ts'
import type { Uid } from '../../../src/base/uid.ts'
import { HistoryRecordSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { Collector, isEmbedded } from '../../../src/registry/gc/collector.ts'
import { heldBlob } from '../../../src/registry/records/blobs.ts'
import { heldManifest } from '../../../src/registry/records/manifests.ts'
import { historyPrefix } from '../../../src/registry/tags/tag-history.ts'
import { tagNamed, tagOf } from '../../../src/registry/records/tags.ts'
import { expireTagHistory } from '../../../src/registry/tags/expire-history.ts'
import type { Services } from '../../../src/engine/services.ts'
import type { JsonObject } from '@bufbuild/protobuf'
import type { Reply } from '../../support/api-clients.ts'
import { locationOf, withQuery, type Answer } from '../oci/oci-client.ts'
import { startHttpUpstream } from '../oci/oci-upstreams.ts'
import { startDiskUpstreamAt } from '../oci/test-host.ts'
import { graceMs, soon, startCollectingHost, type CollectingHost } from './collecting-host.ts'
import { poolFor, step, tags, type Action, type Item, type Step, type TagText } from './random-steps.ts'
import { campaignLength } from '../../soak/factor.ts'

const hourMs = 3_600_000
/** A touch may be written up to one hour late. */
const certainlyYoungMs = graceMs - 2 * hourMs
/** Marks of other processes count as left behind after a minute. */
const markForgottenMs = 2 * 60_000
/** The maximum lead of an action over the collection that it runs in. */
const headStartMs = 10

/** The end of a killed collection. */
class Killed extends Error {}

/** The services, with a callback before the numbered call of the store. */
function beforeCall(services: Services, at: number, happen: () => Promise<unknown>): Services {
  let calls = 0
  const counted = ['get', 'range', 'transact']
  const store = new Proxy(services.store, {
    get(target, property) {
      // Casts: any method of the store by its name; counted methods return promises.
      const value = target[property as keyof typeof target] as unknown
      if (typeof value !== 'function') return value
      const work = (value as (...given: unknown[]) => Promise<unknown>).bind(target)
      if (!counted.includes(String(property))) return work
      return async (...given: unknown[]) => {
        if (calls++ === at) await happen()
        return work(...given)
      }
    },
  })
  return { ...services, store }
}

/** Digests of manifests and blobs. */
interface Digests {
  readonly manifests: Set<Digest>
  readonly blobs: Set<Digest>
}

/** A repo under collection, and the content that certainly counts as used. */
class Repo {
  readonly #host: CollectingHost
  readonly #repository: string
  readonly #repo: Uid
  readonly #pool: readonly Item[]
  /** When a manifest or blob was put, or a pusher learned that it exists; removed at its deletion. */
  readonly #counted = new Map<Digest, number>()
  /** Manifests that were deleted, and not put again. */
  readonly #removed = new Set<string>()
  /** Blobs that were uploaded in chunks and are unreferenced. */
  readonly #uploaded = new Set<Digest>()
  #upload: { location: string; sent: string; atMs: number } | undefined

  constructor(host: CollectingHost, repository: string) {
    this.#host = host
    this.#repository = repository
    this.#repo = host.repoOf(repository)
    this.#pool = poolFor(repository)
  }

  async take(next: Step): Promise<void> {
    if (next.kind === 'wait') this.#host.clock.advance(next.hours * hourMs)
    else if (next.kind === 'collect') await this.#collect(next)
    else await this.#act(next)
  }

  /** Asserts that all needed content exists. Targets of references count only if they existed and were needed before. */
  async assertWhole(before: ReadonlySet<string>): Promise<void> {
    const isYoung = (digest: Digest): boolean => this.#isYoung(digest)
    const needed = this.#closure(isYoung, { named: await this.#named(), referring: before })
    for (const digest of this.#blobs()) if (isYoung(digest)) needed.blobs.add(digest)
    const has = await this.#holds()
    expect([...needed.manifests].filter((digest) => !has.manifests.has(digest))).toEqual([])
    expect([...needed.blobs].filter((digest) => !has.blobs.has(digest))).toEqual([])
    for (const tag of tags) {
      const digest = this.#tagged(tag)
      const { status, headers } = await this.#send('GET', `manifests/${tag}`)
      expect([tag, status, headers['docker-content-digest']]).toEqual([tag, digest === undefined ? 404 : 200, digest])
    }
  }

  /** Asserts that after the grace period only content that tags and history need remains. */
  async assertClean(): Promise<void> {
    const needed = await this.#needed(() => false)
    for (let round = 0; round < 2; round++) {
      this.#host.clock.advance(2 * graceMs)
      await this.#host.collect()
    }
    const { upstream, services } = this.#host
    if (isEmbedded(upstream)) await new Collector(services, upstream, { graceMs: -hourMs }).collectOrphans(upstream, soon())
    expect(await this.#holds()).toEqual(needed)
    expect(await this.#upstreamHas()).toEqual(needed)
  }

  async #collect({ at, within, killed = false }: Step & { kind: 'collect' }): Promise<void> {
    const { services, upstream } = this.#host
    const { manifests } = await this.#needed((digest) => this.#isYoung(digest))
    let running: Promise<unknown> = Promise.resolve()
    const happen = async (): Promise<void> => {
      if (killed) throw new Killed()
      if (within === undefined) return
      running = this.#act(within)
      // Uploads may have to wait for the collection.
      await Promise.race([running, delay(headStartMs)])
    }
    try {
      // Collects only this repo: otherwise most calls would concern other repos.
      await new Collector(beforeCall(services, at, happen), upstream, { graceMs }).collectRepo(this.#repo, soon())
    } catch (error) {
      if (!(error instanceof Killed)) throw error
      this.#host.clock.advance(markForgottenMs)
    }
    await running
    // Not concurrent with pushes, whose writes look old to this advanced clock.
    if (this.#upload !== undefined) await this.#host.collect()
    await this.assertWhole(manifests)
  }

  async #act(next: Action): Promise<void> {
    const item = 'item' in next ? this.#item(next.item) : undefined
    if (next.kind === 'push' && item !== undefined) await this.#push(item, next)
    else if (next.kind === 'move' && item !== undefined)
      this.#tookBack(item, await this.#call('CreateTag', { parent: this.#repo, tag: { name: next.tag, digest: item.manifest.digest } }))
    else if (next.kind === 'restore' && item !== undefined)
      this.#tookBack(item, await this.#call('RestoreTag', { repoUid: this.#repo, tag: next.tag, digest: item.manifest.digest }))
    else if (next.kind === 'untag') await this.#untag(next.tag)
    else if (next.kind === 'remove' && item !== undefined) await this.#remove(item.manifest.digest)
    else if (next.kind === 'upload') await this.#goOn(next.step)
    else await expireTagHistory(this.#host.services.store, { maxAgeMs: graceMs, nowMs: this.#host.clock.now() }, soon())
  }

  #item(at: number): Item {
    const item = this.#pool[at]
    if (item === undefined) throw new RangeError('the pool is smaller')
    return item
  }

  /** Pushes like a client: blobs and children first, skipping those that exist. */
  async #push(item: Item, { tag, looksFirst }: { tag: TagText | undefined; looksFirst: boolean }): Promise<void> {
    for (const child of item.children) await this.#push(child, { tag: undefined, looksFirst })
    for (const blob of item.blobs) {
      const digest = digestOf(blob)
      if (!looksFirst || (await this.#send('HEAD', `blobs/${digest}`)).status !== 200) await this.#putBlob(blob)
      this.#counted.set(digest, this.#host.clock.now())
    }
    const { digest } = item.manifest
    if (tag === undefined && looksFirst && (await this.#send('HEAD', `manifests/${digest}`)).status === 200) {
      this.#counted.set(digest, this.#host.clock.now())
      return
    }
    const answer = await this.#host.client.putManifest(this.#repository, tag ?? digest, item.manifest)
    expect([answer.status, answer.body.toString()]).toEqual([201, ''])
    this.#counted.set(digest, this.#host.clock.now())
    this.#removed.delete(digest)
  }

  /** Puts a blob like a client, with a second attempt if the blob was collected meanwhile. */
  async #putBlob(bytes: Buffer): Promise<void> {
    const { client } = this.#host
    await client.putBlob(this.#repository, bytes).catch(async (error: unknown) => {
      if (!String(error).includes('not taken: 503')) throw error
      await client.putBlob(this.#repository, bytes)
    })
  }

  /** Asserts that a tag moved to the item, or that the move was refused because the item is missing or not in the history. */
  #tookBack({ manifest: { digest } }: Item, { code, message }: Reply): void {
    expect([0, 9], message).toContain(code)
    if (code !== 0) return
    this.#counted.set(digest, this.#host.clock.now())
    this.#removed.delete(digest)
  }

  async #untag(tag: TagText): Promise<void> {
    const uid = tagNamed(this.#host.services.cache.tables, this.#repo, tag)?.uid
    if (uid !== undefined) expect([0, 5]).toContain((await this.#call('DeleteTag', { uid })).code)
  }

  async #remove(digest: Digest): Promise<void> {
    const { status } = await this.#send('DELETE', `manifests/${digest}`)
    expect([202, 404]).toContain(status)
    this.#removed.add(digest)
    this.#counted.delete(digest)
  }

  /** Continues the one upload, which stays open if its client returns within the grace period. */
  async #goOn(to: 'start' | 'go on' | 'finish'): Promise<void> {
    const known = await this.#uploadTimes()
    const before = this.#upload
    this.#upload = undefined
    if (to === 'start' || before === undefined) this.#upload = this.#grown(await this.#send('POST', 'blobs/uploads/'), '')
    else if (to === 'go on') this.#upload = await this.#append(before)
    else await this.#finish(before)
    for (const [file, timeMs] of await this.#uploadTimes()) {
      const now = new Date(this.#host.clock.now())
      if (known.get(file) !== timeMs) await utimes(file, now, now)
    }
  }

  #grown(answer: Answer, sent: string): { location: string; sent: string; atMs: number } {
    expect([answer.status, answer.body.toString()]).toEqual([202, ''])
    return { location: locationOf(answer), sent, atMs: this.#host.clock.now() }
  }

  async #append(upload: { location: string; sent: string; atMs: number }): Promise<typeof upload | undefined> {
    const answer = await this.#host.client.send('PATCH', upload.location, { body: 'more', headers: { 'content-type': 'application/octet-stream' } })
    return this.#isForgotten(upload, answer) ? undefined : this.#grown(answer, `${upload.sent}more`)
  }

  async #finish(upload: { location: string; sent: string; atMs: number }): Promise<void> {
    const digest = digestOf(Buffer.from(upload.sent))
    const answer = await this.#host.client.send('PUT', withQuery(upload.location, `digest=${digest}`))
    // The collection removed the upload: the client has to start again.
    if (this.#isForgotten(upload, answer) || answer.status === 503) return
    expect([answer.status, answer.body.toString()]).toEqual([201, ''])
    this.#uploaded.add(digest)
    this.#counted.set(digest, this.#host.clock.now())
  }

  /** True if the upload was dropped because its client did not return within the grace period. */
  #isForgotten({ atMs }: { atMs: number }, { status }: Answer): boolean {
    return status === 404 && this.#host.clock.now() - atMs >= graceMs
  }

  /** Times of the last write to uploads of an embedded upstream, by file. */
  async #uploadTimes(): Promise<Map<string, number>> {
    const { directory } = this.#host
    const files = directory === undefined ? [] : (await readdir(join(directory, 'uploads'))).map((name) => join(directory, 'uploads', name))
    return new Map(await Promise.all(files.map(async (file) => [file, (await stat(file)).mtimeMs] as const)))
  }

  #tagged(tag: TagText): Digest | undefined {
    const record = tagNamed(this.#host.services.cache.tables, this.#repo, tag)
    // The host parsed it.
    return record === undefined ? undefined : (tagOf(record).digest as Digest)
  }

  /** The digests in tags and history, except deleted manifests. */
  async #named(): Promise<Set<string>> {
    await this.#host.services.cache.barrier()
    const { entries } = await this.#host.services.store.range({ prefix: `${historyPrefix}${this.#repo}:`, limit: 10_000 }, soon())
    const named = [...entries.map(({ value }) => fromBinary(HistoryRecordSchema, value).digest), ...tags.map((tag) => this.#tagged(tag) ?? '')]
    return new Set(named.filter((digest) => digest !== '' && !this.#removed.has(digest)))
  }

  /** True if the digest was put or used within the grace period. */
  #isYoung(digest: Digest): boolean {
    return this.#host.clock.now() - (this.#counted.get(digest) ?? -Infinity) < certainlyYoungMs
  }

  /** The content that clients need now. */
  async #needed(isCounted: (digest: Digest) => boolean): Promise<Digests> {
    return this.#closure(isCounted, { named: await this.#named(), referring: (await this.#holds()).manifests })
  }

  /** The content of these digests, and the members of `referring` that refer to it. */
  #closure(isCounted: (digest: Digest) => boolean, { named, referring }: { named: ReadonlySet<string>; referring: ReadonlySet<string> }): Digests {
    const manifests = new Set<Digest>()
    const blobs = new Set<Digest>()
    const add = (item: Item): void => {
      const { digest } = item.manifest
      if (manifests.has(digest) || this.#removed.has(digest)) return
      manifests.add(digest)
      for (const blob of item.blobs) blobs.add(digestOf(blob))
      for (const child of item.children) add(child)
      for (const other of this.#pool) if (other.subject === item && referring.has(other.manifest.digest)) add(other)
    }
    for (const item of this.#pool) if (named.has(item.manifest.digest) || isCounted(item.manifest.digest)) add(item)
    return { manifests, blobs }
  }

  /** All blobs of the pool. */
  #blobs(): Set<Digest> {
    return new Set([...this.#pool.flatMap(({ blobs }) => blobs.map((bytes) => digestOf(bytes))), ...this.#uploaded])
  }

  /** The content of the repo, by its records and by the upstream. */
  async #holds(): Promise<Digests> {
    const { services } = this.#host
    const repo = this.#repo
    const there = await this.#upstreamHas()
    for (const digest of there.manifests) if ((await heldManifest(services, { repo, digest }, soon())) === undefined) there.manifests.delete(digest)
    for (const digest of there.blobs) if ((await heldBlob(services, { repo, digest }, soon())) === undefined) there.blobs.delete(digest)
    return there
  }

  async #upstreamHas(): Promise<Digests> {
    const { upstream } = this.#host
    const manifests = new Set<Digest>()
    const blobs = new Set<Digest>()
    for (const { manifest } of this.#pool) if (await upstream.hasManifest(this.#repo, manifest.digest, soon())) manifests.add(manifest.digest)
    for (const digest of this.#blobs()) if ((await upstream.statBlob(this.#repo, digest, soon())) !== undefined) blobs.add(digest)
    return { manifests, blobs }
  }

  #send(method: string, path: string): ReturnType<CollectingHost['client']['send']> {
    return this.#host.client.send(method, `/v2/${this.#repository}/${path}`)
  }

  async #call(method: string, message: JsonObject): Promise<Reply> {
    const { server, owner } = this.#host
    return server.rest.call(method, message, { token: await server.tokenFor(owner) })
  }
}

describe.each([
  ['disk', startDiskUpstreamAt],
  ['http', startHttpUpstream],
] as const)('random steps in a repo over the upstream %s', (_name, upstream) => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(upstream)
  })
  afterAll(() => host.stop())

  test('random steps in a repo never lose content that clients need, and finally leave nothing else', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), async (steps) => {
        const repository = host.freshRepository()
        await host.client.pushImage(repository, 'always')
        const repo = new Repo(host, repository)
        for (const next of steps) await repo.take(next)
        await repo.assertClean()
      }),
      { numRuns: Number(process.env['TAPROOT_COLLECT_RUNS'] ?? campaignLength({ short: 8, full: 25 })), endOnFailure: true },
    )
  })
})
