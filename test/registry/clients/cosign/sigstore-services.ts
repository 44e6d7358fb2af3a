import { createHash, createPublicKey, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { JsonObject } from '@bufbuild/protobuf'
import type { Authority } from '../../policies/signing.ts'

/** What cosign asks the certificate authority for. */
interface CertificateRequest {
  readonly publicKeyRequest: { readonly publicKey: { readonly content: string } }
}

/** A DSSE envelope to be logged, and who signed it. */
interface ProposedEnvelope {
  readonly proposedContent: { readonly envelope: string; readonly verifiers: readonly string[] }
}

/** The services of sigstore by HTTP, on the loopback interface: Fulcio and Rekor (v1). */
export interface SigstoreServices {
  readonly url: string
  /** Milliseconds between the time now and that at which the log says it got a signature. */
  loggedAfterMs: number
  readonly stop: () => Promise<void>
}

const sha256 = (bytes: string | Buffer): JsonObject => ({ algorithm: 'sha256', value: createHash('sha256').update(bytes).digest('hex') })

/** Returns the entry of a log as Rekor keeps it. It does not keep the payload of an envelope. */
function keptEntry(proposed: JsonObject): JsonObject {
  if (proposed['kind'] !== 'dsse') return proposed
  const { envelope, verifiers } = (proposed['spec'] as unknown as ProposedEnvelope).proposedContent // its form
  const { payload, signatures } = JSON.parse(envelope) as { payload: string; signatures: { sig: string }[] } // its form
  const signed = signatures.map(({ sig }, at) => ({ signature: sig, verifier: verifiers[at] ?? '' }))
  return { ...proposed, spec: { envelopeHash: sha256(envelope), payloadHash: sha256(Buffer.from(payload, 'base64')), signatures: signed } }
}

/** Starts Fulcio and Rekor with the keys of an authority. Fulcio certifies whom a token names, without a look at the token's signature. */
export async function startSigstore(authority: Authority): Promise<SigstoreServices> {
  const certify = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { publicKeyRequest } = JSON.parse(await text(request)) as CertificateRequest // its form
    const claims = Buffer.from(request.headers.authorization?.split('.')[1] ?? '', 'base64url').toString()
    const { iss: issuer, sub: subject } = JSON.parse(claims) as { iss: string; sub: string } // of `identityToken`
    const der = await authority.certify({ publicKey: createPublicKey(publicKeyRequest.publicKey.content) }, { issuer, subject })
    const pem = `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ signedCertificateEmbeddedSct: { chain: { certificates: [pem] } } }))
  }
  const log = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const proposed = JSON.parse(await text(request)) as JsonObject // an object
    const entry = await authority.log(keptEntry(proposed), new Date(Date.now() + services.loggedAfterMs))
    const { checkpoint, ...proof } = entry.inclusionProof
    const hex = (base64: unknown): string => Buffer.from(String(base64), 'base64').toString('hex')
    const uuid = randomBytes(32).toString('hex')
    const made = {
      ...{ body: entry.canonicalizedBody, integratedTime: Number(entry.integratedTime), logID: hex(entry.logId.keyId), logIndex: Number(entry.logIndex) },
      verification: {
        ...entry.inclusionPromise,
        inclusionProof: {
          ...{ logIndex: Number(proof['logIndex']), treeSize: Number(proof['treeSize']), rootHash: hex(proof['rootHash']), hashes: [] },
          checkpoint: (checkpoint as JsonObject)['envelope'], // of Authority
        },
      },
    }
    response.writeHead(201, { 'content-type': 'application/json', etag: uuid, location: `/api/v1/log/entries/${uuid}` })
    response.end(JSON.stringify({ [uuid]: made }))
  }
  const answers: Readonly<Record<string, typeof log>> = { '/api/v2/signingCert': certify, '/api/v1/log/entries': log }
  const server = createServer((request, response) => {
    const answer = answers[request.url ?? '']
    if (answer === undefined) response.writeHead(404).end()
    else answer(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const services: SigstoreServices = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, // it listens on a port
    loggedAfterMs: 0,
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return services
}

/** Returns a token that names an identity, in the form of OpenID Connect. */
export function identityToken({ issuer, subject }: { readonly issuer: string; readonly subject: string }): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
  const claims = { iss: issuer, sub: subject, aud: 'sigstore', exp: Math.floor(Date.now() / 1000) + 3_600 }
  return `${part({ alg: 'RS256', typ: 'JWT' })}.${part(claims)}.${randomBytes(256).toString('base64url')}`
}
