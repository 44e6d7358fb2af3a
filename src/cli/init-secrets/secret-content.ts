import { createPrivateKey, generateKeyPairSync, X509Certificate, type KeyObject } from 'node:crypto'
import { hash } from 'bcryptjs'
import type { Clock, Random } from '../../base/runtime.ts'
import { issueAuthority, issueLeaf, type CertificateRequest } from '../../base/certificate.ts'
import { certificateLife, type SecretData } from './secret-plan.ts'
import type { WantedAuthority, WantedCertificate, WantedRegistryPassword, WantedSecret } from './wanted.ts'

/** Dependencies for creating secrets. */
export interface SecretSources {
  readonly clock: Clock
  readonly random: Random
}

/**
 * Work factor of bcrypt. It is low, since the registry checks the password with every request. The password has 256 random bits, so it
 * cannot be guessed anyway.
 */
const bcryptRounds = 4
/** How much earlier than now a certificate becomes valid, in milliseconds, for machines whose clocks are behind. */
const clockSkewMs = 3_600_000

/** Returns the data for a new Secret. A certificate needs the data of its authority; throws if that has no certificate and key. */
export async function createSecretData(wanted: WantedSecret, authority: SecretData | undefined, sources: SecretSources): Promise<SecretData> {
  switch (wanted.kind) {
    case 'encryption-key':
      return { key: Buffer.from(Buffer.from(sources.random.bytes(32)).toString('base64')) }
    case 'registry-password':
      return registryPassword(wanted, sources)
    case 'authority':
      return newAuthority(wanted, sources)
    case 'certificate':
      return newCertificate(wanted, authority ?? {}, sources)
  }
}

/** Returns the type of the Kubernetes Secret. */
export function secretTypeOf({ kind }: WantedSecret): string {
  return kind === 'authority' || kind === 'certificate' ? 'kubernetes.io/tls' : 'Opaque'
}

async function registryPassword({ username }: WantedRegistryPassword, { random }: SecretSources): Promise<SecretData> {
  const randomText = (): string => Buffer.from(random.bytes(32)).toString('base64url')
  const password = randomText()
  return {
    password: Buffer.from(password),
    htpasswd: Buffer.from(`${username}:${await hash(password, bcryptRounds)}\n`),
    'http-secret': Buffer.from(randomText()),
  }
}

function newAuthority({ commonName }: WantedAuthority, sources: SecretSources): SecretData {
  const { publicKey, privateKey } = newKeyPair()
  const certificate = issueAuthority(requestOf(commonName, publicKey, { ...sources, lifeMs: certificateLife.authorityMs }), privateKey)
  return { 'tls.crt': pemOf(certificate), 'tls.key': pemKey(privateKey) }
}

function newCertificate(wanted: WantedCertificate, authority: SecretData, sources: SecretSources): SecretData {
  const { 'tls.crt': ca, 'tls.key': caKey } = authority
  if (ca === undefined || caKey === undefined) throw new Error(`${wanted.authority} holds no authority: tls.crt and tls.key are missing`)
  const { publicKey, privateKey } = newKeyPair()
  const request = requestOf(wanted.commonName, publicKey, { ...sources, lifeMs: certificateLife.leafMs })
  const issuer = { name: commonNameOf(new X509Certificate(ca)), privateKey: createPrivateKey(caKey) }
  const certificate = issueLeaf({ ...request, dnsNames: wanted.dnsNames, tlsRoles: wanted.usages }, issuer)
  return { 'ca.crt': ca, 'tls.crt': pemOf(certificate), 'tls.key': pemKey(privateKey) }
}

function newKeyPair(): { publicKey: KeyObject; privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' })
}

function requestOf(subject: string, publicKey: KeyObject, { clock, random, lifeMs }: SecretSources & { lifeMs: number }): CertificateRequest {
  const now = clock.now()
  return { subject, publicKey, serial: random.bytes(16), notBeforeMs: now - clockSkewMs, notAfterMs: now + lifeMs }
}

/** Returns the common name of a certificate of this command, which is its only name attribute. */
function commonNameOf({ subject }: X509Certificate): string {
  return subject.replace(/^CN=/, '')
}

function pemOf(der: Buffer): Buffer {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return Buffer.from(['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'))
}

function pemKey(key: KeyObject): Buffer {
  return Buffer.from(key.export({ type: 'pkcs8', format: 'pem' }))
}
