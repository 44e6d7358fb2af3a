import type { HttpDraft } from '../requests/http-draft.ts'
import type { Random } from '../random.ts'

/** A change of an HTTP request after it was encoded: a row of a table. Changes the draft in place. */
export interface HttpMutation {
  readonly name: string
  readonly apply: (draft: HttpDraft, random: Random) => void
  /** True if it only makes sense for a request with a body. */
  readonly needsBody?: true
}
