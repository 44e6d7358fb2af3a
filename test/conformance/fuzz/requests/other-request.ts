import type { HttpDraft } from './http-draft.ts'
import type { ErrorForm } from '../judge-http.ts'
import type { Corpus, Field } from '../protocol.ts'
import type { Random } from '../random.ts'

/** A request outside the methods of the schema: a row of a table. Its functions make requests that the server accepts if possible. */
export interface OtherRequest {
  readonly name: string
  /** The route that serves it, `GET /oauth`; absent at the ports that have no table of routes. */
  readonly route?: string
  readonly port: HttpDraft['port']
  readonly verb: string
  readonly make: (corpus: Corpus, random: Random) => OtherParts
  /** How its errors look, any of them. */
  readonly forms: readonly ErrorForm[]
  /** True where it may change what is stored though its verb does not say so. */
  readonly mutating?: true
}

/** A request before it is written down: fields and JSON can still be changed. */
export interface OtherParts {
  readonly path: string
  readonly query?: Field[]
  readonly form?: Field[]
  readonly json?: unknown
  readonly body?: Buffer
  readonly headers?: readonly Field[]
}
