import { createPublicKey, verify, X509Certificate as NodeCertificate, type KeyObject } from 'node:crypto'
import { ed25519ph } from '@noble/curves/ed25519.js'
import { bundleFromJSON, type Bundle } from '@sigstore/bundle'
import { dsse, type X509Certificate } from '@sigstore/core'
import { TrustedRoot } from '@sigstore/protobuf-specs'
import { toSignedEntity, toTrustMaterial, Verifier, type TrustMaterial } from '@sigstore/verify'
import { parseBoundedJson } from '../../base/bounded-json.ts'
import { digestOf, hexOf, type Digest } from '../../base/digest.ts'
import { errorMessage } from '../../base/error-text.ts'
import { signPredicate, type KeylessSigner, type Signature } from './signature-rule.ts'

/** A signature as a repo holds it: a sigstore bundle, or cosign's older form, a payload with annotations. */
export type HeldSignature =
  | { readonly form: 'bundle'; readonly bytes: Buffer }
  | { readonly form: 'payload'; readonly bytes: Buffer; readonly annotations: Readonly<Record<string, unknown>> }

/** What a signature is checked against. */
export interface SignatureContext {
  /** The SHA-256 digest of the manifest that it must name. */
  readonly subject: Digest
  readonly trust: TrustMaterial | undefined
}

type Json = Readonly<Record<string, unknown>>

const bounds = { maxDepth: 32, maxValues: 10_000, maxKeys: 4_000 }
/** The most keys for which a signature remembers its answer. */
const rememberedKeys = 200
/** The most bytes of the certificates in one signature. A larger one takes long to read. */
const maxCertificateBytes = 16 * 1024
/** The most entries of logs, and timestamps, in one signature. */
const maxEntries = 8

const annotation = {
  signature: 'dev.cosignproject.cosign/signature',
  certificate: 'dev.sigstore.cosign/certificate',
  logEntry: 'dev.sigstore.cosign/bundle',
  timestamp: 'dev.sigstore.cosign/rfc3161timestamp',
} as const
const payloadType = 'cosign container image signature'
const statementType = 'application/vnd.in-toto+json'
const statementForms: ReadonlySet<unknown> = new Set(['https://in-toto.io/Statement/v1', 'https://in-toto.io/Statement/v0.1'])
const issuerExtensions = ['1.3.6.1.4.1.57264.1.8', '1.3.6.1.4.1.57264.1.1'] as const

function objectIn(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {} // a cast: it is an object of JSON
}

function jsonIn(bytes: Uint8Array): Json {
  return objectIn(parseBoundedJson(new TextDecoder('utf-8', { fatal: true }).decode(bytes), bounds))
}

function textIn(value: unknown, name: string): string {
  if (typeof value !== 'string') throw new Error(`it has no ${name}`)
  return value
}

/** Reads a trusted root of sigstore: certificate authorities, logs and timestamp authorities. Throws an Error if it cannot be used. */
export function readTrustedRoot(text: string): TrustMaterial {
  return toTrustMaterial(TrustedRoot.fromJSON(JSON.parse(text)))
}

/** Returns the log entry in an annotation of cosign, in the form of bundles. */
function logEntryOf(text: string): Json {
  const { SignedEntryTimestamp: signedEntryTimestamp, Payload } = objectIn(parseBoundedJson(text, bounds))
  const { body, integratedTime, logIndex, logID } = objectIn(Payload)
  const { kind, apiVersion: version } = jsonIn(Buffer.from(textIn(body, 'entry of a log'), 'base64'))
  return {
    ...{ logIndex: String(logIndex), integratedTime: String(integratedTime), canonicalizedBody: body },
    logId: { keyId: Buffer.from(textIn(logID, 'log'), 'hex').toString('base64') },
    kindVersion: { kind, version },
    inclusionPromise: { signedEntryTimestamp },
  }
}

/** Returns cosign's older form as a bundle. */
function bundleOfPayload(payload: Buffer, annotations: Json): Json {
  const { [annotation.certificate]: certificate, [annotation.logEntry]: entry, [annotation.timestamp]: timestamp } = annotations
  const signed = typeof timestamp === 'string' ? objectIn(parseBoundedJson(timestamp, bounds))['SignedRFC3161Timestamp'] : undefined
  return {
    mediaType: 'application/vnd.dev.sigstore.bundle+json;version=0.1',
    verificationMaterial: {
      ...(typeof certificate === 'string'
        ? { x509CertificateChain: { certificates: [{ rawBytes: new NodeCertificate(certificate).raw.toString('base64') }] } }
        : { publicKey: { hint: '' } }),
      tlogEntries: typeof entry === 'string' ? [logEntryOf(entry)] : [],
      timestampVerificationData: { rfc3161Timestamps: signed === undefined ? [] : [{ signedTimestamp: signed }] },
    },
    messageSignature: {
      messageDigest: { algorithm: 'SHA2_256', digest: Buffer.from(hexOf(digestOf(payload)), 'hex').toString('base64') },
      signature: textIn(annotations[annotation.signature], 'signature'),
    },
  }
}

/** Throws unless cosign's older payload names the manifest. */
function assertPayload(payload: Buffer, subject: Digest): void {
  const { type, image } = objectIn(jsonIn(payload)['critical'])
  if (type !== payloadType) throw new Error('its payload is not that of an image')
  if (objectIn(image)['docker-manifest-digest'] !== subject) throw new Error('it is of another image')
}

/** Throws unless a statement says that the manifest is signed. */
function assertStatement({ payload, payloadType: type }: { readonly payload: Buffer; readonly payloadType: string }, subject: Digest): void {
  if (type !== statementType) throw new Error('its payload is no statement')
  const { _type: form, predicateType, subject: subjects } = jsonIn(payload)
  if (!statementForms.has(form) || predicateType !== signPredicate) throw new Error('its statement is no signature of an image')
  const names = Array.isArray(subjects) ? subjects.map((one) => objectIn(objectIn(one)['digest'])['sha256']) : []
  if (!names.includes(hexOf(subject))) throw new Error('it is of another image')
}

/** Returns the bundle, and the bytes that are signed. Throws if it does not name the manifest. */
function openSignature(held: HeldSignature, subject: Digest): { readonly bundle: Bundle; readonly signed: Buffer } {
  if (held.form === 'payload') {
    assertPayload(held.bytes, subject)
    return { bundle: bundleFromJSON(bundleOfPayload(held.bytes, held.annotations)), signed: held.bytes }
  }
  const bundle = bundleFromJSON(jsonIn(held.bytes))
  if (bundle.content.$case !== 'dsseEnvelope') throw new Error('its payload is no statement')
  const { dsseEnvelope: envelope } = bundle.content
  assertStatement(envelope, subject)
  return { bundle, signed: dsse.preAuthEncoding(envelope.payloadType, envelope.payload) }
}

/** Throws for certificates that take long to check: large ones, and those with unusual keys of RSA. */
function assertCheap({ content }: Bundle['verificationMaterial']): void {
  const certificates = content?.$case === 'x509CertificateChain' ? content.x509CertificateChain.certificates : []
  const all = content?.$case === 'certificate' ? [content.certificate] : certificates
  if (all.reduce((sum, { rawBytes }) => sum + rawBytes.length, 0) > maxCertificateBytes) throw new Error('its certificate is too large')
  for (const { rawBytes } of all) {
    const { asymmetricKeyDetails: { modulusLength = 0, publicExponent = 0n } = {} } = new NodeCertificate(rawBytes).publicKey
    if (modulusLength > 8_192 || publicExponent >= 2n ** 32n) throw new Error('its certificate has a key that is not supported')
  }
}

type CertificatePart = X509Certificate['root']

/** True if a part of the certificate has exactly these bytes. The library reads text as ASCII, so that other bytes could look like a name. */
function hasText(part: CertificatePart, text: string): boolean {
  return part.value.equals(Buffer.from(text)) || part.subs.some((inner) => hasText(inner, text))
}

/** Returns whom the certificate names. Throws if the signature, the certificate, or its entry in a log is not valid. */
function keylessSigner(entity: ReturnType<typeof toSignedEntity>, trust: TrustMaterial): KeylessSigner {
  const { key } = entity
  if (key.$case !== 'certificate') throw new Error('it has no certificate')
  // What the trusted root names is needed. Without a log, the time must be that of a timestamp authority.
  const options = { tlogThreshold: Math.min(1, trust.tlogs.length), ctlogThreshold: Math.min(1, trust.ctlogs.length), timestampThreshold: 1 }
  const { identity } = new Verifier(trust, options).verify(entity)
  const [issuer, subject] = [identity?.extensions?.issuer, identity?.subjectAlternativeName]
  const { certificate } = key
  const issuerParts = issuerExtensions.flatMap((id) => certificate.extension(id)?.valueObj ?? [])
  const subjectPart = certificate.extSubjectAltName?.valueObj
  if (issuer === undefined || subject === undefined || subjectPart === undefined) throw new Error('its certificate names no identity')
  if (!issuerParts.some((part) => hasText(part, issuer)) || !hasText(subjectPart, subject)) throw new Error('its certificate names no identity in ASCII')
  return { issuer, subject }
}

/** True for a signature of the bytes' hash as cosign makes it with a key of Ed25519 (RFC 8032, Ed25519ph). Node has no such check. */
function isSignedHash(signed: Buffer, signature: Buffer, key: KeyObject): boolean {
  const { x = '' } = key.export({ format: 'jwk' })
  return ed25519ph.verify(signature, signed, Buffer.from(x, 'base64url'), { zip215: false })
}

/** True if the key signed the bytes with this hash. */
type Check = (signed: Buffer, signature: Buffer, key: KeyObject) => boolean
const checkWith =
  (hash: string | undefined): Check =>
  (signed, signature, key) =>
    verify(hash, signed, key, signature)

/** Returns the checks of signatures by a key: those that signers use with its kind. */
function checksOf({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): readonly Check[] {
  if (asymmetricKeyType === 'ed25519') return [checkWith(undefined), isSignedHash]
  return asymmetricKeyDetails?.namedCurve === 'secp384r1' ? [checkWith('sha384'), checkWith('sha256')] : [checkWith('sha256')]
}

/** True if the key signed the bytes. Sigstore's own check has one hash for all keys, so it does not fit those of Ed25519 and P-384. */
function isSigned(signed: Buffer, signature: Buffer, pem: string): boolean {
  const key = createPublicKey(pem)
  return checksOf(key).some((check) => {
    try {
      return check(signed, signature, key)
    } catch {
      return false // for example, a signature of another length
    }
  })
}

/**
 * Reads a signature, and checks whether its certificate is valid, if it has one. Throws an Error that says why it counts for nothing: for example because it
 * names another manifest.
 */
export function readSignature(held: HeldSignature, { subject, trust }: SignatureContext): Signature {
  const { bundle, signed } = openSignature(held, subject)
  const { verificationMaterial: material } = bundle
  if (material.tlogEntries.length > maxEntries || (material.timestampVerificationData?.rfc3161Timestamps.length ?? 0) > maxEntries)
    throw new Error('it has too many entries of logs')
  assertCheap(material)
  const entity = toSignedEntity(bundle, signed)
  const { signature } = entity.signature
  const hasCertificate = entity.key.$case === 'certificate'
  let signer: KeylessSigner | undefined
  let problem = ''
  try {
    if (hasCertificate && trust !== undefined) signer = keylessSigner(entity, trust)
  } catch (error) {
    problem = errorMessage(error)
  }
  const answers = new Map<string, boolean>()
  return {
    signer,
    hasCertificate,
    problem,
    isSignedBy(pem) {
      const known = answers.get(pem)
      if (known !== undefined) return known
      const answer = isSigned(signed, signature, pem)
      if (answers.size < rememberedKeys) answers.set(pem, answer)
      return answer
    },
  }
}
