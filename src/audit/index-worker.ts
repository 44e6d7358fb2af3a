import { setImmediate as turn } from 'node:timers/promises'
import { workerData } from 'node:worker_threads'
import { gunzipSync } from 'node:zlib'
import type { AuditPage, AuditQuery } from '../engine/audit-query.ts'
import { answerTasks } from '../base/task-thread.ts'
import { AuditDatabase } from './audit-database.ts'

/** Events that are added in one turn: questions wait for no more than these. */
const addedAtOnce = 200
/** The largest content of a segment, in bytes. */
const maxContentBytes = 512 * 1024 * 1024

/** What the thread is asked to do. */
export type IndexTask =
  /** Adds JSON lines. With `segment` they are its whole content, compressed with gzip. */
  | { readonly kind: 'insert'; readonly bytes: Uint8Array; readonly segment?: string }
  /** Notes segments whose events are there. */
  | { readonly kind: 'note'; readonly segments: readonly string[] }
  | { readonly kind: 'read'; readonly query: AuditQuery }
  | { readonly kind: 'segments' }
  /** Removes old events, and forgets segments with a name before `before`. */
  | { readonly kind: 'expire'; readonly timeMs: number; readonly maxBytes: number; readonly before: string }

const { path, isDurable } = workerData as { readonly path: string; readonly isDurable: boolean } // of IndexThread
const database = AuditDatabase.open(path, isDurable)

async function insert(bytes: Uint8Array): Promise<void> {
  const content = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let lines: string[] = []
  for (let at = 0; at < content.length;) {
    const end = content.indexOf(10, at)
    lines.push(content.toString('utf8', at, end < 0 ? content.length : end))
    at = end < 0 ? content.length : end + 1
    if (lines.length < addedAtOnce) continue
    database.insert(lines)
    lines = []
    await turn()
  }
  if (lines.length > 0) database.insert(lines)
}

async function work(task: IndexTask): Promise<AuditPage | readonly string[] | undefined> {
  switch (task.kind) {
    case 'insert':
      await insert(task.segment === undefined ? task.bytes : gunzipSync(task.bytes, { maxOutputLength: maxContentBytes }))
      if (task.segment !== undefined) database.addSegment(task.segment)
      return undefined
    case 'note':
      for (const segment of task.segments) database.addSegment(segment)
      return undefined
    case 'read':
      return database.read(task.query)
    case 'segments':
      return database.segments()
    case 'expire':
      while (database.expire(task)) await turn()
      database.forgetSegments(task.before)
      return undefined
  }
}

answerTasks(work, () => database.close())
