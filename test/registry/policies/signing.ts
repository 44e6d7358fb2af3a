import { createHash, generateKeyPairSync, sign, type KeyObject } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { dsse } from '@sigstore/core'
import { initializeCA, initializeCTLog, initializeTLog } from '@sigstore/mock'

/** A key pair of a signer. */
export interface KeyPair {
  readonly privateKey: KeyObject
  readonly publicKey: KeyObject
}

/** Who signs, and how. By default the signature has no certificate, and is in no log. */
export interface Signer {
  readonly keys: KeyPair
  readonly hash?: string | null
  readonly keyless?: Keyless
}

/** Whom a certificate names, and when the log has the signature. */
export interface Keyless {
  readonly authority: Authority
  /** By default those of `identity`. */
  readonly issuer?: string
  readonly subject?: string
  /** Milliseconds between the beginning of the certificate, which ends after ten minutes, and the entry in the log. */
  readonly loggedAfterMs?: number
  /** Changes the entry in the log before it is stored with the signature. */
  readonly change?: (entry: LogEntry) => LogEntry | undefined
}

/** What a signature says, if it is not what cosign writes. */
export interface Statement {
  readonly digest: string
  /** The type of a payload, or of the predicate of a statement. */
  readonly type?: string
  readonly payloadType?: string
}

/** An entry of a log, in the form of bundles. */
export interface LogEntry {
  readonly logIndex: string
  readonly logId: { keyId: string }
  readonly kindVersion: { kind: string; version: string }
  readonly integratedTime: string
  readonly inclusionPromise: { signedEntryTimestamp: string }
  readonly inclusionProof: JsonObject
  readonly canonicalizedBody: string
}

/** An entry as the log returns it. */
interface MadeEntry {
  readonly body: string
  readonly integratedTime: number
  readonly logID: string
  readonly logIndex: number
  readonly verification: {
    readonly signedEntryTimestamp: string
    readonly inclusionProof: { logIndex: number; treeSize: number; rootHash: string; hashes: string[]; checkpoint: string }
  }
}

/** Whom certificates name by default. */
export const identity = { issuer: 'https://issuer.example', subject: 'https://example.com/build@main' } as const
/** As Fulcio names the issuer: in DER form, and as bytes for older clients. */
const issuerExtensions = [{ oid: '1.3.6.1.4.1.57264.1.8' }, { oid: '1.3.6.1.4.1.57264.1.1', legacy: true }]
const logUrl = 'https://log.example'
/** The private keys of certificates and logs are valid since then. */
const validFor = { start: '2000-01-01T00:00:00Z' }

/** Makes a key pair of ECDSA. */
export function newKeys(namedCurve = 'P-256'): KeyPair {
  return generateKeyPairSync('ec', { namedCurve })
}

/** Returns the public key as policies have it. */
export function pemOf({ publicKey }: KeyPair): string {
  return publicKey.export({ type: 'spki', format: 'pem' }).toString()
}

function derOf({ publicKey }: Pick<KeyPair, 'publicKey'>): Buffer<ArrayBuffer> {
  return Buffer.from(publicKey.export({ type: 'spki', format: 'der' }))
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}

function hashOf(bytes: Uint8Array): Buffer {
  return createHash('sha256').update(bytes).digest()
}

/** A certificate authority of sigstore with its logs. */
export class Authority {
  readonly #keys = { authority: newKeys(), log: newKeys(), certificates: newKeys() }
  readonly #made = initializeCTLog(this.#keys.certificates).then((log) => initializeCA(this.#keys.authority, log))

  /** Returns the trusted root that names it. */
  async trustedRoot(): Promise<JsonObject> {
    const { rootCertificate } = await this.#made
    const log = (keys: KeyPair, baseUrl: string): JsonObject => ({
      ...{ baseUrl, hashAlgorithm: 'SHA2_256', logId: { keyId: base64(hashOf(derOf(keys))) } },
      publicKey: { rawBytes: base64(derOf(keys)), keyDetails: 'PKIX_ECDSA_P256_SHA_256', validFor },
    })
    const certificates = [{ rawBytes: base64(rootCertificate as Uint8Array) }] // a buffer
    return {
      mediaType: 'application/vnd.dev.sigstore.trustedroot+json;version=0.1',
      certificateAuthorities: [{ uri: 'https://authority.example', certChain: { certificates }, validFor }],
      tlogs: [log(this.#keys.log, logUrl)],
      ctlogs: [log(this.#keys.certificates, 'https://certificates.example')],
    }
  }

  /** Resolves with a certificate for a key, which begins now, in DER form. */
  async certify(
    keys: Pick<KeyPair, 'publicKey'>,
    { issuer = identity.issuer, subject = identity.subject }: Pick<Keyless, 'issuer' | 'subject'>,
  ): Promise<Buffer> {
    const authority = await this.#made
    const extensions = issuerExtensions.map((one) => ({ ...one, value: issuer }))
    const certificate = await authority.issueCertificate({ publicKey: derOf(keys), subjectAltName: subject, extensions })
    return Buffer.from(certificate as Uint8Array) // a buffer
  }

  /** Resolves with the entry of the log at a time. */
  async log(body: JsonObject, at: Date): Promise<LogEntry> {
    const log = await initializeTLog(logUrl, this.#keys.log, at)
    // A cast: the package lacks the types of its answer.
    const [entry] = Object.values((await log.log(body)) as Readonly<Record<string, MadeEntry>>)
    if (entry === undefined) throw new Error('the log has no entry')
    const { verification } = entry
    const { logIndex, treeSize, rootHash, hashes, checkpoint } = verification.inclusionProof
    return {
      ...{ logIndex: String(entry.logIndex), integratedTime: String(entry.integratedTime), canonicalizedBody: entry.body },
      logId: { keyId: Buffer.from(entry.logID, 'hex').toString('base64') },
      kindVersion: { kind: String(body['kind']), version: String(body['apiVersion']) },
      inclusionPromise: { signedEntryTimestamp: verification.signedEntryTimestamp },
      inclusionProof: {
        ...{ logIndex: String(logIndex), treeSize: String(treeSize), rootHash: Buffer.from(rootHash, 'hex').toString('base64'), hashes },
        checkpoint: { envelope: checkpoint },
      },
    }
  }
}

/** Resolves with the certificate, and the entry of the log about `body`, if the signer has them. */
async function materialOf({ keys, keyless }: Signer, body: JsonObject): Promise<{ readonly certificate?: Buffer; readonly entry?: LogEntry | undefined }> {
  if (keyless === undefined) return {}
  const { authority, loggedAfterMs = 60_000, change = (one) => one } = keyless
  const certificate = await authority.certify(keys, keyless)
  return { certificate, entry: change(await authority.log(body, new Date(Date.now() + loggedAfterMs))) }
}

function signedBy({ keys, hash = 'sha256' }: Signer, bytes: Buffer): Buffer {
  return sign(hash, bytes, keys.privateKey)
}

/** Resolves with a signature in cosign's older form: the bytes and annotations of a layer. */
export async function signedPayload(
  signer: Signer,
  { digest, type = 'cosign container image signature' }: Statement,
): Promise<{ readonly payload: Buffer; readonly annotations: Readonly<Record<string, string>> }> {
  const critical = { identity: { 'docker-reference': 'registry.example/app' }, image: { 'docker-manifest-digest': digest }, type }
  const payload = Buffer.from(JSON.stringify({ critical, optional: null }))
  const signature = base64(signedBy(signer, payload))
  const data = { hash: { algorithm: 'sha256', value: hashOf(payload).toString('hex') } }
  const { certificate, entry } = await materialOf(signer, { apiVersion: '0.0.1', kind: 'hashedrekord', spec: { signature: { content: signature }, data } })
  const annotations: Record<string, string> = { 'dev.cosignproject.cosign/signature': signature }
  if (certificate !== undefined)
    annotations['dev.sigstore.cosign/certificate'] = `-----BEGIN CERTIFICATE-----\n${base64(certificate)}\n-----END CERTIFICATE-----\n`
  if (entry !== undefined) {
    const { canonicalizedBody: body, integratedTime, logIndex, logId, inclusionPromise } = entry
    const logID = Buffer.from(logId.keyId, 'base64').toString('hex')
    const bundle = {
      SignedEntryTimestamp: inclusionPromise.signedEntryTimestamp,
      Payload: { body, integratedTime: Number(integratedTime), logIndex: Number(logIndex), logID },
    }
    annotations['dev.sigstore.cosign/bundle'] = JSON.stringify(bundle)
  }
  return { payload, annotations }
}

/** Resolves with a signature in the newer form: a sigstore bundle. */
export async function signedBundle(
  signer: Signer,
  { digest, type = 'https://sigstore.dev/cosign/sign/v1', payloadType = 'application/vnd.in-toto+json' }: Statement,
): Promise<Buffer> {
  const [algorithm = '', hex = ''] = digest.split(':')
  const statement = { _type: 'https://in-toto.io/Statement/v1', subject: [{ digest: { [algorithm]: hex } }], predicateType: type, predicate: {} }
  const payload = Buffer.from(JSON.stringify(statement))
  const sig = base64(signedBy(signer, dsse.preAuthEncoding(payloadType, payload)))
  const payloadHash = { algorithm: 'sha256', value: hashOf(payload).toString('hex') }
  const { certificate, entry } = await materialOf(signer, { apiVersion: '0.0.1', kind: 'dsse', spec: { signatures: [{ signature: sig }], payloadHash } })
  return Buffer.from(
    JSON.stringify({
      mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
      verificationMaterial: {
        ...(certificate === undefined ? { publicKey: { hint: 'a key' } } : { certificate: { rawBytes: base64(certificate) } }),
        tlogEntries: entry === undefined ? [] : [entry],
      },
      dsseEnvelope: { payload: base64(payload), payloadType, signatures: [{ sig }] },
    }),
  )
}
