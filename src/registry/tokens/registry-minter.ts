import { signEs256 } from '../../auth/keys/es256.ts'
import { writeIssueTime } from '../../auth/access-tokens/caller-claims.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { writeClaims, type TokenBearer, type TokenRights } from './registry-claims.ts'
import type { RegistryKey, RegistryKeys } from './registry-keys.ts'

/** The content of a registry token. */
export interface TokenGrant extends TokenRights {
  /** Undefined for an anonymous request. */
  readonly bearer: GrantBearer | undefined
}

/** The caller for whom a token is issued. */
export interface GrantBearer extends Omit<TokenBearer, 'issuedAtMs'> {
  /** When the identity was created, in milliseconds since 1970. Its tokens must not be older. */
  readonly notBeforeMs: number
}

/** A registry token, and when it was issued. */
export interface MintedToken {
  readonly token: string
  readonly issuedAtMs: number
}

/** Dependencies and settings of the minter. */
export interface RegistryMinterOptions {
  /** `iss` of the tokens: this platform. So no token exchange accepts a registry token. */
  readonly issuer: string
  /** `aud` of the tokens: the name of the registry host. */
  readonly service: string
  readonly keys: RegistryKeys
  readonly clock: Clock
  readonly random: Random
  /** The lifetime of the tokens, in seconds: 600 by default, and 3600 at most, because their keys are kept for longer than that only. */
  readonly tokenSeconds?: number
}

/** Lifetime of a registry token for a client, in seconds (docs/spec/registry.md#registry-token-endpoint). */
export const registryTokenSeconds = 600

/**
 * How long identical grants return the same token, in milliseconds. During a rollout many machines pull an image at once, mostly with one
 * credential. A signature costs as much as the rest of the response. The grant itself is still decided for each request.
 */
const reuseMs = 1000
/** Approximate maximum size of all reusable tokens, in bytes. */
const lateBytes = 16 * 1024 * 1024

/** Creates the function that issues registry tokens. */
export function createRegistryMinter(options: RegistryMinterOptions): (grant: TokenGrant) => MintedToken {
  const { issuer, service, keys, clock, random, tokenSeconds = registryTokenSeconds } = options
  // The claims are in memory twice: in the cache key and in the token.
  const lately = new RecentMap<string, MintedToken>(lateBytes, ({ token }) => 4 * token.length, { clock, ms: reuseMs })

  function make(key: RegistryKey, said: Readonly<Record<string, unknown>>, issuedAtMs: number): MintedToken {
    const times = writeIssueTime(issuedAtMs)
    const claims = { ...said, ...times, exp: times.iat + tokenSeconds, jti: randomHex(random, 16) }
    return { token: signEs256(key.header, claims, key.privateKey), issuedAtMs }
  }

  return ({ bearer, ...rights }) => {
    const notBeforeMs = bearer?.notBeforeMs ?? 0
    const issuedAtMs = Math.max(clock.now(), notBeforeMs)
    const key = keys.current()
    const said = { iss: issuer, aud: service, ...writeClaims(bearer, rights) }
    // A new identity with the same uid must not get a token of the earlier identity, so the creation time is part of the name.
    const name = `${key.kid} ${notBeforeMs} ${JSON.stringify(said)}`
    const known = lately.get(name)
    if (known !== undefined && known.issuedAtMs <= issuedAtMs && issuedAtMs - known.issuedAtMs < reuseMs) return known
    const made = make(key, said, issuedAtMs)
    lately.set(name, made)
    return made
  }
}
