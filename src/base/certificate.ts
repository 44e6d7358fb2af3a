import { createHash, createPublicKey, sign, type KeyObject } from 'node:crypto'

/** Encodes a value in DER: its tag, its length, and its content, which is `parts` joined (X.690 8.1, 10.1). */
function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts)
  return Buffer.concat([Uint8Array.of(tag), lengthOf(body.length), body])
}

/** Encodes a DER SEQUENCE. */
function sequence(...parts: readonly Uint8Array[]): Buffer {
  return der(0x30, ...parts)
}

/** Encodes a DER OBJECT IDENTIFIER from its dotted form, e.g. `2.5.4.3`. */
function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return der(0x06, Buffer.from([40 * first + second, ...rest].flatMap(base128)))
}

/** Encodes a positive DER INTEGER from its big-endian bytes. */
function integer(bytes: Uint8Array): Buffer {
  const start = bytes.findIndex((byte) => byte !== 0)
  const significant = start < 0 ? Uint8Array.of(0) : bytes.subarray(start)
  return der(0x02, (significant[0] ?? 0) > 127 ? Buffer.concat([Uint8Array.of(0), significant]) : significant)
}

/** The DER encoding of BOOLEAN TRUE. */
const isTrue = der(0x01, Uint8Array.of(255))

/** Encodes a DER UTF8String. */
function utf8(text: string): Buffer {
  return der(0x0c, Buffer.from(text))
}

/** Encodes a DER OCTET STRING. */
function octets(bytes: Uint8Array): Buffer {
  return der(0x04, bytes)
}

/** Encodes a DER BIT STRING whose last `unused` bits do not count. */
function bits(bytes: Uint8Array, unused = 0): Buffer {
  return der(0x03, Uint8Array.of(unused), bytes)
}

/** Encodes a time, in milliseconds since 1970, to the second: as UTCTime until 2049, as GeneralizedTime from 2050 on (RFC 5280 4.1.2.5). */
function time(ms: number): Buffer {
  const text = `${new Date(ms).toISOString().replaceAll(/[-:T]/g, '').slice(0, 14)}Z`
  const isShort = new Date(ms).getUTCFullYear() < 2050
  return isShort ? der(0x17, Buffer.from(text.slice(2))) : der(0x18, Buffer.from(text))
}

function lengthOf(length: number): Uint8Array {
  if (length < 0x80) return Uint8Array.of(length)
  return length < 0x100 ? Uint8Array.of(0x81, length) : Uint8Array.of(0x82, length >> 8, length & 255)
}

function base128(value: number): number[] {
  const digits = [value & 127]
  for (let rest = value >> 7; rest > 0; rest >>= 7) digits.unshift(128 | (rest & 127))
  return digits
}

/** The content of a certificate to issue: X.509 version 3, EC P-256 key, signed with ECDSA and SHA-256 (RFC 5280, RFC 5480, RFC 5758). */
export interface CertificateRequest {
  /** Common name of the certificate's subject. */
  readonly subject: string
  readonly publicKey: KeyObject
  /** 16 random bytes for the serial number. */
  readonly serial: Uint8Array
  readonly notBeforeMs: number
  readonly notAfterMs: number
  /** DNS names for which the certificate is valid; `*` stands for one label. */
  readonly dnsNames?: readonly string[]
  /** The sides of a TLS connection that may use the certificate. No restriction if absent. */
  readonly tlsRoles?: readonly TlsRole[]
}

/** The sides of a TLS connection. */
export type TlsRole = 'server' | 'client'

/** The name and key that sign a certificate. */
export interface CertificateIssuer {
  /** Common name of the issuer. */
  readonly name: string
  readonly privateKey: KeyObject
}

const ecdsaWithSha256 = sequence(oid('1.2.840.10045.4.3.2'))
const commonName = '2.5.4.3'
const extensions = {
  subjectKey: '2.5.29.14',
  keyUsage: '2.5.29.15',
  names: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  authorityKey: '2.5.29.35',
  extendedUsage: '2.5.29.37',
} as const

/** Object identifiers of the extended key usages for TLS (RFC 5280 4.2.1.12). */
export const tlsUsages = { server: '1.3.6.1.5.5.7.3.1', client: '1.3.6.1.5.5.7.3.2' } as const satisfies Record<TlsRole, string>

/** Values of the key usage extension. A leaf has bit 0 (digitalSignature); an authority has bits 5 and 6 (keyCertSign, cRLSign). */
const usage = { leaf: bits(Uint8Array.of(0x80), 7), authority: bits(Uint8Array.of(0x06), 1) } as const

/** Returns a self-signed CA certificate in DER form. */
export function issueAuthority(request: CertificateRequest, privateKey: KeyObject): Buffer {
  return issue(request, { name: request.subject, privateKey }, true)
}

/** Returns a certificate in DER form that must not sign other certificates. It is for a token signing key, or for one side of TLS. */
export function issueLeaf(request: CertificateRequest, issuer: CertificateIssuer): Buffer {
  return issue(request, issuer, false)
}

function issue(request: CertificateRequest, issuer: CertificateIssuer, isAuthority: boolean): Buffer {
  const body = sequence(
    der(0xa0, integer(Uint8Array.of(2))),
    integer(serialOf(request.serial)),
    ecdsaWithSha256,
    nameOf(issuer.name),
    sequence(time(request.notBeforeMs), time(request.notAfterMs)),
    nameOf(request.subject),
    request.publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...extensionsOf(request, issuer, isAuthority))),
  )
  return sequence(body, ecdsaWithSha256, bits(sign('sha256', body, issuer.privateKey)))
}

function extensionsOf(request: CertificateRequest, issuer: CertificateIssuer, isAuthority: boolean): Buffer[] {
  const issuerKey = createPublicKey(issuer.privateKey)
  const { dnsNames = [], tlsRoles = [] } = request
  return [
    critical(extensions.basicConstraints, isAuthority ? sequence(isTrue, integer(Uint8Array.of(0))) : sequence()),
    critical(extensions.keyUsage, isAuthority ? usage.authority : usage.leaf),
    extension(extensions.subjectKey, octets(keyIdOf(request.publicKey))),
    extension(extensions.authorityKey, sequence(der(0x80, keyIdOf(issuerKey)))),
    ...(tlsRoles.length === 0 ? [] : [extension(extensions.extendedUsage, sequence(...tlsRoles.map((role) => oid(tlsUsages[role]))))]),
    ...(dnsNames.length === 0 ? [] : [extension(extensions.names, sequence(...dnsNames.map((name) => der(0x82, Buffer.from(name, 'ascii')))))]),
  ]
}

/** Returns a serial number from random bytes: positive and at most 20 bytes long (RFC 5280 4.1.2.2). */
function serialOf(random: Uint8Array): Uint8Array {
  return Buffer.concat([Uint8Array.of(1), random.subarray(0, 16)])
}

function nameOf(text: string): Buffer {
  return sequence(der(0x31, sequence(oid(commonName), utf8(text))))
}

/** Returns the key identifier of a public key: the SHA-1 hash of its bits (RFC 5280 4.2.1.2, method 1). It only identifies the key, so SHA-1 is safe here. */
function keyIdOf(publicKey: KeyObject): Buffer {
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' })
  return createHash('sha1')
    .update(Buffer.concat([Uint8Array.of(4), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]))
    .digest()
}

function extension(id: string, value: Uint8Array): Buffer {
  return sequence(oid(id), octets(value))
}

function critical(id: string, value: Uint8Array): Buffer {
  return sequence(oid(id), isTrue, octets(value))
}
