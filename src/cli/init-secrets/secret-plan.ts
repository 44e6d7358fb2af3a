import { X509Certificate } from 'node:crypto'
import { tlsUsages } from '../../base/certificate.ts'
import type { WantedCertificate, WantedSecret } from './wanted.ts'

/** Data of a Secret: entry -> bytes. */
export type SecretData = Readonly<Record<string, Buffer>>

/** An existing Secret. */
export interface FoundSecret {
  readonly data: SecretData
  /** True if this command created it. Other Secrets belong to the user and are never changed. */
  readonly isOurs: boolean
}

/**
 * The action for one Secret:
 * - `keep`: it is valid, or belongs to the user
 * - `make`: it is missing
 * - `renew`: it exists, this command created it, and its certificate is no longer good
 */
export type SecretAction = 'keep' | 'make' | 'renew'

const dayMs = 24 * 3_600_000

/** Lifetimes of issued certificates, and the remaining lifetime at which they are renewed. */
export const certificateLife = { authorityMs: 30 * 365 * dayMs, leafMs: 3 * 365 * dayMs, renewBeforeMs: 2 * 365 * dayMs } as const

/** The facts needed to check a certificate. */
export interface CertificateView {
  readonly nowMs: number
  /** Current certificate of the authority, PEM; undefined if it does not exist yet. */
  readonly authority: Buffer | undefined
}

/** Returns the action for one Secret. Only certificates are renewed. A new key or password would not match the data that it protects. */
export function planSecret(wanted: WantedSecret, found: FoundSecret | undefined, view: CertificateView): SecretAction {
  if (found === undefined) return 'make'
  if (!found.isOurs || wanted.kind !== 'certificate') return 'keep'
  return isGood(wanted, found.data, view) ? 'keep' : 'renew'
}

function isGood(wanted: WantedCertificate, data: SecretData, { nowMs, authority }: CertificateView): boolean {
  const certificate = parseCertificate(data['tls.crt'])
  const signer = parseCertificate(authority)
  if (certificate === undefined || signer === undefined || data['tls.key'] === undefined) return false
  if (parseCertificate(data['ca.crt'])?.fingerprint256 !== signer.fingerprint256) return false
  if (!certificate.verify(signer.publicKey) || certificate.validToDate.getTime() - nowMs < certificateLife.renewBeforeMs) return false
  const names = (certificate.subjectAltName ?? '').split(', ')
  const usages: readonly string[] = certificate.keyUsage ?? []
  return (
    certificate.subject === `CN=${wanted.commonName}` &&
    wanted.dnsNames.every((name) => names.includes(`DNS:${name}`)) &&
    wanted.usages.every((usage) => usages.includes(tlsUsages[usage]))
  )
}

function parseCertificate(pem: Buffer | undefined): X509Certificate | undefined {
  if (pem === undefined) return undefined
  try {
    return new X509Certificate(pem)
  } catch {
    // Not a certificate.
    return undefined
  }
}
