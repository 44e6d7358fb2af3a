import type { Uid } from '../../base/uid.ts'
import type { Authority } from '../grants.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { PlatformObject } from '../platform-object.ts'
import type { Desired } from './desired.ts'

/** The records that an object's references name, or the first reference that names no record. */
export type ResolvedReferences =
  | { readonly found: true; readonly parent: Uid | '/'; readonly identity?: Uid; readonly role?: Uid }
  | { readonly found: false; readonly field: string; readonly meant: string }

/** The facts about a record that decide about its ownership. */
export interface RecordFacts {
  readonly uid: Uid
  readonly parent: Uid | '/'
  /** Name of the owner; empty if the API owns the record. */
  readonly managedBy: string
  readonly etag: string
}

/** Returns the facts of an existing record. */
export function recordFacts(record: CachedRecord): RecordFacts {
  return { uid: record.uid, parent: record.parent, managedBy: record.managedBy, etag: record.etag }
}

/** Whether the namespace or CRD of an object is being deleted. Read from the API server, and only for objects that are being deleted. */
export interface DeletionContext {
  readonly namespaceGoes: boolean
  readonly crdGoes: boolean
}

/** All facts that decide what to do for one object, as of one moment. */
export interface ObjectFacts {
  readonly object: PlatformObject
  readonly managedBy: string
  /** The record that names this object as its owner. */
  readonly own: RecordFacts | undefined
  /** The uid in the object's annotation, and the record with this uid if it is in the group that the object names. */
  readonly carried: { readonly uid: string; readonly record: RecordFacts | undefined } | undefined
  readonly references: ResolvedReferences
  readonly authority: Authority
  /** Capabilities that the desired record would confer in its group, although the namespace may not confer them there. */
  readonly exceeding: readonly string[]
  /**
   * Capabilities that the current record confers or shows, although the namespace may not. Empty for kinds whose records are kept in that
   * case.
   */
  readonly exceedingNow: readonly string[]
  /** What happens to a record with `exceedingNow`. */
  readonly onExcess: ObjectKind['onExcess']
  /** An existing record with the same unique part in the group: its name, or its identity and role. */
  readonly existingByName: RecordFacts | undefined
  /** Another, older object that requests the same record, which does not exist yet: `<namespace>/<name>`. */
  readonly conflictingObject: string | undefined
  readonly desired: Desired | { readonly invalid: string }
  /** Undefined if the object is not being deleted. */
  readonly surroundings: DeletionContext | undefined
}
