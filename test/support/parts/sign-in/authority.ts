import { createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto'
import { issueAuthority, issueLeaf, type TlsRole } from '../../../../src/base/certificate.ts'

/** A certificate and its key, as PEM. */
export interface IssuedCertificate {
  readonly certificate: string
  readonly key: string
}

/** A certificate authority for a test. */
export interface TestAuthority {
  /** PEM. */
  readonly certificate: string
  /** Issues a certificate for `localhost` or another name, valid for an hour by default. */
  issue(options?: { readonly name?: string; readonly lifeSeconds?: number; readonly roles?: readonly TlsRole[] }): IssuedCertificate
}

const anyRole: readonly TlsRole[] = ['server', 'client']
const hourSeconds = 3_600

function pemOf(der: Buffer): string {
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64').replaceAll(/.{64}(?=.)/g, '$&\n')}\n-----END CERTIFICATE-----\n`
}

function times(lifeSeconds: number): { notBeforeMs: number; notAfterMs: number } {
  return { notBeforeMs: Date.now() - hourSeconds * 1000, notAfterMs: Date.now() + lifeSeconds * 1000 }
}

/** Creates an authority with a certificate valid for a day. */
export function createAuthority(name = `authority ${randomBytes(4).toString('hex')}`): TestAuthority {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const own = { subject: name, publicKey, serial: randomBytes(16), ...times(24 * hourSeconds) }
  return {
    certificate: pemOf(issueAuthority(own, privateKey)),
    issue({ name: subject = 'localhost', lifeSeconds = hourSeconds, roles } = {}) {
      const { privateKey: key } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
      const request = {
        subject,
        publicKey: createPublicKey(key),
        serial: randomBytes(16),
        dnsNames: [subject],
        tlsRoles: roles ?? anyRole,
        ...times(lifeSeconds),
      }
      return { certificate: pemOf(issueLeaf(request, { name, privateKey })), key: key.export({ type: 'pkcs8', format: 'pem' }).toString() }
    },
  }
}
