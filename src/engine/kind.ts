import type { DescMessage, Message } from '@bufbuild/protobuf'
import type { GrantsIndex } from '../authz/grants-index.ts'
import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import type { DomainError } from '../base/errors.ts'
import type { Uid } from '../base/uid.ts'
import type { ListQuery } from '../cache/lists/list.ts'
import type { KindIndex, Resource, CachedRecord } from '../cache/records/cached-record.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import type { Guard, Write } from '../store/store.ts'
import type { Secrets } from './secrets.ts'
import type { Caller, Ownership, ResourceSettings, Services } from './services.ts'

/** A key that at most one record may hold; `taken` returns the error for a second one. */
export interface Claim {
  readonly key: string
  taken(): DomainError
}

/**
 * A record that this one refers to. `required`: it must exist while this record is written. `built_in`: it always exists. `derived`: it may be created later
 * under the same uid (a person who has yet to register).
 */
export interface Reference {
  /** The prefix that the reverse keys of one relation share: `role`, `identity`. */
  readonly relation: string
  readonly kind: string
  readonly uid: string
  readonly presence: 'required' | 'built_in' | 'derived'
}

/** The guards and writes that a rule adds to a mutation's transaction. */
export interface Extra {
  readonly guards?: readonly Guard[]
  readonly writes?: readonly Write[]
}

/** What rules may read and use while they plan a mutation. Planning is synchronous: all of it uses the state of one commit. */
export interface Planning {
  readonly services: Services
  readonly tables: RecordTables
  readonly caller: Caller
  readonly permissions: EffectivePermissions
  readonly ownership: Ownership
  readonly nowMs: number
}

/** Facts beyond single records on which a rendered record may depend, as of now. */
export interface RenderFacts {
  readonly tables: RecordTables
  readonly grants: GrantsIndex
  readonly settings: ResourceSettings
  readonly nowMs: number
}

/** Source of the records that rendering joins. It notes each access: a rendered record is reused until one of them changes. */
export interface Records extends Pick<RecordTables, 'get' | 'entry'> {
  /** Answers a question about several records. Readers repeat it each time, so it must be cheap. */
  ask(question: (facts: RenderFacts) => boolean): boolean
}

/** A mutation while it is planned. Rules may change `record`; the store keeps the result. */
export interface MutationDraft<R extends Resource> {
  readonly uid: Uid
  readonly parent: Uid | '/'
  readonly record: R
  /** What happens to the record's secrets, which are not in `record`. */
  readonly secrets: Secrets
  /** The mask paths of an update, in either spelling; absent for a create. */
  readonly paths?: readonly string[]
}

/**
 * The definition of one kind: its indexes, its references, and its own rules for create, update and delete. Rules throw DomainError. To add a kind, write one
 * such object and one entry in kinds.ts.
 */
export interface Kind<R extends Resource = Resource> {
  readonly index: KindIndex
  readonly desc: DescMessage
  /** True where names are unique among the children of one parent (docs/spec/resources.md#unique-names). */
  readonly uniqueName: boolean
  /** Further unique keys. */
  claims?(uid: Uid, record: R): readonly Claim[]
  references?(record: R): readonly Reference[]
  /** Checks and completes a new record. */
  create?(planning: Planning, draft: MutationDraft<R>): Extra | undefined
  /** Checks and completes a changed record. */
  update?(planning: Planning, draft: MutationDraft<R>, current: R): Extra | undefined
  /** Checks whether the record may be removed, and returns what is removed with it. */
  remove?(planning: Planning, record: CachedRecord): Extra | undefined
  /** The parts of a list request beyond exact filters: the fields (proto names), and a function that reads them. */
  readonly listFilters?: { readonly fields: ReadonlySet<string>; read(request: Message): ListMeaning }
  /** Returns a new message for readers if it differs from the stored record: joins added, secrets left out. */
  render?(records: Records, record: R): R
  /**
   * Returns the identities whose grants decide how the record is rendered (if `render` exists) and whether it may change. These grants are computed beforehand,
   * in time slices if there are many bindings.
   */
  asksAbout?(tables: RecordTables, record: CachedRecord): readonly Uid[]
  /** Returns a new message for create and update events, if these carry less than the rendered record. */
  eventPayload?(shown: R): R
  /** Returns a new message for answers of Get and of writes, if it differs from the one in lists and depends on the time. */
  renderAlone?(records: Records, shown: R, facts: RenderFacts): R
  /** True if the event of a deletion has no payload (docs/spec/events.md#event-bodies). */
  readonly omitDeletePayload?: true
}

/**
 * The meaning of a list request. `visibility` replaces the caller's reach. Only a method that is authorized at the place it names may set it, and it must never
 * exceed what is visible from there.
 */
export type ListMeaning = Pick<ListQuery, 'anyOf' | 'changedAfterMs'> & Partial<Pick<ListQuery, 'visibility'>>

/** A kind without its own record type, for tables of kinds. */
export type AnyKind = Kind

/** Returns the kind without its record type, for the table of kinds. */
export function defineKind<R extends Resource>(kind: Kind<R>): AnyKind {
  // Every record and draft handed to a kind is decoded with its own descriptor.
  return kind
}
