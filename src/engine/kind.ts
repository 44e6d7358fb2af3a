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

/** A unique key, which at most one record can have. `taken` makes the error for a key that another record has. */
export interface Claim {
  readonly key: string
  taken(): DomainError
}

/**
 * A record to which this record refers. `required`: it must exist while this record is written. `built_in`: it always exists. `derived`: it may be created
 * later under the same uid, such as a person who has not registered yet.
 */
export interface Reference {
  /** Name of the relation in reverse keys: `role`, `identity`. */
  readonly relation: string
  readonly kind: string
  readonly uid: string
  readonly presence: 'required' | 'built_in' | 'derived'
}

/** Guards and writes that a rule adds to a mutation's transaction. */
export interface Extra {
  readonly guards?: readonly Guard[]
  readonly writes?: readonly Write[]
}

/** The data and helpers that rules may use while they plan a mutation. Planning never waits, so all data is of one commit. */
export interface Planning {
  readonly services: Services
  readonly tables: RecordTables
  readonly caller: Caller
  readonly permissions: EffectivePermissions
  readonly ownership: Ownership
  readonly nowMs: number
}

/** The current data on which a rendered record may depend, in addition to other records. */
export interface RenderFacts {
  readonly tables: RecordTables
  readonly grants: GrantsIndex
  readonly settings: ResourceSettings
  readonly nowMs: number
}

/** Gives `render` access to the records that it joins. It notes each access, because a rendered record is reused until one of them changes. */
export interface Records extends Pick<RecordTables, 'get' | 'entry'> {
  /** Returns the answer to a question about several records. It is asked again each time the rendered record is read, so it must be cheap. */
  ask(question: (facts: RenderFacts) => boolean): boolean
}

/** A mutation while it is planned. Rules may change `record`, which is then stored. */
export interface MutationDraft<R extends Resource> {
  readonly uid: Uid
  readonly parent: Uid | '/'
  readonly record: R
  /** The new, kept and removed secrets of the record. `record` does not contain them. */
  readonly secrets: Secrets
  /** The field mask of an update, in snake or camel case; absent for a create. */
  readonly paths?: readonly string[]
}

/**
 * The definition of one kind: its indexes, its references, and its own rules for create, update and delete. Rules throw DomainError. To add a kind, write one
 * such object and one entry in kinds.ts.
 */
export interface Kind<R extends Resource = Resource> {
  readonly index: KindIndex
  readonly desc: DescMessage
  /** True if names are unique among the children of one parent (docs/spec/resources.md#unique-names). */
  readonly uniqueName: boolean
  /** Returns unique keys in addition to the name. */
  claims?(uid: Uid, record: R): readonly Claim[]
  references?(record: R): readonly Reference[]
  /** Checks a new record and fills in its missing values. */
  create?(planning: Planning, draft: MutationDraft<R>): Extra | undefined
  /** Checks a changed record and fills in its missing values. */
  update?(planning: Planning, draft: MutationDraft<R>, current: R): Extra | undefined
  /** Checks whether the record may be removed. Returns the guards and writes to add, such as the removal of related data. */
  remove?(planning: Planning, record: CachedRecord): Extra | undefined
  /** The parts of a list request beyond exact filters: the proto names of their fields, and a function that reads them. */
  readonly listFilters?: { readonly fields: ReadonlySet<string>; read(request: Message): ListMeaning }
  /** Returns a new message for readers if it differs from the stored record: with joined data, and without secrets. */
  render?(records: Records, record: R): R
  /**
   * Returns the identities whose grants decide how the record is rendered, or whether it may change. Their grants are computed before, in time slices if there
   * are many role bindings.
   */
  asksAbout?(tables: RecordTables, record: CachedRecord): readonly Uid[]
  /** Returns a new message for create and update events, if they contain less than the rendered record. */
  eventPayload?(shown: R): R
  /** Returns a new message for the answers of Get and of writes, if it differs from the one in lists or depends on the time. */
  renderAlone?(records: Records, shown: R, facts: RenderFacts): R
  /** True if the event of a deletion has no payload (docs/spec/events.md#event-bodies). */
  readonly omitDeletePayload?: true
}

/**
 * What a list request asks for beyond exact filters. `visibility` replaces the places where the caller may see records. Only a method that is authorized at
 * the place that it names may set it, and it must not exceed what is visible from there.
 */
export type ListMeaning = Pick<ListQuery, 'anyOf' | 'changedAfterMs'> & Partial<Pick<ListQuery, 'visibility'>>

/** A kind whose message type is not known to the compiler, for tables of kinds. */
export type AnyKind = Kind

/** Converts a kind to AnyKind for the table of kinds. */
export function defineKind<R extends Resource>(kind: Kind<R>): AnyKind {
  // This is safe, because every record that a kind receives was decoded as its own message type.
  return kind
}
