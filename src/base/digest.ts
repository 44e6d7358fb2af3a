import { createHash } from 'node:crypto'

declare const digestBrand: unique symbol

/** The identifier of some content: `sha256:` and 64 hex digits, or `sha512:` and 128, in lower case (OCI image specification, "Digests"). */
export type Digest = string & { readonly [digestBrand]: true }

/** A hash algorithm that a digest may use. */
export type DigestAlgorithm = 'sha256' | 'sha512'

const pattern = /^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/

/** True if the text is a digest with a known algorithm. */
export function isDigest(text: string): text is Digest {
  return pattern.test(text)
}

/** Returns the text as a digest, or undefined if it is not one. */
export function parseDigest(text: string): Digest | undefined {
  return isDigest(text) ? text : undefined
}

/** Returns the hash algorithm of a digest. */
export function algorithmOf(digest: Digest): DigestAlgorithm {
  return digest.startsWith('sha256:') ? 'sha256' : 'sha512'
}

/** Returns the hex digits of a digest. */
export function hexOf(digest: Digest): string {
  return digest.slice(digest.indexOf(':') + 1)
}

/** Returns the digest of `bytes`. */
export function digestOf(bytes: Uint8Array, algorithm: DigestAlgorithm = 'sha256'): Digest {
  return `${algorithm}:${createHash(algorithm).update(bytes).digest('hex')}` as Digest
}

/** Returns the digest with these hex digits, which must be the output of the hash algorithm. */
export function digestOfHex(algorithm: DigestAlgorithm, hex: string): Digest {
  return `${algorithm}:${hex}` as Digest
}
