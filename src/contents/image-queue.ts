import type { Digest } from '../base/digest.ts'
import type { Clock } from '../base/runtime.ts'
import { rootOf, trustedUid } from '../base/uid.ts'
import type { ImageName } from '../cache/lists/contents-source.ts'
import type { ManifestRecord } from '../gen/taproot/store/v1/registry_pb.ts'
import { manifestIn, manifestPrefix } from '../registry/index.ts'
import { pagesOf } from '../store/pages.ts'
import type { Entry, Store, Transaction, Write } from '../store/store.ts'
import type { ContentRetry } from './package.ts'

/** A manifest that waits for work. */
export interface QueuedImage extends ImageName {
  /** The key that asks for it. Its value is the number of tries since the last push; empty for none. A job may add a note, after a space. */
  readonly entry: Entry
}

/** The key prefixes of a queue. Repo and digest follow. */
export interface QueuePrefixes {
  /** Of manifests that wait. */
  readonly waiting: string
  /** Of manifests that wait again later. */
  readonly later: string
}

/** How the work on a manifest ended. */
interface EndedWork {
  readonly retry: ContentRetry
  /** Keys of other queues. They ask for it in the same transaction, unless it waits there. */
  readonly ask?: readonly string[]
  /** The note that it has at the next try; none by default. */
  readonly note?: string | undefined
}

/** Which manifests are asked for. */
interface AskedManifests {
  /** Only those below this group. */
  readonly group?: string
  /** Only those for which it returns true. */
  readonly isWanted?: (record: ManifestRecord) => boolean
}

/** When a manifest waits again, as the store has it: JSON. */
interface LaterTry {
  readonly dueMs: number
  /** The number of tries since the last push. */
  readonly tries: number
  /** The note that it has then. */
  readonly note?: string
}

/** Number of keys that one transaction writes, and that one read has. */
const keysAtOnce = 100
/** The times from one try to the next, in milliseconds. The last one repeats for `daily`. */
const retryAfterMs = [5 * 60_000, 30 * 60_000, 6 * 3_600_000, 24 * 3_600_000] as const
/** The longest time from one try to the next, in milliseconds. */
const longestStepMs = retryAfterMs[3]
/** The longest time until due manifests are looked for, in milliseconds: another worker may have tried some. */
const lookEveryMs = retryAfterMs[0]

/** Returns the image in a key. Only this server writes such keys. */
function nameIn({ key }: Entry, prefix: string): ImageName {
  const at = key.lastIndexOf('/')
  return { repo: trustedUid(key.slice(prefix.length, at)), digest: key.slice(at + 1) as Digest }
}

/** Returns when a manifest is tried again; undefined if it is not. */
function nextTry({ entry }: QueuedImage, retry: ContentRetry, nowMs: number): LaterTry | undefined {
  const tries = Number(Buffer.from(entry.value).toString().split(' ')[0]) + 1
  const afterMs = { never: undefined, few: retryAfterMs.slice(0, -1)[tries - 1], daily: retryAfterMs[tries - 1] ?? longestStepMs }[retry]
  return afterMs === undefined ? undefined : { dueMs: nowMs + afterMs, tries }
}

/** Resolves with the transaction that asks for what does not wait. What waits keeps its tries and its note. */
async function asking(store: Store, keys: readonly string[], signal: AbortSignal): Promise<Transaction> {
  const held = await Promise.all(keys.map((key) => store.get(key, signal)))
  const absent = keys.filter((_, at) => held[at] === undefined)
  return {
    guards: absent.map((key) => ({ kind: 'absent', key })),
    writes: absent.map((key) => ({ kind: 'put', key, value: new Uint8Array() })),
  }
}

/**
 * Manifests in the store that wait for a job. A key says that one waits. If the work is to be done again, another key says when: so that many of them cost
 * nothing until then. A push asks for it at once, and starts the tries again.
 */
export class ImageQueue {
  readonly #store: Store
  readonly #clock: Clock
  readonly #prefixes: QueuePrefixes
  /** When due manifests are looked for. */
  #lookMs = 0
  /** The key after which the next organisation's turn is. */
  #after = ''

  constructor({ store, clock }: { readonly store: Store; readonly clock: Clock }, prefixes: QueuePrefixes) {
    this.#store = store
    this.#clock = clock
    this.#prefixes = prefixes
  }

  /** Asks for manifests: for all of all repos by default. Those that wait keep their tries and notes. */
  async askForAll(signal: AbortSignal, { group = '', isWanted = () => true }: AskedManifests = {}): Promise<void> {
    const prefix = group === '' ? manifestPrefix : `${manifestPrefix}${group}/`
    for await (const page of pagesOf(this.#store, { prefix, limit: keysAtOnce }, signal)) {
      const wanted = page.filter((entry) => {
        const record = manifestIn(entry)
        return record !== undefined && isWanted(record)
      })
      const keys = wanted.map(({ key }) => `${this.#prefixes.waiting}${key.slice(manifestPrefix.length)}`)
      // A push may have asked for one in between.
      while (!(await this.#store.transact(await asking(this.#store, keys, signal), signal)).committed) signal.throwIfAborted()
    }
  }

  /** Asks for those whose time has come. If there are many, their time comes up to five minutes late. */
  async askForDue(signal: AbortSignal): Promise<void> {
    const nowMs = this.#clock.now()
    if (nowMs < this.#lookMs) return
    let nextMs = nowMs + lookEveryMs
    let seen = 0
    for await (const page of pagesOf(this.#store, { prefix: this.#prefixes.later, limit: keysAtOnce }, signal)) {
      seen += page.length
      for (const entry of page) {
        const { dueMs, tries, note } = JSON.parse(Buffer.from(entry.value).toString()) as LaterTry // of `done`
        // A later time than any step is one of a clock that was ahead.
        if (dueMs <= nowMs || dueMs > nowMs + longestStepMs) await this.#ask(entry, note === undefined ? String(tries) : `${tries} ${note}`, signal)
        else nextMs = Math.min(nextMs, dueMs)
      }
    }
    // Each look reads all of them.
    this.#lookMs = seen <= keysAtOnce ? nextMs : nowMs + lookEveryMs
  }

  /**
   * Returns a function that resolves with the next manifest that was not in an earlier answer: of the next organisation that is not busy. Undefined if there is
   * none. `failed` are keys to leave out.
   */
  turns(busy: ReadonlySet<string>, failed: ReadonlySet<string>, signal: AbortSignal): () => Promise<QueuedImage | undefined> {
    const seen = new Set<string>(failed)
    let last = Promise.resolve<QueuedImage | undefined>(undefined)
    const next = async (): Promise<QueuedImage | undefined> => {
      // One round over all organisations, from where the last one was found.
      const start = this.#after
      for (let isSecond = false; ;) {
        const found = await this.#first(this.#after, seen, signal)
        if (found === undefined) {
          if (isSecond || start === '') return undefined
          this.#after = ''
          isSecond = true
          continue
        }
        const root = rootOf(found.repo)
        this.#after = `${this.#prefixes.waiting}${root}~`
        if (busy.has(root)) {
          if (isSecond && found.entry.key > start) return undefined
          continue
        }
        seen.add(found.entry.key)
        return found
      }
    }
    // One after the other: each sees what the one before took.
    return () => (last = last.then(next, next))
  }

  /**
   * Says that the work on one is done. It waits again if it was asked for meanwhile, and later as `retry` says.
   */
  async done(image: QueuedImage, { retry, ask = [], note }: EndedWork, signal: AbortSignal): Promise<void> {
    const { entry } = image
    const next = nextTry(image, retry, this.#clock.now())
    const key = this.#laterKey(image)
    const later: Write = next === undefined ? { kind: 'delete', key } : { kind: 'put', key, value: Buffer.from(JSON.stringify({ ...next, note })) }
    const asked = await asking(this.#store, ask, signal)
    const guards = [{ kind: 'unchanged', key: entry.key, revision: entry.revision } as const, ...asked.guards]
    await this.#store.transact({ guards, writes: [{ kind: 'delete', key: entry.key }, later, ...asked.writes] }, signal)
    this.#lookMs = Math.min(this.#lookMs, next?.dueMs ?? Infinity)
  }

  /** Resolves with the first one after a key that was not seen. */
  async #first(after: string, seen: ReadonlySet<string>, signal: AbortSignal): Promise<QueuedImage | undefined> {
    const { waiting } = this.#prefixes
    for await (const page of pagesOf(this.#store, { prefix: waiting, ...(after === '' ? {} : { after }), limit: keysAtOnce }, signal)) {
      const entry = page.find(({ key }) => !seen.has(key))
      if (entry !== undefined) return { entry, ...nameIn(entry, waiting) }
    }
    return undefined
  }

  #laterKey({ repo, digest }: ImageName): string {
    return `${this.#prefixes.later}${repo}/${digest}`
  }

  async #ask({ key, revision, ...entry }: Entry, value: string, signal: AbortSignal): Promise<void> {
    const { repo, digest } = nameIn({ key, revision, ...entry }, this.#prefixes.later)
    const asked = `${this.#prefixes.waiting}${repo}/${digest}`
    // One that waits already, after a push, has its tries before it.
    const guards = [{ kind: 'unchanged', key, revision } as const, { kind: 'absent', key: asked } as const]
    await this.#store.transact(
      {
        guards,
        writes: [
          { kind: 'delete', key },
          { kind: 'put', key: asked, value: Buffer.from(value) },
        ],
      },
      signal,
    )
  }
}
