import type { Digest } from '../../base/digest.ts'
import { answerTasks } from '../../base/task-thread.ts'
import type { ImageName, MatchQuestion, PackageImageQuery, PackageQuery } from '../../cache/lists/contents-source.ts'
import type { ImagePackage } from '../package.ts'
import { namesOfPackages, vulnerabilitiesOfPackages } from '../matching/match-packages.ts'
import { buildSegment, type SegmentContents, type SegmentSize, type StoredImage } from './segment-builder.ts'
import { SegmentReader } from './segment-reader.ts'

/** What the thread is asked for. `paths` are the segments to read, newest first: the thread opens them when they change. */
export type SegmentTask =
  /** Keeps packages of an image for the next segment: they come in parts, so that no turn of the event loop is long. */
  | { readonly kind: 'hold'; readonly part: StoredImage }
  /** Builds a segment of the images that are kept: so many packages. */
  | { readonly kind: 'build'; readonly contents: Omit<SegmentContents, 'images'>; readonly packages: number }
  | { readonly kind: 'images'; readonly paths: readonly string[]; readonly images: readonly ImageName[] }
  | { readonly kind: 'packages'; readonly paths: readonly string[]; readonly query: PackageQuery }
  | { readonly kind: 'packageImages'; readonly paths: readonly string[]; readonly query: PackageImageQuery }
  | { readonly kind: 'reposWith'; readonly paths: readonly string[]; readonly digest: Digest }
  | { readonly kind: 'namesOf'; readonly question: Pick<MatchQuestion, 'packages' | 'distribution'> }
  | { readonly kind: 'match'; readonly question: MatchQuestion }
  | { readonly kind: 'states'; readonly paths: readonly string[]; readonly path: string }
  | { readonly kind: 'names'; readonly paths: readonly string[] }

const reader = new SegmentReader()
let held: (StoredImage & { readonly packages: ImagePackage[] })[] = []

function hold(part: StoredImage): void {
  const last = held.at(-1)
  if (last?.repo === part.repo && last.digest === part.digest) last.packages.push(...part.packages)
  else held.push({ ...part, packages: [...part.packages] })
}

function build({ contents, packages }: SegmentTask & { readonly kind: 'build' }): SegmentSize {
  const images = held
  held = []
  // A thread that ended was started again without what it kept.
  if (images.reduce((sum, image) => sum + image.packages.length, 0) !== packages) throw new Error('packages of the segment were lost: it is built again')
  return buildSegment({ ...contents, images })
}

function work(task: SegmentTask): unknown {
  if (task.kind === 'hold') return hold(task.part)
  if (task.kind === 'build') return build(task)
  if (task.kind === 'namesOf') return namesOfPackages(task.question)
  if (task.kind === 'match') return vulnerabilitiesOfPackages(task.question)
  reader.use(task.paths)
  if (task.kind === 'images') return reader.imagesAmong(task.images)
  if (task.kind === 'packages') return reader.packages(task.query)
  if (task.kind === 'packageImages') return reader.packageImages(task.query)
  if (task.kind === 'reposWith') return reader.reposWith(task.digest)
  if (task.kind === 'states') return reader.states(task.path)
  return reader.names()
}

answerTasks(work, () => reader.close())
