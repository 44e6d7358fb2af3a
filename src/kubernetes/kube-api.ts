/** A type of objects at the API server. */
export interface ObjectType {
  /** API group; empty for the core group. */
  readonly group: string
  readonly version: string
  readonly kind: string
  /** As it stands in paths: lower case, plural. */
  readonly plural: string
  readonly namespaced: boolean
}

/** What objects have in common. Times are RFC 3339 text. */
export interface ObjectMeta {
  readonly name: string
  /** Absent for objects of the cluster. */
  readonly namespace?: string
  readonly uid: string
  readonly resourceVersion: string
  /** Grows with every change of the spec. */
  readonly generation?: number
  readonly creationTimestamp?: string
  readonly deletionTimestamp?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
  readonly finalizers?: readonly string[]
  readonly ownerReferences?: readonly { readonly apiVersion: string; readonly kind: string; readonly name: string; readonly uid: string }[]
}

/** An object as the API server answers it. What it holds beside its metadata depends on its type and has been checked by nobody but the API server. */
export interface KubeObject {
  readonly metadata: ObjectMeta
  readonly spec?: unknown
  readonly status?: unknown
  readonly [field: string]: unknown
}

/** What an object is called. */
export interface ObjectRef {
  /** Absent for objects of the cluster. */
  readonly namespace?: string
  readonly name: string
}

/** What of a type is meant. */
export interface Selection {
  /** All namespaces where absent. */
  readonly namespace?: string
  readonly labelSelector?: string
}

/** A part of a list, all parts as of one resource version. */
export interface ListPage {
  readonly items: readonly KubeObject[]
  readonly resourceVersion: string
  /** Absent on the last part. */
  readonly continueToken?: string
}

/** What a watch tells. A bookmark says only how far it has come. */
export type WatchEvent =
  { readonly type: 'added' | 'modified' | 'deleted'; readonly object: KubeObject } | { readonly type: 'bookmark'; readonly resourceVersion: string }

/**
 * How a call failed:
 * - `not_found`: no such object, or no such type (its CRD is not there)
 * - `conflict`: the object is not as the caller said it is (resource version, uid), or another manager owns a field
 * - `already_exists`
 * - `invalid`: the API server refuses the object as it is; trying again does not help
 * - `forbidden`: not allowed, or refused by an admission policy
 * - `unauthorized`: the credential is not, or no longer, accepted
 * - `expired`: the resource version or continue token is too old: list anew
 * - `throttled`: too many requests; `retryAfterMs` says when to come again
 * - `unavailable`: no answer, or one of 5xx; whether a change was made is not known
 */
export type KubeFault = 'not_found' | 'conflict' | 'already_exists' | 'invalid' | 'forbidden' | 'unauthorized' | 'expired' | 'throttled' | 'unavailable'

/** A failed call. The message is the API server's own where it answered. */
export class KubeError extends Error {
  override readonly name = 'KubeError'
  readonly fault: KubeFault
  readonly retryAfterMs: number | undefined

  constructor(fault: KubeFault, message: string, options: { readonly cause?: unknown; readonly retryAfterMs?: number } = {}) {
    super(message, { cause: options.cause })
    this.fault = fault
    this.retryAfterMs = options.retryAfterMs
  }
}

/** An object to send: the API server, not the caller, says what is missing or wrong in it. */
export type ObjectDraft = Omit<KubeObject, 'metadata'> & { readonly metadata: Partial<ObjectMeta> & Pick<ObjectMeta, 'name'> }

/**
 * A Kubernetes API server. Every method rejects with KubeError, or with the signal's reason. No call is repeated inside: whoever calls knows what a repeat means.
 */
export interface KubeApi {
  /** The object as the server has it now (no cache), or undefined. Undefined also where the type is not there. */
  get(type: ObjectType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject | undefined>
  /** One part of a list of `limit` objects at most. */
  list(type: ObjectType, options: Selection & { readonly limit: number; readonly continueToken?: string }, signal: AbortSignal): Promise<ListPage>
  /** What changed after `resourceVersion`, in order, until the server ends it (then it returns) or it fails. Asks for bookmarks. */
  watch(type: ObjectType, options: Selection & { readonly resourceVersion: string }, signal: AbortSignal): AsyncIterable<WatchEvent>
  /** A new object. */
  create(type: ObjectType, draft: ObjectDraft, signal: AbortSignal): Promise<KubeObject>
  /** Replaces an object; `metadata.resourceVersion` in it makes that conditional. */
  replace(type: ObjectType, draft: ObjectDraft, signal: AbortSignal): Promise<KubeObject>
  /**
   * Server-side apply of the fields in `draft`, forced, as field manager `taproot-controller`. Makes the object where it is not there, unless `draft` has a
   * `metadata.uid` (then `conflict`; and `invalid` where another object has the name by now) or `status` is what is applied (then `not_found`).
   */
  apply(type: ObjectType, draft: ObjectDraft, options: { readonly subresource?: 'status' }, signal: AbortSignal): Promise<KubeObject>
  /** JSON merge patch; `metadata.resourceVersion` in it makes it conditional, and so does `metadata.uid` (`invalid` where another object has the name by now). */
  patch(type: ObjectType, ref: ObjectRef, patch: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<KubeObject>
  /** Deletes; returns where it is gone already. With `uid` only that very object. */
  delete(type: ObjectType, ref: ObjectRef, options: { readonly uid?: string }, signal: AbortSignal): Promise<void>
}
