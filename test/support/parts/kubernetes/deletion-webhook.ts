import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { createServer } from 'node:https'
import { json } from 'node:stream/consumers'
import { issueAuthority, issueLeaf } from '../../../../src/base/certificate.ts'
import { closeNow, listenOnLoopback } from '../loopback.ts'

/** An admission webhook for deletions. */
export interface DeletionWebhook {
  /** The `clientConfig` of a ValidatingWebhookConfiguration. */
  readonly clientConfig: { readonly url: string; readonly caBundle: string }
  stop(): Promise<void>
}

const pemOf = (der: Buffer): string => `-----BEGIN CERTIFICATE-----\n${der.toString('base64').replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`

function certificates(): { readonly ca: string; readonly cert: string; readonly key: string } {
  const [authority, server] = [generateKeyPairSync('ec', { namedCurve: 'P-256' }), generateKeyPairSync('ec', { namedCurve: 'P-256' })]
  const life = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 }
  const request = (subject: string, { publicKey }: typeof server) => ({ subject, publicKey, serial: randomBytes(16), ...life })
  const ca = issueAuthority(request('webhook-ca', authority), authority.privateKey)
  const leaf = { ...request('localhost', server), dnsNames: ['localhost'], tlsRoles: ['server'] as const }
  const cert = issueLeaf(leaf, { name: 'webhook-ca', privateKey: authority.privateKey })
  return { ca: pemOf(ca), cert: pemOf(cert), key: server.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

/** Starts a webhook on loopback that allows each deletion after `asked`, called with the object's name, has resolved. */
export async function startDeletionWebhook(asked: (name: string) => Promise<void>): Promise<DeletionWebhook> {
  const { ca, cert, key } = certificates()
  const server = createServer({ cert, key }, (request, response) => {
    void (async () => {
      // The API server sends AdmissionReview v1.
      const { request: review } = (await json(request)) as { request: { uid: string; name: string } }
      await asked(review.name)
      const answer = { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response: { uid: review.uid, allowed: true } }
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
    })()
  })
  const port = await listenOnLoopback(server)
  return {
    clientConfig: { url: `https://localhost:${port}/`, caBundle: Buffer.from(ca).toString('base64') },
    stop: () => closeNow(server),
  }
}
