import type { JsonObject } from '@bufbuild/protobuf'
import type { Things } from '../world.ts'

/** A method that needs capabilities at a place in the request (docs/spec/conventions.md#method-scopes). */
export interface ScopedRow {
  /** The capabilities, all needed there, by dotted name (docs/spec/conventions.md#method-scopes). */
  readonly needs: readonly string[]
  /** The kind of record in the request. */
  readonly about: keyof Things
  /** Returns a request about `uid` that succeeds if permitted. `things` are the records of the same place. */
  readonly request: (uid: string, things: Things) => JsonObject
  /** Where the caller must hold the rights that the request grants (`grantedRole`), if it grants any (docs/spec/iam.md#no-escalation). */
  readonly confers?: 'there' | 'at the root'
  /** Callers other than operators are refused, even with the needed capabilities. */
  readonly operators?: true
  /** Succeeds where a record is missing or hidden, and changes nothing. */
  readonly forgives?: true
  /** A record that is not a root is code 3 where the request would otherwise succeed. */
  readonly onlyRoots?: true
  /** Number of calls that an organisation may have at once, if it is limited. */
  readonly atOnce?: number
}

/** Returns a request about a record of a place. */
export type ScopedRequest = ScopedRow['request']

/** Returns a row for a method that needs these capabilities, separated by blanks. */
export function row(needs: string, about: keyof Things, request: ScopedRequest = (uid) => ({ uid })): ScopedRow {
  return { needs: needs.split(' '), about, request }
}

/** Returns an update of a description, or of another field. */
export function changed(member: string, change: JsonObject = { description: 'changed' }): ScopedRequest {
  return (uid) => ({ [member]: { uid, ...change } })
}

/** Returns a create of a record in a field. */
export function below(member: string, child: JsonObject): ScopedRequest {
  return (parent) => ({ parent, [member]: child })
}

/** Returns the row of a request that also grants rights. */
export function conferring(what: ScopedRow, confers: ScopedRow['confers'] = 'there'): ScopedRow {
  return { ...what, confers: confers ?? 'there' }
}

/** Returns the row of a method for operators, about root groups. */
export function ofOperators(what: ScopedRow): ScopedRow {
  return { ...what, operators: true, onlyRoots: true }
}

/** Returns the row of a method that succeeds without a record. */
export function forgiving(what: ScopedRow): ScopedRow {
  return { ...what, forgives: true }
}
