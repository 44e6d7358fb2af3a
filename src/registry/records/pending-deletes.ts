import { errorText } from '../../base/error-text.ts'
import type { Uid } from '../../base/uid.ts'
import type { Write } from '../../store/store.ts'
import type { Services } from '../../engine/services.ts'

/** Bytes that are to be removed from the upstream: their record went in the transaction that wrote the note. */
export const pendingDeletePrefix = 'x/discard/'

const noteTimeoutMs = 5_000

/** What bytes were recorded as. */
export type ContentSort = 'manifest' | 'blob'

/** The note of a repo's bytes. `digest` is the one under which the upstream has them; `record` is what was recorded of them, where that may have to come back. */
export function pendingDeleteNote(repo: string, sort: ContentSort, bytes: { digest: string; record?: Uint8Array }): Write {
  return { kind: 'put', key: `${pendingDeletePrefix}${repo}/${sort}/${bytes.digest}`, value: bytes.record ?? new Uint8Array() }
}

/**
 * Schedules unrecorded bytes for the next collection, also if the caller aborted. The collection removes them unless a record holds them by then. Only logs
 * where that fails.
 */
export async function scheduleDelete(services: Services, { repo, sort, digest }: { repo: Uid; sort: ContentSort; digest: string }): Promise<void> {
  const note = pendingDeleteNote(repo, sort, { digest })
  try {
    // A note that is there may have a record.
    await services.store.transact({ guards: [{ kind: 'absent', key: note.key }], writes: [note] }, AbortSignal.timeout(noteTimeoutMs))
  } catch (error) {
    services.log.warn(`a ${sort} without a record is left upstream`, { repo, digest, error: errorText(error) })
  }
}
