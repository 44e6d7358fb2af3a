import type { HttpDraft } from './http-draft.ts'
import type { ErrorForm } from '../judge-http.ts'
import type { Corpus, Field } from '../protocol.ts'
import type { Random } from '../random.ts'

/** A request outside the API methods: a row of a table. Its functions create requests that the server accepts if possible. */
export interface OtherRequest {
  readonly name: string
  /** The route that serves it, such as `GET /oauth`; absent for ports without a table of routes. */
  readonly route?: string
  readonly port: HttpDraft['port']
  readonly verb: string
  readonly make: (corpus: Corpus, random: Random) => OtherParts
  /** The possible formats of its errors. */
  readonly forms: readonly ErrorForm[]
  /** True if it may change the store although its verb is a read. */
  readonly mutating?: true
}

/** The parts of a request before encoding: fields and JSON can still be changed. */
export interface OtherParts {
  readonly path: string
  readonly query?: Field[]
  readonly form?: Field[]
  readonly json?: unknown
  readonly body?: Buffer
  readonly headers?: readonly Field[]
}
