import { createPublicKey, X509Certificate } from 'node:crypto'
import { hostError } from '../../auth/safe-address.ts'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import type { CustomOverlay, CustomOverlay_Certificates, CustomOverlay_ImageContents } from '../../gen/taproot/registry/v2/repos_pb.ts'

/** Maximum size of all keys of a repo together, in bytes (docs/spec/registry.md#custom-overlays). */
const maxKeyringBytes = 512 * 1024
/** Maximum size of all certificates of a repo together, in bytes (docs/spec/registry.md#custom-overlays). */
const maxCertificateBytes = 50 * 1024

/** Exactly one PEM block. */
const pemBlock = /^\s*-----BEGIN ([A-Z0-9 ]+)-----\s[A-Za-z0-9+/=\s]+-----END \1-----\s*$/

function blockLabel(text: string): string | undefined {
  return pemBlock.exec(text)?.[1]
}

function keyError(content: string): string | undefined {
  if (blockLabel(content) !== 'PUBLIC KEY') return 'must be exactly one PEM block of type PUBLIC KEY'
  try {
    return createPublicKey(content).asymmetricKeyType === 'rsa' ? undefined : 'must be an RSA key'
  } catch {
    // The parser's message may contain the key, so it is not shown.
    return 'is not a valid public key'
  }
}

/** Returns true if the certificate is of version 3: it begins with two sequences, then `[0] { INTEGER 2 }` (RFC 5280, 4.1). */
function isVersion3(der: Uint8Array): boolean {
  let at = 0
  for (let depth = 0; depth < 2; depth++) {
    const length = der[at + 1] ?? 0
    at += length < 0x80 ? 2 : 2 + (length & 0x7f)
  }
  return Buffer.from(der.subarray(at, at + 5)).toString('hex') === 'a003020102'
}

function certificateError(content: string): string | undefined {
  if (content.includes('PRIVATE KEY-----')) return 'must not contain a private key'
  if (blockLabel(content) !== 'CERTIFICATE') return 'must be exactly one PEM block of type CERTIFICATE'
  try {
    return isVersion3(new X509Certificate(content).raw) ? undefined : 'must be an X.509 certificate of version 3'
  } catch {
    return 'is not a valid X.509 certificate'
  }
}

function bytesOf(entries: readonly { readonly content: string }[]): number {
  return entries.reduce((sum, entry) => sum + Buffer.byteLength(entry.content), 0)
}

function* contentsErrors(contents: CustomOverlay_ImageContents): Generator<FieldViolation> {
  for (const [at, url] of contents.runtimeRepositories.entries()) {
    const description = hostError(url)
    if (description !== undefined) yield { field: `custom_overlay.contents.runtime_repositories[${at}]`, description }
  }
  const field = 'custom_overlay.contents.runtime_keyring'
  const names = new Set<string>()
  for (const [at, { name, content }] of contents.runtimeKeyring.entries()) {
    if (name.startsWith('platform')) yield { field: `${field}[${at}].name`, description: 'must not start with `platform`' }
    else if (names.has(name)) yield { field: `${field}[${at}].name`, description: 'repeats the name of an earlier entry' }
    names.add(name)
    const description = keyError(content)
    if (description !== undefined) yield { field: `${field}[${at}].content`, description }
  }
  if (bytesOf(contents.runtimeKeyring) > maxKeyringBytes) yield { field, description: `must be at most ${maxKeyringBytes} bytes in all` }
}

function* certificateErrors({ additional }: CustomOverlay_Certificates): Generator<FieldViolation> {
  const field = 'custom_overlay.certificates.additional'
  for (const [at, { content }] of additional.entries()) {
    const description = certificateError(content)
    if (description !== undefined) yield { field: `${field}[${at}].content`, description }
  }
  if (bytesOf(additional) > maxCertificateBytes) yield { field, description: `must be at most ${maxCertificateBytes} bytes in all` }
}

/** Throws code 3 with every fault of an overlay that the schema cannot express (docs/spec/registry.md#custom-overlays). */
export function assertOverlay(overlay: CustomOverlay | undefined): void {
  if (overlay === undefined) return
  const violations: FieldViolation[] = []
  if (overlay.contents !== undefined) violations.push(...contentsErrors(overlay.contents))
  if (overlay.certificates !== undefined) violations.push(...certificateErrors(overlay.certificates))
  if (violations.length > 0) throw DomainError.invalidFields(violations)
}
