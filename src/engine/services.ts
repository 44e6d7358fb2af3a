import type { Message, DescField } from '@bufbuild/protobuf'
import type { AccountChecks } from '../auth/account-checks.ts'
import type { Keyring } from '../auth/keys/sealing.ts'
import type { DeniesPkce } from '../auth/oidc/pkce-look.ts'
import type { Authenticated } from '../auth/tokens/authenticator.ts'
import type { TokenRestrictions } from '../auth/tokens/token-restrictions.ts'
import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import type { GrantsIndex } from '../authz/grants-index.ts'
import type { Digest } from '../base/digest.ts'
import { DomainError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import type { PageKey } from '../base/page-token.ts'
import type { Clock, Random } from '../base/runtime.ts'
import type { MethodRow } from '../base/schema/method.ts'
import type { Uid } from '../base/uid.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import type { Quotas } from './quota/quotas.ts'
import type { Guard, Store } from '../store/store.ts'

/** What is shown of one record: its message and, once a transport made them, its JSON text and its protobuf bytes. Kept while the row stays decoded. */
export interface Shown {
  readonly message: Resource
  json?: string
  binary?: Uint8Array
}

/** What a list's answer holds in one of its fields: so what was made of the items before is joined and not made again. */
export interface ShownPage {
  readonly field: DescField
  readonly items: readonly Shown[]
  /** In place of the items: what the call's transport makes of them, joined, in pieces. */
  readonly joined?: readonly Uint8Array[]
}

/** Page-token keys: the one to seal with, and those that still open. */
export interface PageKeys {
  current(): PageKey
  /** Looks in the store for a key that is not known yet; undefined where it is retired or was never one of ours. */
  find(id: string, signal: AbortSignal): Promise<PageKey | undefined>
}

/** Frees the keys of what depended on removed records. */
export interface Sweeper {
  /** Sweeps everything that is marked now. Returns whether there was anything. */
  finish(signal: AbortSignal): Promise<boolean>
  /** Sweeps what makes these guards of a refused transaction fail, and nothing else. Returns whether there was anything. */
  finishBlocking(guards: readonly Guard[], signal: AbortSignal): Promise<boolean>
}

/** What keeps the bytes of repos, as far as records need it. Rejects with DomainError code 14 where it does not answer. */
export interface ContentSource {
  /** True where the manifest's bytes are there. `digest` is the one under which the upstream has it. */
  holdsManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean>
}

/** Behaviour that the configuration decides. */
export interface ResourceSettings {
  /** Any signed-in person may create a root group and becomes its owner. */
  readonly selfServiceRootGroups: boolean
  /** How many root groups one person may have made for themselves. */
  readonly organizationsPerPerson: number
  /** The limits that new root groups get: those that operators make, and those that others make for themselves. */
  readonly limits: { readonly operators: Readonly<Record<string, number>>; readonly selfService: Readonly<Record<string, number>> }
  /** How long the name of a renamed or deleted root group is reserved for its former owners, in milliseconds. */
  readonly nameHoldMs: number
  /** Our own token issuer, which no identity may name. */
  readonly ownIssuer: string
  /** Issuers whose e-mail claims are believed, for group look-up by domain. */
  readonly trustedIssuers: ReadonlySet<string>
  /** The persons who are operators by configuration. */
  readonly operators: ReadonlySet<Uid>
  /** How long refresh tokens live, in milliseconds: unused, and with all that follow. */
  readonly refresh: { readonly idleMs: number; readonly maxMs: number }
  /** Role `dev`: issuers that identities name may be http. */
  readonly development: boolean
  /** Issuers that may have private addresses, and http. */
  readonly privateIssuers: ReadonlySet<string>
  /** The ids of the documents that groups may accept. */
  readonly terms: ReadonlySet<string>
  /** Absent where no registry is configured. */
  readonly registry?: RegistrySettings
}

/** What of the registry's configuration the records depend on. */
export interface RegistrySettings {
  /** The registry host as image references name it, e.g. `registry.example:5000`. */
  readonly host: string
  /** The name of the root group whose repos are public. */
  readonly publicOrganization: string | undefined
  /** Characters that stand before a repo's uid in the name of its repository upstream. */
  readonly upstreamPrefixLength: number
}

/** What handlers work with. */
export interface Services {
  readonly store: Store
  readonly replica: RecordCache
  readonly grants: GrantsIndex
  readonly sweeper: Sweeper
  readonly quotas: Quotas
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly pageKeys: PageKeys
  /** Seals the secrets of records. */
  readonly keyring: Keyring
  /** Looks at an issuer's discovery document. */
  readonly deniesPkce: DeniesPkce
  readonly settings: ResourceSettings
  readonly accountChecks: AccountChecks
  /** Undefined where no upstream registry is configured: tags then name digests that nobody checks. */
  readonly content: ContentSource | undefined
}

/** Who calls, as their token says. */
export interface Caller {
  readonly identity: Uid
  readonly operator: boolean
  /** The upstream token's claims that were verified: issuer, subject, audience, e-mail. */
  readonly actor: Readonly<Record<string, string>>
  /** What the token was narrowed to; `reach` is cut by it already. */
  readonly restrictions: TokenRestrictions
  /** Rights as of the current snapshot: ask again after every await. */
  reach(): EffectivePermissions
}

/**
 * On whose behalf a call writes (ADR 0016):
 * - `api`: a caller's own. A record that an object owns is refused, unless the caller forces it, which takes the record from the object.
 * - `object`: a Kubernetes object's. Only its own records; of the records that nobody owns, one that it `adopts`. `fields` (proto names) are those that it sets.
 */
export type Ownership =
  | { readonly kind: 'api'; readonly force: boolean }
  | { readonly kind: 'object'; readonly managedBy: string; readonly adopts: boolean; readonly fields: readonly string[] }

/** A call of the API that forces nothing. */
export const apiOwnership: Ownership = { kind: 'api', force: false }

/** A call of the API that takes records from the Kubernetes objects that own them. */
export const forcedOwnership: Ownership = { kind: 'api', force: true }

/** One call, as a handler sees it. */
export interface Context {
  readonly method: MethodRow
  /** Undefined for public methods. */
  readonly caller: Caller | undefined
  readonly requestId: string
  readonly signal: AbortSignal
  readonly validateOnly: boolean
  readonly ifMatch: string | undefined
  readonly ifNoneMatch: string | undefined
  readonly idempotencyKey: string | undefined
  readonly ownership: Ownership
  /** See Decoded.present. */
  readonly present: readonly string[] | undefined
  /** Decides anew, as of the current snapshot, whether the caller may make this call; throws code 5 or 7 where not. */
  authorize(): void
  /** The same call, authorized in another way. */
  authorizedBy(authorize: () => void): Context
}

/** The context of a call that comes by no transport: nothing of what only headers say. */
export function innerContext(
  call: Pick<Context, 'method' | 'requestId' | 'signal' | 'validateOnly' | 'ownership' | 'authorize'> & { readonly caller: Caller },
): Context {
  const context: Context = {
    ...call,
    ifMatch: undefined,
    ifNoneMatch: undefined,
    idempotencyKey: undefined,
    present: undefined,
    authorizedBy: (authorize) => ({ ...context, authorize }),
  }
  return context
}

/** What a handler answers. */
export interface HandlerAnswer {
  readonly message: Message
  /** Where the message is what is shown of one record. */
  readonly shown?: Shown
  /** Where the message is a list's: what it holds. */
  readonly page?: ShownPage
  readonly etag?: string
  readonly pageTokenRestarted?: boolean
  /** For the audit line. */
  readonly subject?: string
}

/** Answers one method. The message is a decoded request that passed the schema's constraints. */
export type Handler = (services: Services, context: Context, message: Message) => Promise<HandlerAnswer>

/** What a mutation needs to know of its call. */
export type MutationContext = Pick<Context, 'caller' | 'signal' | 'validateOnly' | 'authorize' | 'ownership'>

/** The caller of a call that is not public. */
export function callerOf({ caller }: Pick<Context, 'caller'>): Caller {
  if (caller === undefined) throw new TypeError('this call needs a caller')
  return caller
}

/**
 * The caller that a verified token names, as of the current snapshot. Throws code 16 where the identity is not there, or is not the one that the token was issued to
 * (docs/spec/storage.md#deletion-marks: tokens issued before it are 401).
 */
export function callerOfToken(services: Services, facts: Omit<Authenticated, 'expiresAtMs'>): Caller {
  const { identityUid: identity, restrictions } = facts
  // Whom only an organisation's provider vouches for is nobody outside it.
  const operator = facts.operator && restrictions.knownIn === undefined
  const row = services.replica.snapshot.get('Identity', identity)
  const isOlder = row !== undefined && facts.issuedAtMs < row.createMs
  if ((row === undefined && !operator) || isOlder) throw new DomainError(16, 'the identity of this token does not exist')
  const { issuer, subject, audience, email } = facts.act
  return {
    identity,
    operator,
    actor: { iss: issuer, sub: subject, aud: audience, ...(email === undefined ? {} : { email }) },
    restrictions,
    reach: () => services.grants.reachOf({ identity, operator, restrictions }),
  }
}
