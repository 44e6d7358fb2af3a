import { errorText } from '../../base/error-text.ts'
import type { Uid } from '../../base/uid.ts'
import type { Write } from '../../store/store.ts'
import type { Services } from '../../engine/services.ts'

/** Key prefix of notes for bytes to remove from the upstream. The transaction that removed their record wrote the note. */
export const pendingDeletePrefix = 'x/discard/'

const noteTimeoutMs = 5_000

/** Whether bytes were recorded as a manifest or as a blob. */
export type ContentSort = 'manifest' | 'blob'

/**
 * Returns the write of a note for a repo's bytes. `digest` is the digest under which the upstream stores them. `record` is their removed
 * record, if it may have to be written again.
 */
export function pendingDeleteNote(repo: string, sort: ContentSort, bytes: { digest: string; record?: Uint8Array }): Write {
  return { kind: 'put', key: `${pendingDeletePrefix}${repo}/${sort}/${bytes.digest}`, value: bytes.record ?? new Uint8Array() }
}

/**
 * Schedules bytes without a record for removal by the next collection, even if the caller aborted. The collection keeps them if a record
 * names them by then. If this fails, only logs it.
 */
export async function scheduleDelete(services: Services, { repo, sort, digest }: { repo: Uid; sort: ContentSort; digest: string }): Promise<void> {
  const note = pendingDeleteNote(repo, sort, { digest })
  try {
    // An existing note may contain a record, so it is not overwritten.
    await services.store.transact({ guards: [{ kind: 'absent', key: note.key }], writes: [note] }, AbortSignal.timeout(noteTimeoutMs))
  } catch (error) {
    services.log.warn(`could not schedule the removal of an unrecorded ${sort} from the upstream`, { repo, digest, error: errorText(error) })
  }
}
