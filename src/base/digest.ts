import { createHash } from 'node:crypto'

declare const digestBrand: unique symbol

/** The name of some bytes: `sha256:` and 64, or `sha512:` and 128 lowercase hex digits (OCI image specification, "Digests"). */
export type Digest = string & { readonly [digestBrand]: true }

/** An algorithm that names bytes. */
export type DigestAlgorithm = 'sha256' | 'sha512'

const pattern = /^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/

/** True where the text is a digest of a known algorithm. */
export function isDigest(text: string): text is Digest {
  return pattern.test(text)
}

/** The digest that the text is, or undefined. */
export function parseDigest(text: string): Digest | undefined {
  return isDigest(text) ? text : undefined
}

/** The algorithm of a digest. */
export function algorithmOf(digest: Digest): DigestAlgorithm {
  return digest.startsWith('sha256:') ? 'sha256' : 'sha512'
}

/** The hex digits of a digest. */
export function hexOf(digest: Digest): string {
  return digest.slice(digest.indexOf(':') + 1)
}

/** The digest of `bytes`. */
export function digestOf(bytes: Uint8Array, algorithm: DigestAlgorithm = 'sha256'): Digest {
  return `${algorithm}:${createHash(algorithm).update(bytes).digest('hex')}` as Digest
}

/** Marks hex digits that came out of a hash as a digest. */
export function digestOfHex(algorithm: DigestAlgorithm, hex: string): Digest {
  return `${algorithm}:${hex}` as Digest
}
