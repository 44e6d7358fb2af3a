import type { JsonObject } from '@bufbuild/protobuf'
import type { Things } from '../world.ts'

/** The codes for a reference to a record in each place: own, ancestor, sibling, other, missing in own, missing anywhere. */
export type Codes = readonly [own: number, ancestor: number, sibling: number, other: number, missingInOwn: number, missing: number]

/** A field of a request that names a second record besides its subject. */
export interface ReferenceRow {
  /** Fields of the schema, `<message>.<field>`, that this row tries. */
  readonly field: string
  readonly method: string
  /** The kind of record in the field, of which each place has one. */
  readonly names: keyof Things
  /** Returns a request about a record in the caller's subgroup, `own`, that names `value`. */
  readonly request: (value: string, own: Things) => JsonObject
  /** The codes for an owner of the root group, and for one of the subgroup alone. */
  readonly root: Codes
  readonly subgroup: Codes
  /** Returns a missing value, if the field has no uid. */
  readonly missing?: () => string
  readonly because: string
}
