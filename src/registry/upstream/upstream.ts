import type { Readable } from 'node:stream'
import type { Digest } from '../../base/digest.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'

/**
 * Why a call to the upstream failed:
 * - `unavailable`: no response, or a temporary failure. The outcome is unknown.
 * - `exhausted`: there is no space for more bytes.
 * - `digest_mismatch`: the received bytes do not match the digest. Nothing is stored under it.
 * - `corrupt`: the stored bytes do not match the digest.
 * - `upload_unknown`: there is no such upload: it was finished, cancelled, or lost.
 * - `range_invalid`: a chunk does not begin where the upload ends. None of its bytes were stored.
 * - `refused`: the upstream permanently refuses the request, because of its credentials or settings.
 */
export type UpstreamErrorKind = 'unavailable' | 'exhausted' | 'digest_mismatch' | 'corrupt' | 'upload_unknown' | 'range_invalid' | 'refused'

/** An error of the upstream port; its only error class. */
export class UpstreamError extends Error {
  override readonly name = 'UpstreamError'
  readonly kind: UpstreamErrorKind
  constructor(kind: UpstreamErrorKind, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }
}

/** The repository of Taproot's own content: the first 40 hex digits of SHA-256 of `taproot:upstream`. It is the uid of no repo, so no client can reach it. */
export const platformRepository: Uid = trustedUid('e528ada1d6b0621831284c37786dcfe639d9f687')

/** A manifest and its SHA-256 digest. */
export interface ManifestBytes {
  readonly digest: Digest
  readonly mediaType: string
  readonly bytes: Uint8Array
}

/** A range of bytes of a blob; both ends are inclusive, as in HTTP. */
export interface ByteRange {
  readonly first: number
  readonly last: number
}

/** A blob in transit. Its receiver reads `body` to its end or destroys it. */
export interface BlobStream {
  /** Size of the whole blob, in bytes. */
  readonly size: number
  /** The requested bytes, in order. Its errors are UpstreamErrors. Its pieces belong to the reader, who may free them; no cache uses them. */
  readonly body: Readable
}

/**
 * An upload in progress. `state` is a text of the adapter, at most 2,048 printable ASCII characters. Any process can continue the upload
 * with it. It changes with every call, and only the newest is valid. The caller encrypts it before it gives it to the client.
 */
export interface Upload {
  readonly state: string
  /** Number of bytes received so far. */
  readonly offset: number
}

/**
 * Bytes for an upload. `body` is read to its end, or destroyed if the call fails; the upstream sets the pace. The call rejects with an
 * error of `body`. Its pieces may share memory and must not change. Transferred pieces (`transferOwnership`) may be freed once they are
 * sent.
 */
export interface Chunk {
  readonly body: Readable
  /**
   * Offset in the upload at which the chunk begins; not checked if absent. If the upload ends elsewhere, the call fails with
   * `range_invalid`.
   */
  readonly offset?: number
  /** Number of bytes, if known. */
  readonly length?: number
}

/**
 * Storage of the bytes (docs/spec/registry.md#content-ownership). The name of a repository is a repo's uid, which is never reused. The
 * platform's own records state what a repo holds, not the upstream. So an upstream that shares bytes between repositories reveals none to
 * others. Every method rejects with UpstreamError, with the signal's reason, or with the error of a chunk's body. Two adapters pass one
 * contract suite: test/registry/upstream/contract/contract.ts.
 */
export interface Upstream {
  /** Resolves if the upstream answers. */
  ready(signal: AbortSignal): Promise<void>

  /** Returns a manifest, after checking its SHA-256 digest; undefined if it does not exist. Errors: `corrupt`. */
  getManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<ManifestBytes | undefined>
  /** Returns true if the manifest exists. */
  hasManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean>
  /** Stores a manifest under its SHA-256 digest until it is deleted. Succeeds if it is already stored. */
  putManifest(repo: Uid, manifest: ManifestBytes, signal: AbortSignal): Promise<void>
  /** Deletes a manifest. Does nothing if it does not exist. */
  deleteManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void>

  /** Returns the size of a blob in bytes; undefined if it does not exist. */
  statBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<number | undefined>
  /** Reads a blob, or a `range` within it; undefined if it does not exist. Aborting the signal ends the stream. */
  readBlob(repo: Uid, source: { digest: Digest; range?: ByteRange }, signal: AbortSignal): Promise<BlobStream | undefined>
  /**
   * Returns a URL from which any client gets the blob for a limited time, without a credential. Returns undefined if the blob must be read here, or does not
   * exist.
   */
  locateBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<string | undefined>
  /** Deletes a blob. Does nothing if it does not exist. */
  deleteBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void>
  /**
   * Makes a blob of `from` available in `repo` without copying its bytes. Returns false if the upstream cannot do this, or if the blob
   * does not exist.
   */
  mountBlob(repo: Uid, source: { digest: Digest; from: Uid }, signal: AbortSignal): Promise<boolean>

  /** Starts an upload. */
  startUpload(repo: Uid, signal: AbortSignal): Promise<Upload>
  /** Returns the current state of an upload. Errors: `upload_unknown`. */
  uploadStatus(repo: Uid, state: string, signal: AbortSignal): Promise<Upload>
  /**
   * Appends a chunk. After an interruption, bytes received before it stay, and the upload can continue after them. If there is no space,
   * part of the chunk or none of it stays. Errors: `upload_unknown`, `range_invalid`, `exhausted`.
   */
  appendUpload(repo: Uid, source: { state: string; chunk: Chunk }, signal: AbortSignal): Promise<Upload>
  /**
   * Appends the last chunk, if any, and makes the blob available under `digest` atomically and durably. Resolves with its size, and with
   * the digest under which the upstream stores it: use that one to read and delete the blob. Errors: `digest_mismatch` (the upload is gone
   * then), `upload_unknown`, `range_invalid`, `exhausted`.
   */
  finishUpload(repo: Uid, source: { state: string; digest: Digest; chunk?: Chunk }, signal: AbortSignal): Promise<{ size: number; digest: Digest }>
  /** Cancels an upload and discards its bytes. Does nothing if it does not exist. */
  cancelUpload(repo: Uid, state: string, signal: AbortSignal): Promise<void>

  /** Releases connections and files. */
  close(): Promise<void>
}
