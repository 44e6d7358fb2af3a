import type { Uid } from '../../base/uid.ts'
import type { Authority } from '../grants.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { ObjectKind } from '../object-kinds.ts'
import type { PlatformObject } from '../platform-object.ts'
import type { Desired } from './desired.ts'

/** What an object's references stand for now, or the first that stands for nothing. */
export type ResolvedReferences =
  | { readonly found: true; readonly parent: Uid | '/'; readonly identity?: Uid; readonly role?: Uid }
  | { readonly found: false; readonly field: string; readonly meant: string }

/** A record, as far as it matters whose it is. */
export interface RecordFacts {
  readonly uid: Uid
  readonly parent: Uid | '/'
  /** Empty where the API owns it. */
  readonly managedBy: string
  readonly etag: string
}

/** The facts of a record that is there. */
export function recordFacts(record: CachedRecord): RecordFacts {
  // Records are kept under uids, and their parents are uids or the root.
  return { uid: record.uid, parent: record.parent, managedBy: record.managedBy, etag: record.etag }
}

/** What becomes of an object's surroundings: looked up at the API server itself, only for objects that are being deleted. */
export interface DeletionContext {
  readonly namespaceGoes: boolean
  readonly crdGoes: boolean
}

/** All that decides what is to be done for one object, as of one moment. */
export interface ObjectFacts {
  readonly object: PlatformObject
  readonly managedBy: string
  /** The record that names this object as its owner. */
  readonly own: RecordFacts | undefined
  /** The uid that the object carries in its annotation, and the record there is under it where the object says that it lies. */
  readonly carried: { readonly uid: string; readonly record: RecordFacts | undefined } | undefined
  readonly references: ResolvedReferences
  readonly authority: Authority
  /** Capabilities that the record gives or would give where it is or would be, and that the namespace may not give there. */
  readonly exceeding: readonly string[]
  /** Capabilities that the record gives or shows as it is, and the namespace may not; empty for kinds that keep such records. */
  readonly exceedingNow: readonly string[]
  /** What happens to a record with `exceedingNow`. */
  readonly onExcess: ObjectKind['onExcess']
  /** The record that holds what must be unique (name, or identity and role) at that place. */
  readonly existingByName: RecordFacts | undefined
  /** Another object that asks for the same record, which is not there yet, and was there earlier: `<namespace>/<name>`. */
  readonly conflictingObject: string | undefined
  readonly desired: Desired | { readonly invalid: string }
  /** Undefined where the object is not being deleted. */
  readonly surroundings: DeletionContext | undefined
}
