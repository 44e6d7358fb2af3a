import { createHash } from 'node:crypto'

/** A source that is imported at intervals, as the settings name it. */
export interface FeedSettings {
  readonly name: string
  /** An https URL, an artifact as `oci://…`, or the path of a file or folder that is mounted. */
  readonly source: string
  readonly everyMinutes: number
  /** Uid or path of the group that advisories belong to. */
  readonly group?: string
  /** The ecosystem of OSV of packages whose documents name no distribution. */
  readonly ecosystem?: string
  readonly replace?: boolean
  readonly tokenFile?: string
  readonly caFile?: string
  readonly allowPrivate?: boolean
}

/** What is known of the last runs of a feed. It is stored as JSON, and not kept in memory. Times are in milliseconds since 1970. */
export interface FeedState {
  /** The source that the state is about: for another source, everything is read again. */
  readonly source: string
  readonly startedMs?: number
  /** The end of the last run. It is before `startedMs` while a feed runs, and after a process was killed. */
  readonly endedMs?: number
  readonly succeededMs?: number
  /** The last request of an operator that a run began for. */
  readonly request?: string
  /** Why the last run failed, or the first thing that it refused. */
  readonly error?: string
  readonly failures: number
  readonly documents: number
  readonly refused: number
  /** What a server or folder said of the content that was imported last. */
  readonly version?: ContentVersion
  /** What that content was imported into, and how. If it changes, the content is read again. */
  readonly target?: string
  /** For each kind of catalogue that it was imported into, when that began without rows, in milliseconds since 1970. If one began again, the content is read again. */
  readonly begins?: Readonly<Record<string, number>>
}

/** The validators of a content: headers of an HTTP server, the digest of a manifest, or a digest of names, sizes and times of files. */
export interface ContentVersion {
  readonly etag?: string
  readonly lastModified?: string
  readonly files?: string
  readonly manifest?: string
}

/** The key of a feed's state. */
export function feedKey(name: string): string {
  return `x/feeds/${encodeURIComponent(name)}`
}

/** The prefix of the keys whose value changes when an operator asks for a run. All processes watch it. */
export const feedRequestPrefix = 'meta/feeds/'

/** Returns the key of the last request to run a feed. */
export function feedRequestKey(name: string): string {
  return `${feedRequestPrefix}${encodeURIComponent(name)}`
}

/** Returns the bytes to store. */
export function encodeFeedState(state: FeedState): Uint8Array {
  return Buffer.from(JSON.stringify(state))
}

/** Returns the stored state; the state of a feed that never ran if there is none, or if it is about another source. */
export function feedStateOf(value: Uint8Array | undefined, { source }: Pick<FeedSettings, 'source'>): FeedState {
  // Only `encodeFeedState` writes these keys.
  const state = value === undefined ? undefined : (JSON.parse(Buffer.from(value).toString()) as FeedState)
  return state?.source === source ? state : { source, failures: 0, documents: 0, refused: 0 }
}

/** The first wait after a failure, in milliseconds. It doubles with each failure, up to the interval of the feed. */
const firstWaitMs = 60_000

/** Returns a number from 0 to 1 that follows from the texts: all processes agree on it, and feeds spread. */
function spreadOf(...texts: readonly string[]): number {
  return createHash('sha256').update(JSON.stringify(texts)).digest().readUInt32BE() / 2 ** 32
}

/** Returns the time of the next run, in milliseconds since 1970: up to a tenth of the interval late, so that feeds spread. */
export function nextRunMs({ name, everyMinutes }: FeedSettings, { startedMs, endedMs, failures }: FeedState): number {
  if (startedMs === undefined || endedMs === undefined || endedMs < startedMs) return 0
  const everyMs = everyMinutes * 60_000
  const waitMs = failures === 0 ? everyMs : Math.min(everyMs, firstWaitMs * 2 ** Math.min(failures - 1, 20))
  return startedMs + Math.floor(waitMs * (1 + spreadOf(name, String(startedMs)) / 10))
}
