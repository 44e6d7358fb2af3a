import { X509Certificate } from 'node:crypto'
import { tlsUsages } from '../../base/certificate.ts'
import type { WantedCertificate, WantedSecret } from './wanted.ts'

/** Data of a Secret, by the name of the entry. */
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
 * - `renew`: this command created it, and its certificate expires soon or does not match
 */
export type SecretAction = 'keep' | 'make' | 'renew'

const dayMs = 24 * 3_600_000

/** Lifetimes of certificates, and the remaining lifetime at which they are renewed, in milliseconds. */
export const certificateLife = { authorityMs: 30 * 365 * dayMs, leafMs: 3 * 365 * dayMs, renewBeforeMs: 2 * 365 * dayMs } as const

/** Facts for checking a certificate. */
export interface CertificateView {
  readonly nowMs: number
  /** Current certificate of the authority, PEM; undefined if it does not exist yet. */
  readonly authority: Buffer | undefined
}

/** Returns the action for one Secret. Only certificates are renewed; existing data would not match a new key or password. */
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
