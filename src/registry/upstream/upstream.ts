import type { Readable } from 'node:stream'
import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'

/**
 * Why a call to the upstream failed:
 * - `unavailable`: no answer, or one that says to come again. Nothing is known of what it did.
 * - `exhausted`: there is no room for more bytes.
 * - `digest_mismatch`: the bytes that came are not those that the digest names. Nothing is visible under it.
 * - `corrupt`: the bytes that it keeps are not those that the digest names.
 * - `upload_unknown`: there is no such upload: finished, cancelled, or forgotten.
 * - `range_invalid`: a chunk does not begin where the upload ends. Nothing of it was taken.
 * - `refused`: the upstream will not do it, now or later (its credentials, its settings).
 */
export type UpstreamErrorKind = 'unavailable' | 'exhausted' | 'digest_mismatch' | 'corrupt' | 'upload_unknown' | 'range_invalid' | 'refused'

/** The one error class of the upstream port. */
export class UpstreamError extends Error {
  override readonly name = 'UpstreamError'
  readonly kind: UpstreamErrorKind
  constructor(kind: UpstreamErrorKind, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }
}

/** A manifest's bytes under their SHA-256 digest. */
export interface ManifestBytes {
  readonly digest: Digest
  readonly mediaType: string
  readonly bytes: Uint8Array
}

/** Which bytes of a blob: both ends count, as in HTTP. */
export interface ByteRange {
  readonly first: number
  readonly last: number
}

/** A blob in transit. Its receiver reads `body` to its end or destroys it. */
export interface BlobStream {
  /** Of the whole blob. */
  readonly size: number
  /** The bytes asked for, in order; an error in it is an UpstreamError. Its pieces belong to the reader, who may free them: they are in no cache. */
  readonly body: Readable
}

/**
 * An upload in progress. `state` is the adapter's own text (at most 2,048 characters, printable ASCII): all that any process needs to go on with it. It changes
 * with every call: only the newest is good. It holds no secret that its owner must not see once sealed by the caller.
 */
export interface Upload {
  readonly state: string
  /** Bytes that are there. */
  readonly offset: number
}

/**
 * Bytes for an upload. `body` is read to its end, or destroyed if the call fails; the upstream sets the pace. The call rejects with an error of `body`. Its
 * pieces may share memory and stay unchanged, except those that were given away (`transferOwnership`). The upstream may free these once they are sent.
 */
export interface Chunk {
  readonly body: Readable
  /** Where it begins; not checked where absent. `range_invalid` where the upload ends at another offset. */
  readonly offset?: number
  /** In bytes, where it is known. */
  readonly length?: number
}

/**
 * Storage of the bytes (docs/spec/registry.md#content-ownership). The name of a repository is a repo's uid, which is never reused. Our own records state what a
 * repo holds, not the upstream. So an upstream that shares bytes between repositories reveals none to others. Every method rejects with UpstreamError, with the
 * signal's reason, or with the error of a chunk's body. Two adapters pass one contract suite: test/registry/upstream/contract/contract.ts.
 */
export interface Upstream {
  /** Resolves where the upstream answers. */
  ready(signal: AbortSignal): Promise<void>

  /** The bytes, checked against the digest (SHA-256); undefined where they are not there. `corrupt`. */
  getManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<ManifestBytes | undefined>
  /** Returns true if the manifest exists. */
  hasManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean>
  /** Keeps the bytes under their SHA-256 digest until they are deleted, whatever refers to them. Doing it again is no fault. */
  putManifest(repo: Uid, manifest: ManifestBytes, signal: AbortSignal): Promise<void>
  /** Does nothing where it is not there. */
  deleteManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void>

  /** The size in bytes; undefined where the blob is not there. */
  statBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<number | undefined>
  /** The bytes, from the whole or `range` of it (within the blob); undefined where it is not there. Aborting ends the stream. */
  readBlob(repo: Uid, source: { digest: Digest; range?: ByteRange }, signal: AbortSignal): Promise<BlobStream | undefined>
  /**
   * Returns a URL from which any client gets the blob for a limited time, without a credential. Returns undefined if the blob must be read here, or does not
   * exist.
   */
  locateBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<string | undefined>
  /** Does nothing where it is not there. */
  deleteBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void>
  /** Makes a blob of `from` visible in `repo` without copying its bytes; false where the upstream can't or it is not there. */
  mountBlob(repo: Uid, source: { digest: Digest; from: Uid }, signal: AbortSignal): Promise<boolean>

  /** Begins an upload. */
  startUpload(repo: Uid, signal: AbortSignal): Promise<Upload>
  /** The upload as it is now. `upload_unknown`. */
  uploadStatus(repo: Uid, state: string, signal: AbortSignal): Promise<Upload>
  /** Appends a chunk. What arrived before a break stays and may be gone on from; of a chunk that there is no room for, nothing need stay. `upload_unknown`, `range_invalid`, `exhausted`. */
  appendUpload(repo: Uid, source: { state: string; chunk: Chunk }, signal: AbortSignal): Promise<Upload>
  /**
   * Appends the last chunk, if any, and makes the whole visible under `digest` at once, durably. Resolves with its size and with the digest under which the
   * upstream has it: the blob is read, and deleted, under that one. `digest_mismatch` (the upload is gone then), `upload_unknown`,
   * `range_invalid`, `exhausted`.
   */
  finishUpload(repo: Uid, source: { state: string; digest: Digest; chunk?: Chunk }, signal: AbortSignal): Promise<{ size: number; digest: Digest }>
  /** Drops an upload with what arrived of it. Does nothing if the upload does not exist. */
  cancelUpload(repo: Uid, state: string, signal: AbortSignal): Promise<void>

  /** Releases connections and files. */
  close(): Promise<void>
}
