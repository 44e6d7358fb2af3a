import type { Digest } from '../base/digest.ts'
import type { Clock } from '../base/runtime.ts'
import { trustedUid } from '../base/uid.ts'
import type { ImageName } from '../cache/lists/contents-source.ts'
import { manifestPrefix, rereadKey, rereadPrefix, unreadKey, unreadPrefix } from '../registry/index.ts'
import { pagesOf } from '../store/pages.ts'
import type { Entry, Store, Write } from '../store/store.ts'
import type { ContentRetry } from './package.ts'

/** A manifest whose contents are to be read. */
export interface UnreadImage extends ImageName {
  /** The key that asks for it. Its value is the number of tries since the last push; empty for none. */
  readonly entry: Entry
}

/** When a manifest is to be read again, as the store has it: JSON. */
interface Reread {
  readonly dueMs: number
  /** The number of tries since the last push. */
  readonly tries: number
}

/** Number of keys that one transaction writes, and that one read has. */
const keysAtOnce = 100
/** The times from one try to the next, in milliseconds. The last one repeats for `daily`. */
const retryAfterMs = [5 * 60_000, 30 * 60_000, 6 * 3_600_000, 24 * 3_600_000] as const
/** The longest time until due manifests are looked for, in milliseconds: another worker may have tried some. */
const lookEveryMs = retryAfterMs[0]

/** Returns the image in a key. putManifest and this file write such keys. */
function nameIn({ key }: Entry, prefix: string): ImageName {
  const at = key.lastIndexOf('/')
  return { repo: trustedUid(key.slice(prefix.length, at)), digest: key.slice(at + 1) as Digest }
}

/** Returns when a manifest is tried again; undefined if it is not. */
function nextTry({ entry }: UnreadImage, retry: ContentRetry, nowMs: number): Reread | undefined {
  const tries = Number(Buffer.from(entry.value).toString()) + 1
  const lasting = retryAfterMs.at(-1) ?? 0
  const afterMs = { never: undefined, few: retryAfterMs.slice(0, -1)[tries - 1], daily: retryAfterMs[tries - 1] ?? lasting }[retry]
  return afterMs === undefined ? undefined : { dueMs: nowMs + afterMs, tries }
}

/**
 * The manifests in the store whose contents are to be read. A key says that one waits. If its source did not answer, another key says when it waits again: so that
 * many of them cost nothing until then. A push asks for it at once, and starts the tries again.
 */
export class UnreadImages {
  readonly #store: Store
  readonly #clock: Clock
  /** When due manifests are looked for. */
  #lookMs = 0

  constructor({ store, clock }: { readonly store: Store; readonly clock: Clock }) {
    this.#store = store
    this.#clock = clock
  }

  /** Asks for the contents of all manifests of all repos. */
  async askForAll(signal: AbortSignal): Promise<void> {
    for await (const page of pagesOf(this.#store, { prefix: manifestPrefix, limit: keysAtOnce }, signal)) {
      const writes = page.map(({ key }): Write => ({ kind: 'put', key: `${unreadPrefix}${key.slice(manifestPrefix.length)}`, value: new Uint8Array() }))
      await this.#store.transact({ guards: [], writes }, signal)
    }
  }

  /** Asks for those whose time has come. */
  async askForDue(signal: AbortSignal): Promise<void> {
    const nowMs = this.#clock.now()
    if (nowMs < this.#lookMs) return
    let nextMs = nowMs + lookEveryMs
    for await (const page of pagesOf(this.#store, { prefix: rereadPrefix, limit: keysAtOnce }, signal)) {
      for (const entry of page) {
        const { dueMs, tries } = JSON.parse(Buffer.from(entry.value).toString()) as Reread // of `done`
        if (dueMs <= nowMs) await this.#ask(entry, tries, signal)
        else nextMs = Math.min(nextMs, dueMs)
      }
    }
    this.#lookMs = nextMs
  }

  /** Resolves with the first one after a key that was not seen. */
  async first(after: string, seen: ReadonlySet<string>, signal: AbortSignal): Promise<UnreadImage | undefined> {
    for await (const page of pagesOf(this.#store, { prefix: unreadPrefix, ...(after === '' ? {} : { after }), limit: keysAtOnce }, signal)) {
      const entry = page.find(({ key }) => !seen.has(key))
      if (entry !== undefined) return { entry, ...nameIn(entry, unreadPrefix) }
    }
    return undefined
  }

  /** Says that one was read. It is read again if it was asked for meanwhile, and later as `retry` says. */
  async done(image: UnreadImage, retry: ContentRetry, signal: AbortSignal): Promise<void> {
    const { repo, digest, entry } = image
    const next = nextTry(image, retry, this.#clock.now())
    const key = rereadKey(repo, digest)
    const later: Write = next === undefined ? { kind: 'delete', key } : { kind: 'put', key, value: Buffer.from(JSON.stringify(next)) }
    const guards = [{ kind: 'unchanged', key: entry.key, revision: entry.revision }] as const
    await this.#store.transact({ guards, writes: [{ kind: 'delete', key: entry.key }, later] }, signal)
    this.#lookMs = Math.min(this.#lookMs, next?.dueMs ?? Infinity)
  }

  async #ask({ key, revision, ...entry }: Entry, tries: number, signal: AbortSignal): Promise<void> {
    const { repo, digest } = nameIn({ key, revision, ...entry }, rereadPrefix)
    const asked = unreadKey(repo, digest)
    // One that waits already, after a push, has its tries before it.
    const guards = [{ kind: 'unchanged', key, revision } as const, { kind: 'absent', key: asked } as const]
    await this.#store.transact(
      {
        guards,
        writes: [
          { kind: 'delete', key },
          { kind: 'put', key: asked, value: Buffer.from(String(tries)) },
        ],
      },
      signal,
    )
  }
}
