import { fromBinary } from '@bufbuild/protobuf'
import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import type { Services } from '../../engine/services.ts'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Entry, Guard, Write } from '../../store/store.ts'
import { manifestKey, referrerKeyPrefix } from '../records/manifest-keys.ts'
import { pendingDeletePrefix, type ContentSort } from '../records/pending-deletes.ts'
import { UpstreamError, type Upstream } from '../upstream/upstream.ts'
import type { DigestNumbers } from './digest-numbers.ts'
import { underMark, type HeldMark } from './mark.ts'
import { readContent, readTagged, upstreamDigests } from './repo-content.ts'

/** Maximum number of objects for each mark and transaction. Each object takes four writes and a guard, and writers wait for the mark. */
export const maxAtOnce = 24

/** Removes the bytes of one repo from the upstream whose records are gone: those with notes, and those that never had a record. */
export class ByteRemoval {
  readonly #services: Services
  readonly #upstream: Upstream
  readonly #of: { readonly repo: Uid; readonly digests: DigestNumbers }

  constructor(services: Services, upstream: Upstream, of: { readonly repo: Uid; readonly digests: DigestNumbers }) {
    this.#services = services
    this.#upstream = upstream
    this.#of = of
  }

  /** Returns the notes for bytes to remove, at most one batch, without those that have a refusal in `refusals`. */
  async waiting(refusals: ReadonlyMap<string, unknown>, signal: AbortSignal): Promise<Entry[]> {
    const found: Entry[] = []
    for await (const entry of entriesOf(this.#services.store, { prefix: `${pendingDeletePrefix}${this.#of.repo}/` }, signal)) {
      if (!refusals.has(entry.key)) found.push(entry)
      if (found.length === 2 * maxAtOnce) break
    }
    return found
  }

  /**
   * Removes the bytes that have notes, except bytes that a record needs, even under another digest. No process records new content while
   * the mark is valid. If the upstream refuses a removal, the refusal is added to `refusals` and the note stays. The other removals
   * continue.
   */
  async deleteUnder(mark: HeldMark, refusals: Map<string, UpstreamError>, signal: AbortSignal): Promise<void> {
    const { store } = this.#services
    const prefix = `${pendingDeletePrefix}${this.#of.repo}/`
    const entries = await this.waiting(refusals, signal)
    if (entries.length === 0) return
    const content = await readContent(this.#services, this.#of, signal)
    const held = upstreamDigests(content)
    const tagged = await readTagged(this.#services, this.#of, signal)
    for (const entry of entries) {
      const { key, value, revision } = entry
      // The key of a note ends with a sort and a digest.
      const [sort, digest] = key.slice(prefix.length).split('/') as [ContentSort, Digest]
      const number = this.#of.digests.of(digest)
      await mark.assertStanding(signal)
      // A tag was created while its manifest was being removed, so the manifest gets its record back.
      if (sort === 'manifest' && tagged.has(number) && value.length > 0 && !content.manifests.has(number)) {
        await this.#bringBack(digest, entry, signal)
        continue
      }
      const refusal = held[sort].has(number) ? undefined : await this.#refusalOf(sort, digest, signal)
      if (refusal === undefined) await store.transact({ guards: [{ kind: 'unchanged', key, revision }], writes: [{ kind: 'delete', key }] }, signal)
      else refusals.set(key, refusal)
    }
  }

  /** Writes the record of a manifest again, from the note for its bytes. */
  async #bringBack(digest: Digest, { key, value, revision }: Entry, signal: AbortSignal): Promise<void> {
    const back = manifestKey(this.#of.repo, digest)
    const guards: Guard[] = [
      { kind: 'absent', key: back },
      { kind: 'unchanged', key, revision },
    ]
    const { subject } = fromBinary(ManifestRecordSchema, value)
    const referrer: Write[] = subject === '' ? [] : [{ kind: 'put', key: `${referrerKeyPrefix(this.#of.repo, subject)}${digest}`, value: new Uint8Array() }]
    await this.#services.store.transact({ guards, writes: [{ kind: 'put', key: back, value }, ...referrer, { kind: 'delete', key }] }, signal)
  }

  /**
   * Removes the bytes of a manifest or blob from the upstream. Resolves with the upstream's error if it refused. Rejects if the outcome is
   * unknown.
   */
  async #refusalOf(sort: ContentSort, digest: Digest, signal: AbortSignal): Promise<UpstreamError | undefined> {
    try {
      await this.#remove(sort, digest, signal)
      return undefined
    } catch (error) {
      if (error instanceof UpstreamError && error.kind === 'refused') return error
      throw error
    }
  }

  /** Removes bytes that have no record, unless one came before the mark. */
  async removeOrphans(stored: readonly { readonly kind: ContentSort; readonly digest: Digest }[], signal: AbortSignal): Promise<void> {
    for (let at = 0; at < stored.length; at += maxAtOnce) {
      await underMark(
        { services: this.#services, repo: this.#of.repo },
        async (mark) => {
          const held = upstreamDigests(await readContent(this.#services, this.#of, signal))
          for (const { kind, digest } of stored.slice(at, at + maxAtOnce)) {
            await mark.assertStanding(signal)
            if (!held[kind].has(this.#of.digests.of(digest))) await this.#remove(kind, digest, signal)
          }
        },
        signal,
      )
    }
  }

  async #remove(sort: ContentSort, digest: Digest, signal: AbortSignal): Promise<void> {
    if (sort === 'manifest') await this.#upstream.deleteManifest(this.#of.repo, digest, signal)
    else await this.#upstream.deleteBlob(this.#of.repo, digest, signal)
  }
}
