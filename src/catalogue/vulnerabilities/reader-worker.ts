import { workerData } from 'node:worker_threads'
import { answerTasks } from '../../base/task-thread.ts'
import type { VulnerabilityQuery } from '../../cache/lists/vulnerability-source.ts'
import { VulnerabilityReader } from './vulnerability-reader.ts'

/** What the thread is asked for. */
export type VulnerabilityTask =
  | { readonly kind: 'open' }
  | { readonly kind: 'page'; readonly query: VulnerabilityQuery }
  | { readonly kind: 'scores'; readonly names: readonly (readonly string[])[] }

const { path } = workerData as { readonly path: string } // of VulnerabilityThread
let reader: VulnerabilityReader | undefined

function work(task: VulnerabilityTask): unknown {
  // Opened by the first task, whose answer then has the error.
  reader ??= new VulnerabilityReader(path)
  if (task.kind === 'page') return reader.page(task.query)
  return task.kind === 'scores' ? reader.scores(task.names) : undefined
}

answerTasks(work, () => reader?.close())
