import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, SignJWT } from 'jose'
import type { JWK } from 'jose'
import type { Clock } from '../../base/runtime.ts'
import type { DiscoveryDocument } from './discovery-document.ts'
import { createKeySet, publicPart } from '../keys/key-set.ts'
import type { KeySet } from '../keys/key-set.ts'
import { makeSecretFile, readSecretFile } from '../keys/secret-file.ts'

/** The content of a development token. */
export interface DevTokenInput {
  readonly subject: string
  readonly audience: string | readonly string[]
  /** Claims of the token in addition to issuer, subject, audience and times. */
  readonly claims?: Readonly<Record<string, unknown>>
  /** Lifetime of the token in seconds; 3600 by default. */
  readonly lifeSeconds?: number
}

/** An OIDC issuer inside the process, for development only: it signs any token on request. No production role contains it. */
export interface DevIssuer {
  readonly issuer: string
  mintDevToken(input: DevTokenInput): Promise<string>
  readonly discovery: DiscoveryDocument
  readonly keySet: KeySet
}

/** The dependencies of the development issuer. */
export interface DevIssuerOptions {
  /** File with the issuer's private key as a JWK. If it is missing, it is created, readable by its owner only. */
  readonly keyFile: string
  /** The issuer's URL: `<baseUrl>/dev/issuer`. */
  readonly issuer: string
  readonly clock: Clock
}

const algorithm = 'ES256'

/** Creates the development issuer. Rejects if the key file cannot be read, created or parsed. */
export async function createDevIssuer(options: DevIssuerOptions): Promise<DevIssuer> {
  const { issuer, clock } = options
  const content = (await readSecretFile(options.keyFile)) ?? (await makeSecretFile(options.keyFile, await freshKey()))
  const key = JSON.parse(content.toString('utf8')) as JWK // This program wrote the file, and the import checks it.
  const bare = publicPart(key)
  const kid = await calculateJwkThumbprint(bare)
  const privateKey = await importJWK(key, algorithm)
  return {
    issuer,
    async mintDevToken({ subject, audience, claims, lifeSeconds }) {
      const nowSeconds = Math.floor(clock.now() / 1000)
      return await new SignJWT({ ...claims })
        .setProtectedHeader({ alg: algorithm, kid, typ: 'JWT' })
        .setIssuer(issuer)
        .setSubject(subject)
        .setAudience(typeof audience === 'string' ? audience : [...audience])
        .setIssuedAt(nowSeconds)
        .setExpirationTime(nowSeconds + (lifeSeconds ?? 3600))
        .sign(privateKey)
    },
    discovery: {
      issuer,
      jwks_uri: `${issuer}/jwks.json`,
      response_types_supported: ['id_token'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: [algorithm],
      claims_supported: ['iss', 'sub', 'aud', 'iat', 'exp'],
    },
    keySet: createKeySet([{ ...bare, kid, alg: algorithm, use: 'sig' }]),
  }
}

async function freshKey(): Promise<string> {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true })
  return `${JSON.stringify(await exportJWK(privateKey))}\n`
}
