/** A type of objects at the API server. */
export interface ObjectType {
  /** API group; empty for the core group. */
  readonly group: string
  readonly version: string
  readonly kind: string
  /** The resource name in paths: lower case, plural. */
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
  /** Increases with every change of the spec. */
  readonly generation?: number
  readonly creationTimestamp?: string
  readonly deletionTimestamp?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
  readonly finalizers?: readonly string[]
  readonly ownerReferences?: readonly { readonly apiVersion: string; readonly kind: string; readonly name: string; readonly uid: string }[]
}

/** An object as returned by the API server. Fields other than metadata depend on the type and are checked by the API server only. */
export interface KubeObject {
  readonly metadata: ObjectMeta
  readonly spec?: unknown
  readonly status?: unknown
  readonly [field: string]: unknown
}

/** The name and namespace of an object. */
export interface ObjectRef {
  /** Absent for objects of the cluster. */
  readonly namespace?: string
  readonly name: string
}

/** Selects objects of a type. */
export interface Selection {
  /** All namespaces if absent. */
  readonly namespace?: string
  readonly labelSelector?: string
}

/** One page of a list. All pages show the same resource version. */
export interface ListPage {
  readonly items: readonly KubeObject[]
  readonly resourceVersion: string
  /** Absent on the last page. */
  readonly continueToken?: string
}

/** An event of a watch. A bookmark carries only the resource version reached. */
export type WatchEvent =
  { readonly type: 'added' | 'modified' | 'deleted'; readonly object: KubeObject } | { readonly type: 'bookmark'; readonly resourceVersion: string }

/**
 * How a call failed:
 * - `not_found`: no such object, or no such type (its CRD is missing)
 * - `conflict`: the object's resource version or uid differs from the caller's, or another manager owns a field
 * - `already_exists`
 * - `invalid`: the API server rejects the object; retrying does not help
 * - `forbidden`: not allowed, or rejected by an admission policy
 * - `unauthorized`: the credential is not, or no longer, accepted
 * - `expired`: the resource version or continue token is too old; list again
 * - `throttled`: too many requests; retry after `retryAfterMs`
 * - `unavailable`: no answer, or a 5xx answer; a change may or may not have been made
 */
export type KubeErrorReason = 'not_found' | 'conflict' | 'already_exists' | 'invalid' | 'forbidden' | 'unauthorized' | 'expired' | 'throttled' | 'unavailable'

/** A failed call. Its message comes from the API server if that answered. */
export class KubeError extends Error {
  override readonly name = 'KubeError'
  readonly reason: KubeErrorReason
  readonly retryAfterMs: number | undefined

  constructor(reason: KubeErrorReason, message: string, options: { readonly cause?: unknown; readonly retryAfterMs?: number } = {}) {
    super(message, { cause: options.cause })
    this.reason = reason
    this.retryAfterMs = options.retryAfterMs
  }
}

/** An object to send. The API server checks that it is complete and valid. */
export type ObjectDraft = Omit<KubeObject, 'metadata'> & { readonly metadata: Partial<ObjectMeta> & Pick<ObjectMeta, 'name'> }

/**
 * A Kubernetes API server. Every method rejects with KubeError, or with the signal's reason. No method retries: only the caller knows whether a retry is safe.
 */
export interface KubeApi {
  /** Reads the object from the server, without a cache. Returns undefined if the object or its type does not exist. */
  get(type: ObjectType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject | undefined>
  /** Reads one page of at most `limit` objects. */
  list(type: ObjectType, options: Selection & { readonly limit: number; readonly continueToken?: string }, signal: AbortSignal): Promise<ListPage>
  /** Yields changes after `resourceVersion` in order. Returns when the server ends the watch, and throws if it fails. Requests bookmarks. */
  watch(type: ObjectType, options: Selection & { readonly resourceVersion: string }, signal: AbortSignal): AsyncIterable<WatchEvent>
  /** Creates an object. */
  create(type: ObjectType, draft: ObjectDraft, signal: AbortSignal): Promise<KubeObject>
  /** Replaces an object, only if it still has `metadata.resourceVersion` where the draft has one. */
  replace(type: ObjectType, draft: ObjectDraft, signal: AbortSignal): Promise<KubeObject>
  /**
   * Server-side apply of the fields in `draft`, forced, as field manager `taproot-controller`. Creates a missing object, with two exceptions. With a
   * `metadata.uid` it rejects with `conflict`, or with `invalid` if another object has the name by now. For `status` it rejects with `not_found`.
   */
  apply(type: ObjectType, draft: ObjectDraft, options: { readonly subresource?: 'status' }, signal: AbortSignal): Promise<KubeObject>
  /**
   * Applies a JSON merge patch. `metadata.resourceVersion` in it makes it conditional. So does `metadata.uid`, which rejects with `invalid` if another object
   * has the name by now.
   */
  patch(type: ObjectType, ref: ObjectRef, patch: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<KubeObject>
  /** Deletes an object. Succeeds if it is already gone. With `uid` it deletes only the object with that uid. */
  delete(type: ObjectType, ref: ObjectRef, options: { readonly uid?: string }, signal: AbortSignal): Promise<void>
}
