import { capabilityByName, setOf } from '../core/capability.ts'
import type { CapabilitySet } from '../core/capability.ts'
import { DomainError } from '../core/errors.ts'
import { parseUid } from '../core/uid.ts'
import type { Uid } from '../core/uid.ts'
import { parseAuthorization } from './authorization-header.ts'
import { decodeToken } from './decoded-token.ts'
import { urlForms } from './default-audiences.ts'
import type { ExternalSignIn, SignedIn } from './external-sign-in.ts'
import type { PlatformTokens } from './platform-token.ts'
import type { Narrowing } from './principal.ts'
import { tokenFailure } from './token-error.ts'

/** What is asked of an exchange (rules 8); repeated keys as lists, `scope` already in `scopes`. */
export interface ExchangeInput {
  /** The raw `authorization` header or metadata: the upstream token. */
  readonly authorization: string | undefined
  readonly aud: readonly string[]
  /** The identity to assume; empty counts as absent. */
  readonly identity?: string
  readonly scopes: readonly string[]
  /** Dotted capability names. */
  readonly cap: readonly string[]
}

/** A fresh access token. */
export interface Exchanged {
  readonly token: string
  readonly expiryMs: number
  readonly principal: SignedIn
  readonly narrowing: Narrowing
}

/** What an exchange is made of. */
export interface ExchangeOptions {
  readonly signIn: ExternalSignIn
  readonly tokens: PlatformTokens
  /** The audiences that may be asked for, configuration `tokens.audiences`. */
  readonly audiences: readonly string[]
  /** The audience where none is asked for. */
  readonly defaultAudience: string
  /** What the principal holds, by group uid: informational, for the token's `cap`. */
  heldBy?(principal: SignedIn, narrowing: Narrowing): ReadonlyMap<Uid, CapabilitySet>
}

/**
 * The token exchange behind REST and gRPC. Throws DomainError: 16 without a readable bearer; 7 `verifying token: ...` for a bad one; 7 where it does not match; 14 where
 * the issuer's keys can't be had now; 3 on `aud`, `scopes` or `cap`.
 */
export type Exchange = (input: ExchangeInput, signal: AbortSignal) => Promise<Exchanged>

const maxScopes = 50
/** Characters of all scopes together: the token has to fit into a header. */
const maxScopesLength = 4096

/** See Exchange. */
export function createExchange(options: ExchangeOptions): Exchange {
  return async (input, signal) => {
    const principal = await signInAt(options.signIn, input, signal)
    const audiences = chooseAudiences(options, input.aud)
    const narrowing = chooseNarrowing(input)
    const held = options.heldBy?.(principal, narrowing)
    const { token, expiresAtMs } = await options.tokens.mint({
      identityUid: principal.identityUid,
      audiences,
      act: principal.act,
      narrowing,
      ...(principal.createTimeMs === undefined ? {} : { notBeforeMs: principal.createTimeMs }),
      ...(held === undefined ? {} : { held }),
    })
    return { token, expiryMs: expiresAtMs, principal, narrowing }
  }
}

async function signInAt(signIn: ExternalSignIn, input: ExchangeInput, signal: AbortSignal): Promise<SignedIn> {
  try {
    const credential = parseAuthorization(input.authorization)
    const named = input.identity === '' ? undefined : input.identity
    return await signIn.signIn(decodeToken(credential.token), named ?? credential.identity, signal)
  } catch (error) {
    throw tokenFailure(error, 'exchange')
  }
}

/** Audiences as the client spells them; a final slash makes no difference to what is allowed. */
function chooseAudiences(options: ExchangeOptions, asked: readonly string[]): readonly string[] {
  const wanted = [...new Set(asked.filter((audience) => audience !== ''))]
  if (wanted.length === 0) return [options.defaultAudience]
  const allowed = new Set(options.audiences.flatMap(urlForms))
  if (wanted.every((audience) => allowed.has(audience))) return wanted
  throw DomainError.invalid('aud', `must be one of ${options.audiences.join(', ')}`)
}

function chooseNarrowing(input: ExchangeInput): Narrowing {
  const scopes = [...new Set(input.scopes.filter((scope) => scope !== ''))].map((scope) => parseUid(scope, 'scopes'))
  if (scopes.length > maxScopes || scopes.join().length > maxScopesLength) {
    throw DomainError.invalid('scopes', `must be at most ${String(maxScopes)} uids, ${String(maxScopesLength)} characters in all`)
  }
  const names = input.cap.filter((name) => name !== '')
  if (names.some((name) => capabilityByName(name) === undefined)) throw DomainError.invalid('cap', 'must be names of capabilities, such as groups.list')
  return {
    ...(scopes.length === 0 ? {} : { scopes }),
    ...(names.length === 0 ? {} : { capabilities: setOf(names) }),
  }
}
