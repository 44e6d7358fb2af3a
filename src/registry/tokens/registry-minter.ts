import { signEs256 } from '../../auth/keys/es256.ts'
import { writeIssueTime } from '../../auth/tokens/caller-claims.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { writeClaims, type TokenBearer, type TokenRights } from './registry-claims.ts'
import type { RegistryKey, RegistryKeys } from './registry-keys.ts'

/** What a registry token is to say. */
export interface TokenGrant extends TokenRights {
  /** Undefined for an anonymous request. */
  readonly bearer: GrantBearer | undefined
}

/** Whom a token is made for. */
export interface GrantBearer extends Omit<TokenBearer, 'issuedAtMs'> {
  /** When the identity was made: no token of theirs is older. */
  readonly notBeforeMs: number
}

/** A registry token, and when it was made. */
export interface MintedToken {
  readonly token: string
  readonly issuedAtMs: number
}

/** What registry tokens are made of. */
export interface RegistryMinterOptions {
  /** `iss`: our own issuer, so that no exchange takes such a token. */
  readonly issuer: string
  /** `aud`: the registry host. */
  readonly service: string
  readonly keys: RegistryKeys
  readonly clock: Clock
  readonly random: Random
}

/** How long a registry token lives, in seconds (docs/spec/registry.md#registry-token-endpoint). */
export const registryTokenSeconds = 600

/**
 * Time during which identical grants return the same token, in milliseconds. During a rollout many machines pull an image at once, mostly with one credential.
 * A signature costs as much as the rest of the answer. The grant is still decided for each request.
 */
const reuseMs = 1000
/** Approximate maximum size of all tokens that can be returned again, in bytes. */
const lateBytes = 16 * 1024 * 1024

/** Makes registry tokens. */
export function createRegistryMinter({ issuer, service, keys, clock, random }: RegistryMinterOptions): (grant: TokenGrant) => MintedToken {
  // What a token says is in its name here once, and once in itself.
  const lately = new RecentMap<string, MintedToken>(lateBytes, ({ token }) => 4 * token.length, { clock, ms: reuseMs })

  function make(key: RegistryKey, said: Readonly<Record<string, unknown>>, issuedAtMs: number): MintedToken {
    const times = writeIssueTime(issuedAtMs)
    const claims = { ...said, ...times, exp: times.iat + registryTokenSeconds, jti: randomHex(random, 16) }
    return { token: signEs256(key.header, claims, key.privateKey), issuedAtMs }
  }

  return ({ bearer, ...rights }) => {
    const notBeforeMs = bearer?.notBeforeMs ?? 0
    const issuedAtMs = Math.max(clock.now(), notBeforeMs)
    const key = keys.current()
    const said = { iss: issuer, aud: service, ...writeClaims(bearer, rights) }
    // An identity that is created again gets no token of its predecessor.
    const name = `${key.kid} ${notBeforeMs} ${JSON.stringify(said)}`
    const known = lately.get(name)
    if (known !== undefined && known.issuedAtMs <= issuedAtMs && issuedAtMs - known.issuedAtMs < reuseMs) return known
    const made = make(key, said, issuedAtMs)
    lately.set(name, made)
    return made
  }
}
