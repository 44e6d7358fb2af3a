import { mkdir, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { hexOf, type Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { TaskThread, type TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type {
  ContentsSource,
  ImageName,
  MatchAnswer,
  MatchQuestion,
  PackageImagePage,
  PackageImageQuery,
  PackagePage,
  PackageQuery,
  ReadImage,
} from '../../cache/lists/contents-source.ts'
import { followKey } from '../../cache/follow-key.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import { fetchCatalogue } from '../../catalogue/index.ts'
import type { Upstream } from '../../registry/index.ts'
import { CatalogueError } from '../../store/sqlite/catalogue-file.ts'
import type { Store } from '../../store/store.ts'
import { contentsKey, storedContents, type Segment } from './contents-record.ts'
import type { RepoState } from './segment-reader.ts'
import type { SegmentTask } from './segment-worker.ts'

/** The dependencies of Segments. */
export interface SegmentsOptions {
  readonly store: Store
  readonly cache: RecordCache
  readonly upstream: Upstream
  /** The folder for files. Several processes may share it. */
  readonly directory: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
}

const temporarySuffix = '.part'
/** Age at which a file that a killed process left is removed, in milliseconds. */
const abandonedMs = 24 * 3_600_000

/** Returns a thread for work on segments: it would block the event loop. */
export function segmentThread(): TaskThread<SegmentTask> {
  return new TaskThread<SegmentTask>(new URL('segment-worker.ts', import.meta.url), {})
}

/** The files of segments in a folder of this process. */
export class SegmentFiles {
  readonly #options: SegmentsOptions
  /** Files whose digest was checked: that takes a second for each gigabyte. */
  readonly #checked = new Set<string>()

  constructor(options: SegmentsOptions) {
    this.#options = options
  }

  /** Resolves with the paths of segments, whose files are there then. Rejects with UpstreamError, CatalogueError or an error of the file system. */
  async have(segments: readonly Segment[], signal: AbortSignal): Promise<string[]> {
    const paths: string[] = []
    await mkdir(this.#options.directory, { recursive: true, mode: 0o700 })
    for (const segment of segments) {
      const path = this.pathOf(segment)
      paths.push(path)
      if (this.#checked.has(path) && (await stat(path).catch(() => undefined))?.size === segment.size) continue
      if (!(await fetchCatalogue(this.#options.upstream, { catalogue: segment, path, temporary: await this.temporary() }, signal)))
        throw new CatalogueError(`the upstream does not have the contents of images ${segment.manifest}`)
      this.#checked.add(path)
    }
    return paths
  }

  /** Returns the path of a segment's file. */
  pathOf({ blob }: Segment): string {
    return join(this.#options.directory, `${hexOf(blob)}.sqlite`)
  }

  /** Resolves with a path for a file that no other process uses. Such files are removed a day after a process was killed. */
  async temporary(): Promise<string> {
    const { directory, random } = this.#options
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return join(directory, `${randomHex(random, 16)}${temporarySuffix}`)
  }

  /** Removes all files but those of these segments. Files that are open can be read on. */
  async removeOthers(segments: readonly Segment[]): Promise<void> {
    const { directory } = this.#options
    const { mtimeMs: changedMs } = await stat(directory)
    const kept = new Set(segments.map((segment) => this.pathOf(segment)))
    for (const name of await readdir(directory)) {
      const path = join(directory, name)
      if (kept.has(path)) continue
      this.#checked.delete(path)
      const modifiedMs = (await stat(path).catch(() => undefined))?.mtimeMs ?? 0
      if (!name.endsWith(temporarySuffix) || changedMs - modifiedMs > abandonedMs) await rm(path, { force: true })
    }
  }
}

/** The contents of images, as this process serves them (docs/adr/0034). */
export class Segments implements ContentsSource {
  readonly #options: SegmentsOptions
  readonly #files: SegmentFiles
  readonly #thread = segmentThread()
  /** The segments that are served. The record may name newer ones: these stay until those are here. Undefined until the first are. */
  #paths: readonly string[] | undefined
  /** What each of these segments has of its repos, by repo. */
  #states: readonly ReadonlyMap<Uid, RepoState>[] = []

  constructor(options: SegmentsOptions) {
    this.#options = options
    this.#files = new SegmentFiles(options)
  }

  /**
   * Serves the segments that the record names, and each later one. A failure is logged and tried again; the old segments stay. Returns a function that ends this
   * and closes the files: call it when no request is served any more. `onTried` is called after each attempt to load them.
   */
  serve(onTried?: () => void): () => Promise<void> {
    const stopping = new AbortController()
    const follower = {
      key: contentsKey,
      catchUp: (signal: AbortSignal) => this.#catchUp(signal),
      failure: 'the contents of images cannot be loaded and are tried again',
      onTried,
    }
    const following = followKey(this.#options, follower, stopping.signal)
    return async () => {
      stopping.abort(new Error('the contents are closed'))
      await following
      await this.#thread.close()
    }
  }

  get edition(): unknown {
    return this.#paths
  }

  editionOf(repo: Uid): string {
    if (this.#paths === undefined) return 'loading'
    let [images, times, members] = [0, 0, 0]
    for (const states of this.#states) {
      const state = states.get(repo)
      images += state?.images ?? 0
      times += state?.times ?? 0
      members += state?.members ?? 0
    }
    return `${images} ${times} ${members}`
  }

  async imagesAmong(images: readonly ImageName[], turn: TaskTurn): Promise<readonly ReadImage[]> {
    if (images.length === 0) return []
    return (await this.#ask((paths) => ({ kind: 'images', paths, images }), turn)) as readonly ReadImage[] // the answer to this task
  }

  async packages(query: PackageQuery, turn: TaskTurn): Promise<PackagePage> {
    if (query.images.length === 0) return { packages: [], total: 0 }
    return (await this.#ask((paths) => ({ kind: 'packages', paths, query }), turn)) as PackagePage // the answer to this task
  }

  async packageImages(query: PackageImageQuery, turn: TaskTurn): Promise<PackageImagePage> {
    return (await this.#ask((paths) => ({ kind: 'packageImages', paths, query }), turn)) as PackageImagePage // the answer to this task
  }

  async reposWith(digest: Digest, turn: TaskTurn): Promise<readonly Uid[]> {
    return (await this.#ask((paths) => ({ kind: 'reposWith', paths, digest }), turn)) as readonly Uid[] // the answer to this task
  }

  namesOf(question: Pick<MatchQuestion, 'packages' | 'distribution'>, turn: TaskTurn): Promise<readonly string[]> {
    return this.#thread.ask({ kind: 'namesOf', question }, turn) as Promise<readonly string[]> // the answer to this task
  }

  match(question: MatchQuestion, turn: TaskTurn): Promise<MatchAnswer> {
    return this.#thread.ask({ kind: 'match', question }, turn) as Promise<MatchAnswer> // the answer to this task
  }

  /** Asks about the segments that are served. If others are served by the time of the task's turn, its files may be gone: then it is asked again. */
  async #ask(taskOf: (paths: readonly string[]) => SegmentTask, turn: TaskTurn): Promise<unknown> {
    for (;;) {
      const paths = this.#served()
      try {
        return await this.#thread.ask(taskOf(paths), turn)
      } catch (error) {
        if (paths === this.#paths || turn.signal.aborted) throw error
      }
    }
  }

  async #statesIn(paths: readonly string[], path: string): Promise<ReadonlyMap<Uid, RepoState>> {
    const states = (await this.#thread.ask({ kind: 'states', paths, path })) as readonly RepoState[] // the answer to this task
    return new Map(states.map((state) => [state.repo, state]))
  }

  #served(): readonly string[] {
    if (this.#paths !== undefined) return this.#paths
    if ((storedContents(this.#options.cache.tables).record?.segments ?? []).length === 0) return []
    throw new DomainError(14, 'the contents of images are being loaded; try again', { reason: 'CATALOGUE_LOADING', details: { retryAfterMs: 1_000 } })
  }

  async #catchUp(signal: AbortSignal): Promise<void> {
    const segments = storedContents(this.#options.cache.tables).record?.segments ?? []
    const paths = await this.#files.have(segments, signal)
    const known = new Map(this.#paths?.map((path, at) => [path, this.#states[at]]))
    // Opens the files: a damaged one is not served. Without files before and now, no thread starts.
    if (paths.length + (this.#paths ?? []).length > 0) await this.#thread.ask({ kind: 'images', paths, images: [] })
    const states = await Promise.all(paths.map(async (path) => known.get(path) ?? this.#statesIn(paths, path)))
    this.#paths = paths
    this.#states = states
    await this.#files.removeOthers(segments)
  }
}
