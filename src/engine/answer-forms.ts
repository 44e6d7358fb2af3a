import type { DescField } from '@bufbuild/protobuf'
import type { Resource } from '../cache/records/cached-record.ts'

/** What is shown of one record: its message and, once a transport made them, its JSON text and its protobuf bytes. Kept while the row stays decoded. */
export interface Shown {
  readonly message: Resource
  json?: string
  binary?: Uint8Array
}

/** What a list's answer holds in one of its fields: so what was made of the items before is joined and not made again. */
export interface ShownPage {
  readonly field: DescField
  readonly items: readonly Shown[]
  /** In place of the items: what the call's transport makes of them, joined, in pieces. */
  readonly joined?: readonly Uint8Array[]
}
