import { errorText } from '../base/error-text.ts'
import { pause } from '../base/timing.ts'
import { rootOf, type Uid } from '../base/uid.ts'
import type { ContentsFacts, ImageName } from '../cache/lists/contents-source.ts'
import type { Services } from '../engine/services.ts'
import { rereadPrefix, scanKey, scanPrefixes, unreadPrefix, UpstreamError } from '../registry/index.ts'
import type { ImageContents, ImageIndex, PackageSource } from './image-contents.ts'
import { ContentError, type ContentRetry } from './package.ts'
import { readContents, unreadContents, type ReadingOptions, type ReadManifest } from './reading/read-contents.ts'
import { Publisher, type PublishedContents } from './segments/publisher.ts'
import type { StoredImage } from './segments/segment-builder.ts'
import type { SegmentsOptions } from './segments/segments.ts'
import { ImageQueue, type QueuedImage } from './image-queue.ts'

/** Receives what was read, for metrics. */
export interface ContentsObserver {
  /** `problem` is empty if the image was read. */
  read(source: PackageSource, problem: string): void
}

/** The dependencies of ContentsJob. */
export interface ContentsJobOptions extends SegmentsOptions {
  readonly services: Services
  /** The time after which what was read is published, in milliseconds: 3 seconds by default. */
  readonly publishAfterMs?: number
}

/** A scanner that is to scan what was read. */
export interface AskedScanner {
  readonly name: string
  /** Returns false if it may not scan the repo. `signal` is that of the leadership. */
  wants(repo: Uid, signal: AbortSignal): boolean
}

/** The version of the readers. Raise it when they find more: then all images are read again. */
const readersVersion = 3
/** Number of images that are read at the same time, of different organisations. What others found is published while a large image is read. */
const imagesAtOnce = 2
/** What was read is published after this number of images or packages, or this time in milliseconds. */
const publishedImages = 64
const publishedPackages = 100_000
const publishedAfterMs = 3_000
/** How often images that are gone are looked for, in milliseconds. */
const sweepEveryMs = 24 * 3_600_000

/** The number of times that an image is read at once if the upstream fails for it alone. Then it waits like one that the upstream does not have. */
const triesAtOnce = 3

/** A manifest that was read, and when it is to be read again. */
interface DoneImage {
  readonly image: QueuedImage
  readonly retry: ContentRetry
}

/** What was read since the last publication. */
interface Found {
  readonly done: DoneImage[]
  readonly images: StoredImage[]
  readonly indexes: ImageIndex[]
  packages: number
}

/** The readings of one run. */
interface Readings {
  found: Found
  /** Those that have not ended, by the key of their image. They never reject. */
  readonly running: Map<string, Promise<void>>
  /** The organisations of these images. */
  readonly busy: Set<Uid>
  readonly onFailure: (error: unknown) => void
}

function nothingFound(): Found {
  return { done: [], images: [], indexes: [], packages: 0 }
}

function isFull({ done, packages }: Found): boolean {
  return done.length >= publishedImages || packages >= publishedPackages
}

function storedOf({ repo, digest, packages, ...found }: ImageContents, readMs: number): StoredImage {
  const { platform, source, sourceDigest, problem = '', message, distribution = { id: '', version: '' }, described } = found
  const skipped = found.skipped.map(({ path, message: reason }) => ({ path, message: reason }))
  const about = described === undefined ? {} : { described }
  return {
    repo,
    digest,
    packages,
    facts: { platform, source, sourceDigest, problem, message, distribution, skipped, readMs, readers: readersVersion, ...about },
  }
}

/** Reads the contents of images that were pushed. The active worker runs it (docs/adr/0034). */
export class ContentsJob {
  readonly #options: ContentsJobOptions
  readonly #publisher: Publisher
  readonly #unread: ImageQueue
  /** Images that could not be read in this round, by key. */
  #failed = new Set<string>()
  /** The number of times that the upstream failed for an image alone, by key. */
  readonly #failures = new Map<string, number>()
  /** The last publication, or look at what is known. */
  #last: Promise<unknown> = Promise.resolve()
  /** True once it is known that this version of the readers read all images, or was asked to. */
  #asked = false

  constructor(options: ContentsJobOptions) {
    this.#options = options
    this.#publisher = new Publisher(options, options.services)
    this.#unread = new ImageQueue(options, { waiting: unreadPrefix, later: rereadPrefix })
  }

  /**
   * Reads all images that wait. Organisations take turns. If the platform could not read some of them, they keep waiting, the others are read, and the promise
   * rejects with the last error. If the upstream answers, but fails for an image again and again, the image is tried later. Rejects with StoreError, UpstreamError, or the signal's reason.
   */
  async run(observer: ContentsObserver | undefined, signal: AbortSignal, scanners: readonly AskedScanner[] = []): Promise<void> {
    if (!this.#asked) await this.#begin(signal)
    // A run that fails may do so because segments are lost: the next one looks again.
    this.#asked = false
    await this.#readAll({ observer, scanners }, signal)
    await this.#publisher.sweep(sweepEveryMs, signal)
    this.#asked = true
  }

  /** Ends what the job holds. */
  close(): Promise<void> {
    return this.#publisher.close()
  }

  async #readAll(
    { observer, scanners }: { readonly observer: ContentsObserver | undefined; readonly scanners: readonly AskedScanner[] },
    signal: AbortSignal,
  ): Promise<void> {
    this.#failed = new Set()
    let failure: unknown
    const ending = new AbortController()
    const limited = AbortSignal.any([signal, ending.signal])
    const readings: Readings = { found: nothingFound(), running: new Map(), busy: new Set(), onFailure: (error) => (failure = error) }
    try {
      for (;;) {
        await this.#unread.askForDue(signal)
        const found = await this.#batch(readings, limited)
        if (found.done.length === 0 && readings.running.size === 0) break
        if (found.images.length + found.indexes.length > 0) await this.#inTurn(() => this.#publisher.publish(found, signal))
        for (const { facts } of found.images) observer?.read(facts.source, facts.problem)
        for (const { image, retry } of found.done) {
          // The upstream does not have all bytes of an image that is read daily.
          const asked = retry === 'daily' ? [] : scanners.filter((scanner) => scanner.wants(image.repo, signal))
          await this.#unread.done(image, { retry, ask: asked.map(({ name }) => scanKey(scanPrefixes.waiting, name, image)) }, signal)
        }
      }
    } finally {
      ending.abort(new Error('the run ended'))
      await Promise.all(readings.running.values())
    }
    if (failure !== undefined) throw failure instanceof Error ? failure : new Error(errorText(failure))
  }

  /** Publications and looks at what is known come one after the other: a publication removes files that a look reads. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => undefined)
    return done
  }

  async #begin(signal: AbortSignal): Promise<void> {
    await this.#publisher.dropLost(signal)
    if ((await this.#publisher.record(signal))?.readers !== readersVersion) {
      await this.#unread.askForAll(signal)
      await this.#publisher.note(readersVersion, signal)
    }
  }

  /**
   * Reads some of the images that wait, and resolves with what was read since the last batch. Readings that take longer go on. If there is nothing in it and none
   * goes on, none waits. The images of one organisation are read one after the other.
   */
  async #batch(readings: Readings, signal: AbortSignal): Promise<Found> {
    const { running, busy } = readings
    const endMs = performance.now() + (this.#options.publishAfterMs ?? publishedAfterMs)
    const unpublished = readings.found.done.map(({ image }) => image.entry.key)
    const turns = this.#unread.turns(busy, new Set([...this.#failed, ...running.keys(), ...unpublished]), signal)
    for (let isOver = false; !isOver;) {
      while (running.size < imagesAtOnce) {
        const next = await turns()
        if (next === undefined) break
        this.#start(readings, next, signal)
      }
      // Without any, the next batch looks for images that were pushed meanwhile.
      const leftMs = readings.found.done.length === 0 ? publishedAfterMs : endMs - performance.now()
      isOver = running.size === 0 || leftMs <= 0 || (await this.#next(running, leftMs, signal)) || isFull(readings.found)
      signal.throwIfAborted()
    }
    const { found } = readings
    readings.found = nothingFound()
    return found
  }

  /** Resolves when one of the readings ended, or with true after this time in milliseconds. */
  async #next(running: ReadonlyMap<string, Promise<void>>, ms: number, signal: AbortSignal): Promise<boolean> {
    const stop = new AbortController()
    const late = pause(ms, AbortSignal.any([signal, stop.signal])).then(() => true)
    const isLate = await Promise.race([late, ...[...running.values()].map((one) => one.then(() => false))])
    stop.abort()
    return isLate
  }

  /** Starts to read an image. */
  #start(readings: Readings, image: QueuedImage, signal: AbortSignal): void {
    const { running, busy, onFailure } = readings
    const { key } = image.entry
    const root = rootOf(image.repo)
    const work = async (): Promise<void> => {
      try {
        const { images, indexes, retry } = await this.#read(image, signal)
        const { found } = readings
        found.images.push(...images)
        found.indexes.push(...indexes)
        found.packages += images.reduce((sum, { packages }) => sum + packages.length, 0)
        found.done.push({ image, retry })
      } catch (error) {
        if (signal.aborted) return
        this.#failed.add(key)
        onFailure(error)
      } finally {
        busy.delete(root)
        running.delete(key)
      }
    }
    busy.add(root)
    running.set(key, work())
  }

  async #read(name: QueuedImage, signal: AbortSignal): Promise<PublishedContents & { readonly retry: ContentRetry }> {
    const { services, upstream, clock, directory } = this.#options
    // Not in the folder of the segments, whose other files are removed.
    const folder = `${directory}-reading`
    /** Images that earlier readers have read. */
    const older = new Set<string>()
    const known = async (image: ImageName): Promise<ContentsFacts | undefined> => {
      const [facts] = await this.#inTurn(() => this.#publisher.known([image], signal))
      if (facts?.problem !== '') return undefined
      if (facts.readers === readersVersion) return facts
      older.add(image.digest)
      return undefined
    }
    const reading: ReadingOptions = { services, upstream, known, folder }
    const { images, index, retry } = await readContents(reading, name, signal).catch((error: unknown) => this.#afterFailure(reading, { name, error }, signal))
    this.#failures.delete(name.entry.key)
    // What is known of an image stays if its source does not answer.
    const kept = images.filter(({ digest, problem }) => problem === undefined || retry === 'never' || !older.has(digest))
    return { images: kept.map((contents) => storedOf(contents, clock.now())), indexes: index === undefined ? [] : [index], retry }
  }

  /** Resolves with the failure as the contents of an image if the upstream answers, but fails for this image again and again. Else rejects with the error. */
  async #afterFailure(reading: ReadingOptions, { name, error }: { name: QueuedImage; error: unknown }, signal: AbortSignal): Promise<ReadManifest> {
    signal.throwIfAborted()
    if (!(error instanceof UpstreamError)) throw error
    await reading.upstream.ready(signal)
    const { key } = name.entry
    const failures = (this.#failures.get(key) ?? 0) + 1
    this.#failures.set(key, failures)
    if (failures < triesAtOnce) throw error
    const failure = new ContentError('UNREADABLE', 'the upstream fails for a part of the image; it is read again', { cause: error, retry: 'daily' })
    return unreadContents(reading, { name, error: failure }, signal)
  }
}
