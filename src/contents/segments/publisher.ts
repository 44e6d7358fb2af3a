import { rename, rm } from 'node:fs/promises'
import type { ImageName } from '../../cache/lists/contents-source.ts'
import { deleteCatalogue, pushCatalogue } from '../../catalogue/index.ts'
import { CatalogueError, formatOf } from '../../store/sqlite/catalogue-file.ts'
import { errorText } from '../../base/error-text.ts'
import type { Uid } from '../../base/uid.ts'
import type { Services } from '../../engine/services.ts'
import { heldManifest, namedOtherwise } from '../../registry/index.ts'
import { contentsKey, encodeContents, includedIn, storedContents, type ContentsRecord, type Segment, type StoredContents } from './contents-record.ts'
import type { ImageIndex } from '../image-contents.ts'
import type { SegmentSize, StoredImage } from './segment-builder.ts'
import { segmentTables } from './segment-tables.ts'
import { SegmentFiles, segmentThread, type SegmentsOptions } from './segments.ts'

const mediaType = 'application/vnd.taproot.contents.v1+sqlite'
/** Number of times that a change of the record starts again because there was another one meanwhile. */
const maxRebases = 5
/** Number of packages that go to the thread together. */
const packagesAtOnce = 1_000
/** Maximum number of manifests to look up in parallel. */
const readsAtOnce = 64

/** What a batch has found. */
export interface PublishedContents {
  readonly images: readonly StoredImage[]
  readonly indexes: readonly ImageIndex[]
}

/** Publishes segments. Only the active worker does; if two do at a time, the later one starts again. */
export class Publisher {
  readonly #options: SegmentsOptions
  readonly #services: Services
  readonly #files: SegmentFiles
  readonly #thread = segmentThread()

  constructor(options: SegmentsOptions, services: Services) {
    this.#options = options
    this.#services = services
    this.#files = new SegmentFiles(options)
  }

  /** Resolves with the record; undefined before the first one. */
  async record(signal: AbortSignal): Promise<ContentsRecord | undefined> {
    return (await this.#stored(signal)).record
  }

  /** Says that images are read by this version of the readers. Creates the record if there is none. */
  async note(readers: number, signal: AbortSignal): Promise<void> {
    const sweptMs = this.#options.clock.now()
    await this.#change(({ record }) => Promise.resolve({ sweptMs, segments: [], ...record, readers }), signal)
  }

  /** Resolves with those images that were read, and how. */
  async known(images: readonly ImageName[], signal: AbortSignal): Promise<readonly StoredImage['facts'][]> {
    const paths = await this.#files.have((await this.record(signal))?.segments ?? [], signal)
    return this.#thread.ask({ kind: 'images', paths, images }) as Promise<readonly StoredImage['facts'][]> // the answer to this task
  }

  /** Publishes images and indexes, in place of what is known about them. Rejects with StoreError, UpstreamError, an error of the file system, or the signal's reason. */
  async publish({ images, indexes }: PublishedContents, signal: AbortSignal): Promise<void> {
    const packages = images.reduce((sum, image) => sum + image.packages.length, 0)
    const left = await this.#change(async ({ record }) => {
      const { segments, ...kept } = record ?? { readers: 0, sweptMs: this.#options.clock.now(), segments: [] }
      const included = segments.slice(0, includedIn(packages, segments))
      const segment = await this.#build({ images, indexes, included }, signal)
      return { ...kept, segments: [segment, ...segments.slice(included.length)] }
    }, signal)
    await this.#files.removeOthers(left.segments)
  }

  /** Drops segments that the upstream lost or changed, and those of other versions. Then the readers' version is 0: all images are to be read again. */
  async dropLost(signal: AbortSignal): Promise<void> {
    const lost = new Set<Segment>()
    for (const segment of (await this.record(signal))?.segments ?? []) {
      try {
        const [path = ''] = await this.#files.have([segment], signal)
        const format = formatOf(path)
        if (format !== String(segmentTables.version)) throw new CatalogueError(`the segment has format ${format ?? 'none'}`)
      } catch (error) {
        if (!(error instanceof CatalogueError)) throw error
        this.#options.log.warn('contents of images are lost: the images are read again', { error: errorText(error) })
        lost.add(segment)
      }
    }
    const manifests = new Set([...lost].map(({ manifest }) => manifest))
    if (lost.size === 0) return
    await this.#change(({ record = { readers: 0, sweptMs: 0, segments: [] } }) => {
      return Promise.resolve({ ...record, readers: 0, segments: record.segments.filter(({ manifest }) => !manifests.has(manifest)) })
    }, signal)
  }

  /** Removes images that their repos no longer hold, if it was not done for this time in milliseconds. */
  async sweep(everyMs: number, signal: AbortSignal): Promise<void> {
    const { cache, clock } = this.#options
    const sweptMs = clock.now()
    if (sweptMs - (storedContents(cache.tables).record?.sweptMs ?? sweptMs) < everyMs) return
    const left = await this.#change(async ({ record }) => {
      const segments = record?.segments ?? []
      const gone = await this.#gone(await this.#namesIn(await this.#files.have(segments, signal)), signal)
      const swept = gone.length === 0 ? segments : [await this.#build({ images: [], indexes: [], included: segments }, signal)]
      return { readers: record?.readers ?? 0, sweptMs, segments: swept }
    }, signal)
    await this.#files.removeOthers(left.segments)
  }

  /** Ends the thread. */
  close(): Promise<void> {
    return this.#thread.close()
  }

  async #build({ images, indexes, included }: PublishedContents & { readonly included: readonly Segment[] }, signal: AbortSignal): Promise<Segment> {
    const { upstream, clock } = this.#options
    const older = await this.#files.have(included, signal)
    const path = await this.#files.temporary()
    try {
      const contents = { path, indexes, older, removed: await this.#gone(await this.#namesIn(older), signal) }
      const packages = await this.#hold(images)
      const size = (await this.#thread.ask({ kind: 'build', contents, packages })) as SegmentSize // the answer to this task
      const published = await pushCatalogue(upstream, { path, mediaType, nowMs: clock.now() }, signal)
      const segment = { ...published, ...size }
      await rename(path, this.#files.pathOf(segment))
      return segment
    } finally {
      await rm(path, { force: true })
    }
  }

  /** Gives images to the thread: of one that was read twice, the last contents. Resolves with the number of their packages. */
  async #hold(images: readonly StoredImage[]): Promise<number> {
    let count = 0
    const last = new Map(images.map((image) => [`${image.repo}@${image.digest}`, image]))
    for (const { packages, ...image } of last.values()) {
      for (let at = 0; at === 0 || at < packages.length; at += packagesAtOnce) {
        const part = packages.slice(at, at + packagesAtOnce)
        await this.#thread.ask({ kind: 'hold', part: { ...image, packages: part } })
        count += part.length
      }
    }
    return count
  }

  #namesIn(paths: readonly string[]): Promise<readonly ImageName[]> {
    return this.#thread.ask({ kind: 'names', paths }) as Promise<readonly ImageName[]> // the answer to this task
  }

  /** Returns the images that their repos no longer hold. */
  async #gone(names: readonly ImageName[], signal: AbortSignal): Promise<ImageName[]> {
    const { tables } = this.#services.cache
    const gone: ImageName[] = []
    const held = new Map<Uid, Promise<ReadonlySet<string>>>()
    /** True if the repo holds the image under its SHA-512 digest. Its contents are known by the SHA-256 digest. */
    const isNamedOtherwise = async ({ repo, digest }: ImageName): Promise<boolean> => {
      const others = held.get(repo) ?? namedOtherwise(this.#services, repo, signal)
      held.set(repo, others)
      return (await others).has(digest)
    }
    const isHeld = async (name: ImageName): Promise<boolean> =>
      tables.get('Repo', name.repo) !== undefined && ((await heldManifest(this.#services, name, signal)) !== undefined || isNamedOtherwise(name))
    for (let at = 0; at < names.length; at += readsAtOnce) {
      const part = names.slice(at, at + readsAtOnce)
      const areHeld = await Promise.all(part.map(isHeld))
      gone.push(...part.filter((_, index) => areHeld[index] !== true))
    }
    return gone
  }

  async #stored(signal: AbortSignal): Promise<StoredContents> {
    const { cache } = this.#options
    await cache.barrier(signal)
    return storedContents(cache.tables)
  }

  /** Changes the record, and deletes the segments that it no longer names. If another process changes it meanwhile, starts again. */
  async #change(nextOf: (before: StoredContents) => Promise<ContentsRecord>, signal: AbortSignal): Promise<ContentsRecord> {
    const { store, cache } = this.#options
    for (let attempt = 1; attempt <= maxRebases; attempt++) {
      const before = await this.#stored(signal)
      const { revision } = before
      const record = await nextOf(before)
      const outcome = await store.transact(
        {
          guards: [revision === undefined ? { kind: 'absent', key: contentsKey } : { kind: 'unchanged', key: contentsKey, revision }],
          writes: [{ kind: 'put', key: contentsKey, value: encodeContents(record) }],
        },
        signal,
      )
      const [kept, others] = outcome.committed ? [record, before.record] : [before.record, record]
      if (outcome.committed) await cache.reached(outcome.revision, signal)
      await this.#deleteSegments(others?.segments ?? [], kept?.segments ?? [], signal)
      if (outcome.committed) return record
    }
    throw new Error('the record of the contents of images changed too often')
  }

  /** Deletes segments from the upstream, but for those that are kept. What cannot be deleted stays: it does no harm. */
  async #deleteSegments(segments: readonly Segment[], kept: readonly Segment[], signal: AbortSignal): Promise<void> {
    const files = new Set(kept.map(({ blob }) => blob))
    for (const segment of segments.filter(({ blob }) => !files.has(blob)))
      await deleteCatalogue(this.#options.upstream, segment, signal).catch((error: unknown) =>
        this.#options.log.warn('an old segment stays in the upstream', { digest: segment.manifest, error: errorText(error) }),
      )
  }
}
