import type { Uid } from '../../core/uid.ts'
import type { Write } from '../../store/store.ts'
import type { Services } from '../services.ts'

/** Bytes that are to be removed from the upstream: their record went in the transaction that wrote the note. */
export const discardPrefix = 'x/discard/'

const noteTimeoutMs = 5_000

/** What bytes were recorded as. */
export type ContentSort = 'manifest' | 'blob'

/** The note of a repo's bytes. `digest` is the one under which the upstream has them; `record` is what was recorded of them, where that may have to come back. */
export function discardNote(repo: string, sort: ContentSort, bytes: { digest: string; record?: Uint8Array }): Write {
  return { kind: 'put', key: `${discardPrefix}${repo}/${sort}/${bytes.digest}`, value: bytes.record ?? new Uint8Array() }
}

/**
 * Leaves a manifest's bytes, put upstream by somebody who could not record them, to the next collection: that removes them unless they are held by then, be it by
 * another push of the same. Only logs where that fails too.
 */
export async function discardUnrecorded(services: Services, { repo, digest }: { repo: Uid; digest: string }): Promise<void> {
  const note = discardNote(repo, 'manifest', { digest })
  try {
    // Whoever gave up already is no reason to leave them. A note that is there may have a record.
    await services.store.transact({ guards: [{ kind: 'absent', key: note.key }], writes: [note] }, AbortSignal.timeout(noteTimeoutMs))
  } catch (error) {
    services.log.warn('a manifest that was not recorded is left upstream', { repo, digest, error: String(error) })
  }
}
