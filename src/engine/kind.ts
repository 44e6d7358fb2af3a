import type { DescMessage, Message } from '@bufbuild/protobuf'
import type { GrantsIndex } from '../authz/grants-index.ts'
import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import type { DomainError } from '../base/errors.ts'
import type { Uid } from '../base/uid.ts'
import type { ListQuery } from '../cache/lists/list.ts'
import type { KindIndex, Resource, CachedRecord } from '../cache/records/cached-record.ts'
import type { Snapshot } from '../cache/snapshot.ts'
import type { Guard, Write } from '../store/store.ts'
import type { Secrets } from './secrets.ts'
import type { Caller, Ownership, ResourceSettings, Services } from './services.ts'

/** A key that at most one record may hold; `taken` is what a second one is told. */
export interface Claim {
  readonly key: string
  taken(): DomainError
}

/**
 * A record that this one points to. While this one is written it must be there (`required`), is always there (`built_in`), or may come to be there later under
 * the very same uid (`derived`: a person who has yet to register).
 */
export interface Reference {
  /** Reverse keys of one relation start alike: `role`, `identity`. */
  readonly relation: string
  readonly kind: string
  readonly uid: string
  readonly presence: 'required' | 'built_in' | 'derived'
}

/** What a rule adds to the transaction of a mutation. */
export interface Extra {
  readonly guards?: readonly Guard[]
  readonly writes?: readonly Write[]
}

/** What rules may look at and use while they plan a mutation. Planning is synchronous: all of it sees one commit's state. */
export interface Planning {
  readonly services: Services
  readonly snapshot: Snapshot
  readonly caller: Caller
  readonly reach: EffectivePermissions
  readonly ownership: Ownership
  readonly nowMs: number
}

/** What showing a record may depend on besides single records, as of now. */
export interface RenderFacts {
  readonly snapshot: Snapshot
  readonly grants: GrantsIndex
  readonly settings: ResourceSettings
  readonly nowMs: number
}

/** Where rendering finds what it joins in. What it looks at is noted: a rendered record is shown again while all of that is as it was. */
export interface Records extends Pick<Snapshot, 'get' | 'entry'> {
  /** Answers a question about more than one record. Readers ask it again each time, so it must be cheap. */
  ask(question: (facts: RenderFacts) => boolean): boolean
}

/** A mutation under planning. `record` may be changed by the rules: what they leave in it is stored. */
export interface MutationDraft<R extends Resource> {
  readonly uid: Uid
  readonly parent: Uid | '/'
  readonly record: R
  /** What becomes of its secrets, which are not in `record`. */
  readonly secrets: Secrets
  /** The mask paths of an update, in either spelling; absent for a create. */
  readonly paths?: readonly string[]
}

/**
 * One kind: what it is found by, what it needs, how it is created, changed and deleted beyond what holds for all kinds. Rules throw DomainError. Adding a
 * kind is one such object and one row in kinds.ts.
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
  /** Checks whether the record may go, and what goes with it. */
  remove?(planning: Planning, row: CachedRecord): Extra | undefined
  /** What a list request asks for beyond exact filters: the fields (proto names) that mean it, and what they mean. */
  readonly listFilters?: { readonly fields: ReadonlySet<string>; read(request: Message): ListMeaning }
  /** What is shown for a stored record, where that is more than the record: joins, secrets left out. Returns a new message. */
  render?(records: Records, record: R): R
  /**
   * The identities whose grants showing a record (where `render` is there) and changing it ask about. They are found out before, in slices where their bindings are many.
   */
  asksAbout?(snapshot: Snapshot, row: CachedRecord): readonly Uid[]
  /** What events of creations and changes carry of a record that is shown so, where that is less. Returns a new message. */
  told?(shown: R): R
  /** What is shown of a record by itself, in answers of Get and of writes, where that is more than in lists and depends on the time. Returns a new message. */
  renderAlone?(records: Records, shown: R, facts: RenderFacts): R
  /** True where the event of a deletion carries nothing (docs/spec/events.md#event-bodies). */
  readonly omitDeletePayload?: true
}

/**
 * What a list request means. `visibility` stands in place of the caller's reach: only for a method that is authorized at the place which it names, and whose
 * meaning never goes beyond what may be seen from there.
 */
export type ListMeaning = Pick<ListQuery, 'anyOf' | 'changedAfterMs'> & Partial<Pick<ListQuery, 'visibility'>>

/** The kind with its own record type forgotten, for tables of kinds. */
export type AnyKind = Kind

/** A kind's record type is that of its descriptor; the table of kinds needs to forget it. */
export function defineKind<R extends Resource>(kind: Kind<R>): AnyKind {
  // Every row and draft handed to a kind is decoded with its own descriptor.
  return kind
}
