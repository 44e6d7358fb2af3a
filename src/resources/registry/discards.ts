import type { Write } from '../../store/store.ts'

/** Bytes that are to be removed from the upstream: their record went in the transaction that wrote the note. */
export const discardPrefix = 'x/discard/'

/** What bytes were recorded as. */
export type ContentSort = 'manifest' | 'blob'

/** The note of a repo's bytes. `digest` is the one under which the upstream has them; `record` is what was recorded of them, where that may have to come back. */
export function discardNote(repo: string, sort: ContentSort, bytes: { digest: string; record?: Uint8Array }): Write {
  return { kind: 'put', key: `${discardPrefix}${repo}/${sort}/${bytes.digest}`, value: bytes.record ?? new Uint8Array() }
}
