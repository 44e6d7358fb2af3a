import { answerTasks } from '../../base/task-thread.ts'
import type { ImageName, MatchQuestion, PackageQuery } from '../../cache/lists/contents-source.ts'
import { namesOfPackages, vulnerabilitiesOfPackages } from '../matching/match-packages.ts'
import { buildSegment, type SegmentContents } from './segment-builder.ts'
import { SegmentReader } from './segment-reader.ts'

/** What the thread is asked for. `paths` are the segments to read, newest first: the thread opens them when they change. */
export type SegmentTask =
  | { readonly kind: 'build'; readonly contents: SegmentContents }
  | { readonly kind: 'images'; readonly paths: readonly string[]; readonly images: readonly ImageName[] }
  | { readonly kind: 'packages'; readonly paths: readonly string[]; readonly query: PackageQuery }
  | { readonly kind: 'namesOf'; readonly question: Pick<MatchQuestion, 'packages' | 'distribution'> }
  | { readonly kind: 'match'; readonly question: MatchQuestion }
  | { readonly kind: 'names'; readonly paths: readonly string[] }

const reader = new SegmentReader()

function work(task: SegmentTask): unknown {
  if (task.kind === 'build') return buildSegment(task.contents)
  if (task.kind === 'namesOf') return namesOfPackages(task.question)
  if (task.kind === 'match') return vulnerabilitiesOfPackages(task.question)
  reader.use(task.paths)
  if (task.kind === 'images') return reader.imagesAmong(task.images)
  if (task.kind === 'packages') return reader.packages(task.query)
  return reader.names()
}

answerTasks(work, () => reader.close())
