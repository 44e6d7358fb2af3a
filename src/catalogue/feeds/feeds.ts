import { isDeepStrictEqual } from 'node:util'
import { errorMessage, errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import type { SafeFetch } from '../../auth/safe-fetch.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { CatalogueKind, FeedControl, FeedStatus } from '../../cache/lists/catalogue-sources.ts'
import type { Uid } from '../../base/uid.ts'
import { errorDomainSuffix } from '../../base/schema/schema.ts'
import { notFound } from '../../engine/errors.ts'
import type { Store } from '../../store/store.ts'
import { catalogueKindNames, catalogueKinds } from '../catalogue-kinds.ts'
import { importInProcess } from '../import/import-process.ts'
import { groupNamed } from '../import/named-group.ts'
import type { ImportCounts, ImportRefusal } from '../import/run-import.ts'
import { noUpstream } from '../publish/catalogue-record.ts'
import type { Catalogues } from '../publish/catalogues.ts'
import { isUrl, problemOf, readSource, sourceSecrets, type FeedContent } from './feed-source.ts'
import { encodeFeedState, feedKey, feedRequestKey, feedStateOf, nextRunMs, type ContentVersion, type FeedSettings, type FeedState } from './feed-state.ts'

/** Receives how feeds do, for metrics. */
export interface FeedObserver {
  /** `succeededMs` is the end of the last run that succeeded, in milliseconds since 1970; undefined before the first one. */
  ran(name: string, state: { readonly succeededMs: number | undefined; readonly failures: number }): void
}

/** The dependencies of Feeds. */
export interface FeedsOptions {
  readonly feeds: readonly FeedSettings[]
  readonly store: Store
  readonly cache: RecordCache
  /** Undefined without an upstream: then no feed can run. */
  readonly catalogues: Catalogues | undefined
  readonly fetch: SafeFetch
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  /** The longest run of a feed, in milliseconds: two hours by default. */
  readonly maxRunMs?: number
}

/** The longest run of a feed, in milliseconds: other feeds wait for it, whatever a source does. */
const longestRunMs = 2 * 3_600_000
/** The longest message of a state, in characters. */
const maxErrorLength = 500

/** The feeds of this installation. The active worker runs them one after the other; every process shows their state (docs/catalogues.md#feeds). */
export class Feeds implements FeedControl {
  readonly #options: FeedsOptions

  constructor(options: FeedsOptions) {
    this.#options = options
  }

  async list(signal: AbortSignal): Promise<readonly FeedStatus[]> {
    const listed: FeedStatus[] = []
    for (const feed of this.#options.feeds) listed.push(await this.#status(feed, signal))
    return listed
  }

  async request(name: string, signal: AbortSignal): Promise<FeedStatus> {
    const { feeds, store, cache, catalogues, random } = this.#options
    const feed = feeds.find((one) => one.name === name)
    if (feed === undefined) throw notFound('Feed', name, { resourceType: `catalogue.${errorDomainSuffix}/Feed` })
    if (catalogues === undefined) throw noUpstream()
    const value = Buffer.from(randomHex(random, 16))
    const outcome = await store.transact({ guards: [], writes: [{ kind: 'put', key: feedRequestKey(name), value }] }, signal)
    if (outcome.committed) await cache.reached(outcome.revision, signal)
    return this.#status(feed, signal)
  }

  /** Runs the feeds that are due. Resolves after the last one, whether they succeed or not. Rejects with StoreError, or the signal's reason. */
  async runDue(observer: FeedObserver | undefined, signal: AbortSignal): Promise<void> {
    const { feeds, clock, catalogues } = this.#options
    if (catalogues === undefined) return
    for (const feed of feeds) {
      const state = await this.#state(feed, signal)
      if (clock.now() < this.#nextMs(feed, state)) observer?.ran(feed.name, { succeededMs: state.succeededMs, failures: state.failures })
      else await this.#run({ feed, state, catalogues, observer }, signal)
    }
  }

  async #run(
    { feed, state, catalogues, observer }: { feed: FeedSettings; state: FeedState; catalogues: Catalogues; observer: FeedObserver | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, log } = this.#options
    const request = this.#requestOf(feed)
    const started = { ...state, startedMs: clock.now(), ...(request === undefined ? {} : { request }) }
    await this.#write(feed, started, signal)
    const deadline = timeLimit(this.#options.maxRunMs ?? longestRunMs, 'the run took longer than two hours')
    const during = AbortSignal.any([signal, deadline.signal])
    const after = await this.#attempt({ feed, state: started, catalogues }, during).catch((error: unknown): FeedState => {
      signal.throwIfAborted()
      log.warn('a feed failed and is tried again', { feed: feed.name, error: errorText(error) })
      return { ...started, failures: started.failures + 1, error: errorMessage(problemOf(error)).slice(0, maxErrorLength) }
    })
    deadline.end()
    await this.#write(feed, { ...after, endedMs: clock.now() }, signal)
    observer?.ran(feed.name, { succeededMs: after.succeededMs, failures: after.failures })
  }

  async #attempt({ feed, state, catalogues }: { feed: FeedSettings; state: FeedState; catalogues: Catalogues }, signal: AbortSignal): Promise<FeedState> {
    const { cache, clock, log } = this.#options
    await cache.barrier(signal)
    const group = feed.group === undefined ? undefined : groupNamed(cache.tables, feed.group)
    const target = targetOf(feed, group)
    const begins = await catalogues.begins(kindsOf(state.begins), signal)
    const isThere = state.target === target && isDeepStrictEqual(begins, state.begins ?? {})
    const content = await this.#read(feed, isThere ? state.version : undefined, signal)
    try {
      const { error: _, ...kept } = state
      if (content.paths === undefined) return { ...(state.refused > 0 ? state : kept), failures: 0, succeededMs: clock.now() }
      const refusals: ImportRefusal[] = []
      const counts = await catalogues.import(
        {
          paths: content.paths,
          group,
          ecosystem: feed.ecosystem,
          replace: feed.replace === true,
          dryRun: false,
          mayBegin: false,
          runner: importInProcess,
          onRefusal: (refusal) => void refusals.push(refusal),
          onProgress: () => undefined,
        },
        signal,
      )
      log.info('a feed was imported', { feed: feed.name, documents: counts.documents, refused: counts.refused })
      return {
        ...kept,
        ...imported(counts, refusals),
        failures: 0,
        succeededMs: clock.now(),
        version: content.version,
        target,
        begins: await catalogues.begins([...counts.rows.keys()], signal),
      }
    } finally {
      await content.remove()
    }
  }

  async #read(feed: FeedSettings, known: ContentVersion | undefined, signal: AbortSignal): Promise<FeedContent> {
    const { fetch, catalogues, clock } = this.#options
    if (catalogues === undefined) throw new TypeError('no upstream')
    return readSource(
      fetch,
      {
        source: feed.source,
        known,
        temporary: await catalogues.temporary(),
        ...(await sourceSecrets(feed)),
        allowPrivate: feed.allowPrivate === true,
        clock,
      },
      signal,
    )
  }

  async #state(feed: FeedSettings, signal: AbortSignal): Promise<FeedState> {
    return feedStateOf((await this.#options.store.get(feedKey(feed.name), signal))?.value, feed)
  }

  async #write(feed: FeedSettings, state: FeedState, signal: AbortSignal): Promise<void> {
    await this.#options.store.transact({ guards: [], writes: [{ kind: 'put', key: feedKey(feed.name), value: encodeFeedState(state) }] }, signal)
  }

  /** Returns the time of the next run: 0 if an operator asked for one that has not begun. */
  #nextMs(feed: FeedSettings, state: FeedState): number {
    return this.#requestOf(feed) === state.request ? nextRunMs(feed, state) : 0
  }

  /** Returns the last request to run a feed. Clocks of processes differ, so requests are compared by value. */
  #requestOf({ name }: FeedSettings): string | undefined {
    const value = this.#options.cache.tables.entry(feedRequestKey(name))?.value
    return value === undefined ? undefined : Buffer.from(value).toString()
  }

  async #status(feed: FeedSettings, signal: AbortSignal): Promise<FeedStatus> {
    const state = await this.#state(feed, signal)
    const { startedMs, endedMs = 0, failures, refused } = state
    const isRunning = startedMs !== undefined && endedMs < startedMs
    return {
      ...state,
      name: feed.name,
      source: shownSource(feed.source),
      nextMs: this.#nextMs(feed, state) || undefined,
      state: startedMs === undefined ? 'waiting' : isRunning ? 'running' : failures > 0 ? 'failed' : refused > 0 ? 'partial' : 'done',
    }
  }
}

/** Returns what decides how a content becomes rows. A release with other formats starts new catalogues, which need the content again. */
function targetOf({ ecosystem, replace }: FeedSettings, group: Uid | undefined): string {
  const formats = Object.values(catalogueKinds).map(({ tables }) => tables.version)
  return JSON.stringify([group ?? null, ecosystem ?? null, replace === true, formats])
}

function kindsOf(begins: FeedState['begins'] = {}): readonly CatalogueKind[] {
  return catalogueKindNames.filter((kind) => kind in begins)
}

function imported({ documents, refused }: ImportCounts, [first]: readonly ImportRefusal[]): Pick<FeedState, 'documents' | 'refused' | 'error'> {
  if (first === undefined) return { documents, refused }
  const place = first.line === undefined ? '' : ` (line ${first.line})`
  return { documents, refused, error: `${first.reason}${place}`.slice(0, maxErrorLength) }
}

/** Returns a signal that aborts after a time, with this reason. Call `end` when it is no longer needed. */
function timeLimit(ms: number, reason: string): { readonly signal: AbortSignal; end(): void } {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(new Error(reason)), ms)
  timer.unref()
  return { signal: controller.signal, end: () => clearTimeout(timer) }
}

/** Returns a source without user name, password and query, which may be secrets. */
function shownSource(source: string): string {
  const url = isUrl(source) ? URL.parse(source) : null
  return url === null ? source : `${url.origin}${url.pathname}`
}
