import { X509Certificate } from 'node:crypto'
import { tlsUsages } from '../../base/certificate.ts'
import type { WantedCertificate, WantedSecret } from './wanted.ts'

/** Data of a Secret: entry -> bytes. */
export type SecretData = Readonly<Record<string, Buffer>>

/** A Secret as it was found. */
export interface FoundSecret {
  readonly data: SecretData
  /** It is one of those that this command makes; else it is somebody's own and never touched. */
  readonly isOurs: boolean
}

/**
 * What is to become of one Secret:
 * - `keep`: it is as it should be, or somebody's own
 * - `make`: it is not there
 * - `renew`: it is there, ours, and a certificate that is no good any more
 */
export type SecretAction = 'keep' | 'make' | 'renew'

const dayMs = 24 * 3_600_000

/** How long what is issued is good, and when before its end a certificate is renewed. */
export const certificateLife = { authorityMs: 30 * 365 * dayMs, leafMs: 3 * 365 * dayMs, renewBeforeMs: 2 * 365 * dayMs } as const

/** What is needed to judge a certificate. */
export interface CertificateView {
  readonly nowMs: number
  /** Certificate of the authority as it is now, PEM; undefined where it is still to be made. */
  readonly authority: Buffer | undefined
}

/** Decides about one Secret. Nothing but a certificate is ever renewed: a new key or password would be another one than what it protects knows. */
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
    // Whatever it is, it is no certificate.
    return undefined
  }
}
