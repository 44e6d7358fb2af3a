import { randomBytes } from 'node:crypto'
import { link, readFile, rm, writeFile } from 'node:fs/promises'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, SignJWT } from 'jose'
import type { JWK } from 'jose'
import type { Clock } from '../core/runtime.ts'
import type { DiscoveryDocument } from './discovery-document.ts'
import { createKeySet, publicPart } from './key-set.ts'
import type { KeySet } from './key-set.ts'

/** What a development token is to say. */
export interface DevTokenInput {
  readonly subject: string
  readonly audience: string | readonly string[]
  /** Further claims. */
  readonly claims?: Readonly<Record<string, unknown>>
  /** 3600 where absent. */
  readonly lifeSeconds?: number
}

/** An OIDC issuer for development, inside the process: it signs whatever it is asked to. Never part of a production role. */
export interface DevIssuer {
  readonly issuer: string
  mintDevToken(input: DevTokenInput): Promise<string>
  readonly discovery: DiscoveryDocument
  readonly keySet: KeySet
}

/** What a development issuer is made of. */
export interface DevIssuerOptions {
  /** File with its private JWK; made, readable by the owner only, where absent. */
  readonly keyFile: string
  /** `<baseUrl>/dev/issuer` */
  readonly issuer: string
  readonly clock: Clock
}

const algorithm = 'ES256'

/** See DevIssuer. Rejects where the key file can't be read, made or understood. */
export async function createDevIssuer(options: DevIssuerOptions): Promise<DevIssuer> {
  const { issuer, clock } = options
  const key = JSON.parse((await readKeyFile(options.keyFile)) ?? (await makeKeyFile(options.keyFile))) as JWK // a cast of our own file; importing it checks it
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

async function readKeyFile(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined
    throw error
  }
}

/** Linked into place whole: whoever reads the file reads a whole key, and of two that make it one wins. */
async function makeKeyFile(path: string): Promise<string> {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true })
  const fresh = `${path}.${randomBytes(6).toString('hex')}`
  await writeFile(fresh, `${JSON.stringify(await exportJWK(privateKey))}\n`, { mode: 0o600, flag: 'wx' })
  try {
    await link(fresh, path)
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error
  } finally {
    await rm(fresh)
  }
  return await readFile(path, 'utf8')
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
