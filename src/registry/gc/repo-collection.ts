import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { randomHex } from '../../base/runtime.ts'
import type { Uid } from '../../base/uid.ts'
import { BlobRecordSchema, ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { blobKey } from '../records/blobs.ts'
import { pendingDeleteNote, pendingDeletePrefix, type ContentSort } from '../records/pending-deletes.ts'
import { manifestKey, referrerKeyPrefix, rereadKey, scanPrefixes, unreadKey } from '../records/manifest-keys.ts'
import { storedChange, type StoredBytes } from '../../engine/quota/content.ts'
import { contentLimit, manifestsLimit } from '../../engine/quota/limits.ts'
import type { Services } from '../../engine/services.ts'
import { manifestsKey } from '../../store/keys.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Entry, Guard, Revision, Write } from '../../store/store.ts'
import type { Upstream, UpstreamError } from '../upstream/upstream.ts'
import { ByteRemoval, maxAtOnce } from './byte-removal.ts'
import { DigestNumbers } from './digest-numbers.ts'
import { underMark, type HeldMark } from './mark.ts'
import { firstToGo, garbageOf, type Garbage } from './needed.ts'
import { readContent, readNamed, readTagged, type HeldContent } from './repo-content.ts'

/** What a collection removed of one repo, or would remove in a dry run. */
export interface RepoCollected {
  readonly manifests: number
  readonly blobs: number
  readonly bytes: number
  /**
   * Number of objects whose bytes the upstream refused to remove. Their records are gone; the next collection tries again to remove the
   * bytes.
   */
  readonly refused: number
}

/** Maximum number of bytes of records in one transaction. One record is always allowed. */
const maxNoteBytes = 1024 * 1024
/** Maximum number of conflicts in a row with requests that need the content again. After that, the next collection continues. */
const maxConflicts = 5

/** Key prefix of the notes that say since when content is not needed, by kind of content. */
const unneededPrefix = 'x/unneeded/'

interface Due extends Garbage {
  /** Digests in the retained history of tags. A move that adds one also changes the record of the manifest that it points to. */
  readonly named: ReadonlySet<number>
}

/** The result of a collection that removed nothing. */
export const nothingCollected: RepoCollected = { manifests: 0, blobs: 0, bytes: 0, refused: 0 }

function bytesOf({ blobs }: Pick<HeldContent, 'blobs'>, digests: readonly number[]): number {
  return digests.reduce((sum, digest) => sum + (blobs.get(digest)?.size ?? 0), 0)
}

/**
 * Removes the garbage of one repo. Content that nothing needs is noted, and removed after the whole grace period. First the record is
 * removed, in a transaction that also writes a note for the bytes. The transaction fails if a request has started to rely on the content.
 * Then the bytes are removed, then the note. So an interruption at any point is safe: no client can find content without bytes, and all
 * bytes have a record or a note.
 */
export class RepoCollection {
  readonly #services: Services
  readonly #repo: Uid
  readonly #digests = new DigestNumbers()
  readonly #bytes: ByteRemoval

  constructor(services: Services, upstream: Upstream, repo: Uid) {
    this.#services = services
    this.#repo = repo
    this.#bytes = new ByteRemoval(services, upstream, this.#of)
  }

  /**
   * Collects garbage of an existing repo. With `dryRun` only counts. Rejects with StoreError, UpstreamError, MarkLost, or the signal's
   * reason.
   */
  async collect({ graceMs, dryRun }: { graceMs: number; dryRun: boolean }, signal: AbortSignal): Promise<RepoCollected> {
    const nowMs = this.#services.clock.now()
    const youngAfterMs = nowMs - graceMs
    const content = await this.#content(signal)
    const tagged = await this.#tagged(signal)
    const isClean = await this.#isClean(content, tagged, signal)
    if (isClean) return nothingCollected
    const due = await this.#due({ content, tagged, nowMs, youngAfterMs, dryRun }, signal)
    if (dryRun) return { manifests: due.manifests.length, blobs: due.blobs.length, bytes: bytesOf(content, due.blobs), refused: 0 }
    const [dueManifests, dueBlobs] = [new Set(due.manifests), new Set(due.blobs)]
    const find = async (): Promise<{ content: HeldContent; garbage: Garbage }> => {
      const now = await this.#content(signal)
      const named = new Set([...due.named, ...(await this.#tagged(signal))])
      const garbage = garbageOf({ ...now, named }, youngAfterMs)
      const manifests = garbage.manifests.filter((digest) => dueManifests.has(digest))
      return { content: now, garbage: { manifests, blobs: garbage.blobs.filter((digest) => dueBlobs.has(digest)) } }
    }
    return this.#removeAll(find, { isAny: due.manifests.length + due.blobs.length > 0 }, signal)
  }

  /** Removes all content of a deleted repo. */
  async collectAll({ dryRun }: { dryRun: boolean }, signal: AbortSignal): Promise<RepoCollected> {
    const find = async (): Promise<{ content: HeldContent; garbage: Garbage }> => {
      const content = await this.#content(signal)
      return { content, garbage: { manifests: [...content.manifests.keys()], blobs: [...content.blobs.keys()] } }
    }
    const { content, garbage } = await find()
    if (dryRun) return { manifests: garbage.manifests.length, blobs: garbage.blobs.length, bytes: bytesOf(content, garbage.blobs), refused: 0 }
    const done = await this.#removeAll(find, { isAny: garbage.manifests.length + garbage.blobs.length > 0 }, signal)
    const left = [...(await this.#notes(signal)).keys()]
    const scanned = await this.#scanPrefixes(Object.values(scanPrefixes), signal)
    for (const prefix of [unreadKey(this.#repo, ''), rereadKey(this.#repo, ''), ...scanned])
      for await (const { key } of entriesOf(this.#services.store, { prefix }, signal)) left.push(key)
    await this.#writeAll(
      left.map((key) => ({ kind: 'delete', key })),
      signal,
    )
    return done
  }

  /** Returns the key prefixes of the repo's images for each scanner that has any. */
  async #scanPrefixes(prefixes: readonly string[], signal: AbortSignal): Promise<string[]> {
    const found: string[] = []
    for (const prefix of prefixes) {
      for (let after = prefix; ;) {
        const [next] = (await this.#services.store.range({ prefix, after, limit: 1 }, signal)).entries
        if (next === undefined) break
        const ofScanner = next.key.slice(0, next.key.indexOf('/', prefix.length) + 1)
        found.push(`${ofScanner}${this.#repo}/`)
        after = `${ofScanner}~`
      }
    }
    return found
  }

  /** Forgets that scanners have scanned manifests that are gone. */
  async #forgetScans(manifests: readonly number[], signal: AbortSignal): Promise<void> {
    if (manifests.length === 0) return
    const prefixes = await this.#scanPrefixes([scanPrefixes.done], signal)
    await this.#writeAll(
      prefixes.flatMap((prefix) => manifests.map((digest): Write => ({ kind: 'delete', key: `${prefix}${this.#digests.text(digest)}` }))),
      signal,
    )
  }

  /** Returns true if current tags need all content, and no notes of earlier collections are left. Then there is nothing to collect. */
  async #isClean(content: HeldContent, tagged: ReadonlySet<number>, signal: AbortSignal): Promise<boolean> {
    const { manifests, blobs } = garbageOf({ ...content, named: tagged }, Infinity)
    if (manifests.length + blobs.length > 0) return false
    return !(await this.#hasAny(unneededPrefix, signal)) && !(await this.#hasAny(pendingDeletePrefix, signal))
  }

  async #hasAny(prefix: string, signal: AbortSignal): Promise<boolean> {
    return (await this.#services.store.range({ prefix: `${prefix}${this.#repo}/`, limit: 1 }, signal)).entries.length > 0
  }

  /**
   * Returns the garbage that was not needed for the whole grace period. Writes notes for new garbage, and deletes the notes of content
   * that is needed again.
   */
  async #due(
    found: { content: HeldContent; tagged: ReadonlySet<number>; nowMs: number; youngAfterMs: number; dryRun: boolean },
    signal: AbortSignal,
  ): Promise<Due> {
    const { content, tagged, nowMs, youngAfterMs, dryRun } = found
    const named = new Set([...(await readNamed(this.#services, this.#of, signal)), ...tagged])
    const unneeded = garbageOf({ ...content, named }, Infinity)
    const notes = await this.#notes(signal)
    const keys = [...unneeded.manifests.map((digest) => this.#noteKey('manifest', digest)), ...unneeded.blobs.map((digest) => this.#noteKey('blob', digest))]
    const fresh = keys.filter((key) => !notes.has(key))
    const current = new Set(keys)
    const over = [...notes.keys()].filter((key) => !current.has(key))
    const writes = [
      ...fresh.map((key): Write => ({ kind: 'put', key, value: Buffer.from(String(nowMs)) })),
      ...over.map((key): Write => ({ kind: 'delete', key })),
    ]
    if (!dryRun) await this.#writeAll(writes, signal)
    const isDue = (sort: ContentSort, digest: number): boolean => (notes.get(this.#noteKey(sort, digest)) ?? nowMs) <= youngAfterMs
    // Parts of garbage that is still in its grace period stay too, even if nothing else has needed them for longer.
    const waiting = garbageOf({ ...content, named }, youngAfterMs).manifests.filter((digest) => !isDue('manifest', digest))
    const garbage = garbageOf({ ...content, named: new Set([...named, ...waiting]) }, youngAfterMs)
    return {
      named,
      manifests: garbage.manifests.filter((digest) => isDue('manifest', digest)),
      blobs: garbage.blobs.filter((digest) => isDue('blob', digest)),
    }
  }

  get #of(): { repo: Uid; digests: DigestNumbers } {
    return { repo: this.#repo, digests: this.#digests }
  }

  #content(signal: AbortSignal): Promise<HeldContent> {
    return readContent(this.#services, this.#of, signal)
  }

  #tagged(signal: AbortSignal): Promise<Set<number>> {
    return readTagged(this.#services, this.#of, signal)
  }

  #noteKey(sort: ContentSort, digest: number): string {
    return `${unneededPrefix}${this.#repo}/${sort}/${this.#digests.text(digest)}`
  }

  /** Returns since when content is not needed, in milliseconds since 1970, by key of the note. */
  async #notes(signal: AbortSignal): Promise<Map<string, number>> {
    const notes = new Map<string, number>()
    for await (const { key, value } of entriesOf(this.#services.store, { prefix: `${unneededPrefix}${this.#repo}/` }, signal)) {
      notes.set(key, Number(Buffer.from(value).toString()))
    }
    return notes
  }

  async #writeAll(writes: readonly Write[], signal: AbortSignal): Promise<void> {
    for (let at = 0; at < writes.length; at += 100) await this.#services.store.transact({ guards: [], writes: writes.slice(at, at + 100) }, signal)
  }

  /** Removes all garbage in batches, each under its own mark. */
  async #removeAll(
    find: () => Promise<{ content: HeldContent; garbage: Garbage }>,
    { isAny }: { isAny: boolean },
    signal: AbortSignal,
  ): Promise<RepoCollected> {
    let sum = nothingCollected
    let conflicts = 0
    const refusals = new Map<string, UpstreamError>()
    for (let left = isAny; left || (await this.#bytes.waiting(refusals, signal)).length > 0;) {
      await underMark(
        { services: this.#services, repo: this.#repo },
        async (mark) => {
          // Reads the content again under the mark: a request may need some of the garbage by now.
          const { content, garbage } = await find()
          const manifests = fitting(content, firstToGo(content, garbage.manifests)).slice(0, maxAtOnce)
          const blobs = garbage.manifests.length > 0 ? [] : garbage.blobs.slice(0, maxAtOnce)
          const isDone = await this.#forget({ content, garbage: { manifests, blobs }, mark }, signal)
          conflicts = isDone ? 0 : conflicts + 1
          await this.#bytes.deleteUnder(mark, refusals, signal)
          if (isDone) sum = { ...sum, manifests: sum.manifests + manifests.length, blobs: sum.blobs + blobs.length, bytes: sum.bytes + bytesOf(content, blobs) }
          left = garbage.manifests.length + garbage.blobs.length > (isDone ? manifests.length + blobs.length : 0) && conflicts < maxConflicts
        },
        signal,
      )
    }
    const [first] = refusals.values()
    if (first !== undefined)
      this.#services.log.warn('the upstream refuses to remove garbage', { repo: this.#repo, refused: refusals.size, error: first.message })
    return { ...sum, refused: refusals.size }
  }

  /**
   * Removes records, and writes a note for the bytes of each. Returns false without a change if a request has started to rely on one of
   * them.
   */
  async #forget(found: { content: HeldContent; garbage: Garbage; mark: HeldMark }, signal: AbortSignal): Promise<boolean> {
    const { content, garbage, mark } = found
    const repo = this.#repo
    const guards: Guard[] = [mark.guard]
    const writes = new Map<string, Write>()
    const add = (write: Write): void => void writes.set(write.key, write)
    const sum = { [contentLimit]: 0, [manifestsLimit]: 0 }
    for (const [sort, digests] of [
      ['manifest', garbage.manifests],
      ['blob', garbage.blobs],
    ] as const) {
      for (const number of digests) {
        const entry = await this.#unchanged(content, { sort, number }, signal)
        if (entry === undefined) return mark.assertStanding(signal).then(() => false)
        const gone = sort === 'manifest' ? goneManifest(repo, this.#digests.text(number), entry) : goneBlob(repo, this.#digests.text(number), entry)
        guards.push({ kind: 'unchanged', key: entry.key, revision: entry.revision })
        for (const write of [{ kind: 'delete', key: entry.key }, { kind: 'delete', key: this.#noteKey(sort, number) }, ...gone.writes] as const) add(write)
        for (const limit of [contentLimit, manifestsLimit] as const) sum[limit] -= gone.counted[limit] ?? 0
      }
    }
    const counting = await storedChange(this.#services, { repo, bytes: sum }, signal)
    guards.push(...counting.guards)
    counting.writes.forEach(add)
    if (writes.size === 0) return true
    // Manifest caches compare this key's revision to detect removals.
    if (garbage.manifests.length > 0) add({ kind: 'put', key: manifestsKey(repo), value: Buffer.from(randomHex(this.#services.random, 8)) })
    const outcome = await this.#services.store.transact({ guards, writes: [...writes.values()] }, signal)
    if (!outcome.committed) await mark.assertStanding(signal)
    else await this.#forgetScans(garbage.manifests, signal)
    return outcome.committed
  }

  /** Returns the current record of a manifest or blob; undefined if it changed since `content` was read. */
  async #unchanged(content: HeldContent, { sort, number }: { sort: ContentSort; number: number }, signal: AbortSignal): Promise<Entry | undefined> {
    const digest = this.#digests.text(number)
    const [key, held]: [string, { readonly revision: Revision } | undefined] =
      sort === 'manifest' ? [manifestKey(this.#repo, digest), content.manifests.get(number)] : [blobKey(this.#repo, digest), content.blobs.get(number)]
    const entry = await this.#services.store.get(key, signal)
    return entry?.revision === held?.revision ? entry : undefined
  }
}

/** Returns the first manifests, as many as have records that fit in the notes of one transaction. */
function fitting({ manifests }: HeldContent, digests: readonly number[]): readonly number[] {
  let bytes = 0
  const end = digests.findIndex((digest, at) => {
    bytes += manifests.get(digest)?.recordBytes ?? 0
    return at > 0 && bytes > maxNoteBytes
  })
  return end < 0 ? digests : digests.slice(0, end)
}

/** The writes that accompany the removal of a record, and the usage to subtract from its organisation. */
interface Gone {
  readonly writes: readonly Write[]
  readonly counted: StoredBytes
}

function goneManifest(repo: Uid, digest: string, { value }: Entry): Gone {
  const manifest = fromBinary(ManifestRecordSchema, value)
  const upstreamDigest = manifest.upstreamDigest || digest
  // A record that is written again from its note adds no usage. Tags point only to the SHA-256 digest, so only that record is kept.
  const bare = create(ManifestRecordSchema, { ...manifest, countedSize: 0n, countedRecord: 0n })
  const mayComeBack = manifest.deleteTimeMs === 0n && upstreamDigest === digest
  const note = pendingDeleteNote(repo, 'manifest', { digest: upstreamDigest, record: mayComeBack ? toBinary(ManifestRecordSchema, bare) : new Uint8Array() })
  const referrer: Write[] = manifest.subject === '' ? [] : [{ kind: 'delete', key: `${referrerKeyPrefix(repo, manifest.subject)}${digest}` }]
  return { writes: [note, ...referrer], counted: { [contentLimit]: Number(manifest.countedSize), [manifestsLimit]: Number(manifest.countedRecord) } }
}

function goneBlob(repo: Uid, digest: string, { value }: Entry): Gone {
  const { counted, size, upstreamDigest } = fromBinary(BlobRecordSchema, value)
  return { writes: [pendingDeleteNote(repo, 'blob', { digest: upstreamDigest || digest })], counted: counted ? { [contentLimit]: Number(size) } : {} }
}
