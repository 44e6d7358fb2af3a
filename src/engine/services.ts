import type { DescField, DescMessage, Message } from '@bufbuild/protobuf'
import type { AccountChecks } from '../auth/account-checks.ts'
import type { Keyring } from '../auth/keys/sealing.ts'
import type { DeniesPkce } from '../auth/oidc/pkce-look.ts'
import type { AuthenticatedCaller } from '../auth/tokens/authenticator.ts'
import { actorClaims } from '../auth/tokens/principal.ts'
import type { TokenRestrictions } from '../auth/tokens/token-restrictions.ts'
import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import type { GrantsIndex } from '../authz/grants-index.ts'
import type { Networks } from '../base/client-address.ts'
import type { Digest } from '../base/digest.ts'
import { DomainError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import type { PageKey } from '../base/page-token.ts'
import type { Clock, Random } from '../base/runtime.ts'
import type { MethodRow } from '../base/schema/method.ts'
import type { Uid } from '../base/uid.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import type { SharedLog } from './log/shared-log.ts'
import type { Quotas } from './quota/quotas.ts'
import type { Guard, Store } from '../store/store.ts'

/** A rendered record: its message and, once a transport made them, its JSON text and protobuf bytes. Kept while the record stays decoded. */
export interface Shown {
  readonly message: Resource
  json?: string
  binary?: Uint8Array
}

/** The rendered items of a list's answer. Encodings of items made earlier are joined instead of made again. */
export interface ShownPage {
  readonly field: DescField
  readonly items: readonly Shown[]
  /** Replaces the items: their encodings by the call's transport, joined, in pieces. */
  readonly joined?: readonly Uint8Array[]
}

/** Page-token keys: the one to seal with, and those that still open tokens. */
export interface PageKeys {
  current(): PageKey
  /** Reads an unknown key from the store; undefined if it is retired or was never issued by Taproot. */
  find(id: string, signal: AbortSignal): Promise<PageKey | undefined>
}

/** Frees the keys of records that depended on removed ones. */
export interface Cascader {
  /** Removes the dependents of all records marked now. Returns whether there were any marks. */
  finish(signal: AbortSignal): Promise<boolean>
  /** Removes only the dependents that make these guards of a refused transaction fail. Returns whether there were any. */
  finishBlocking(guards: readonly Guard[], signal: AbortSignal): Promise<boolean>
}

/** The storage of repo content, as far as records need it. Rejects with DomainError code 14 if it does not answer. */
export interface ContentSource {
  /** True if the manifest's bytes exist. `digest` is the digest in the upstream. */
  holdsManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean>
}

/** Behaviour that the configuration decides. */
export interface ResourceSettings {
  /** Any signed-in person may create a root group and becomes its owner. */
  readonly selfServiceRootGroups: boolean
  /** Maximum number of root groups that one person may create for themselves. */
  readonly organizationsPerPerson: number
  /** The limits of new root groups: those that operators create, and those that other callers create for themselves. */
  readonly limits: { readonly operators: Readonly<Record<string, number>>; readonly selfService: Readonly<Record<string, number>> }
  /** How long the name of a renamed or deleted root group is reserved for its former owners, in milliseconds. */
  readonly nameHoldMs: number
  /** Taproot's own token issuer, which no identity may name. */
  readonly ownIssuer: string
  /** Issuers whose e-mail claims are trusted for group look-up by domain. */
  readonly trustedIssuers: ReadonlySet<string>
  /** The persons who are operators by configuration. */
  readonly operators: ReadonlySet<Uid>
  /** Lifetime of refresh tokens in milliseconds: while unused, and in total including their successors. */
  readonly refresh: { readonly idleMs: number; readonly maxMs: number }
  /** True in the role `dev`: issuers of identities may use http. */
  readonly development: boolean
  /** Issuers that may have private addresses and use http. */
  readonly privateIssuers: ReadonlySet<string>
  /** The ids of the documents that groups may accept. */
  readonly terms: ReadonlySet<string>
  /** Private networks that may hold sinks of events. */
  readonly sinkNetworks: Networks
  /** Absent where no registry is configured. */
  readonly registry?: RegistrySettings
}

/** The part of the registry's configuration on which records depend. */
export interface RegistrySettings {
  /** The registry host as image references name it, e.g. `registry.example:5000`. */
  readonly host: string
  /** The name of the root group whose repos are public. */
  readonly publicOrganization: string | undefined
  /** Number of characters before a repo's uid in the name of its upstream repository. */
  readonly upstreamPrefixLength: number
}

/** The dependencies of handlers. */
export interface Services {
  readonly store: Store
  readonly cache: RecordCache
  readonly grants: GrantsIndex
  readonly cascader: Cascader
  readonly quotas: Quotas
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly pageKeys: PageKeys
  /** Seals the secrets of records. */
  readonly keyring: Keyring
  /** Checks an issuer's discovery document for PKCE support. */
  readonly deniesPkce: DeniesPkce
  readonly settings: ResourceSettings
  /** The events that are kept, in the order of their commits. */
  readonly eventLog: SharedLog
  readonly accountChecks: AccountChecks
  /** Undefined without an upstream registry: the digests of tags are then not verified. */
  readonly content: ContentSource | undefined
}

/** The caller as named by the token. */
export interface Caller {
  readonly identity: Uid
  readonly operator: boolean
  /** The verified claims of the upstream token: issuer, subject, audience, e-mail. */
  readonly actor: Readonly<Record<string, string>>
  /** The token's restrictions; `permissions` already applies them. */
  readonly restrictions: TokenRestrictions
  /** Returns the permissions as of the current snapshot. Call it again after every await. */
  permissions(): EffectivePermissions
}

/**
 * The party that a call writes for (ADR 0016):
 * - `api`: the caller. A record owned by an object is refused, unless the caller forces the write. A forced write takes the record from the object.
 * - `object`: a Kubernetes object. It may write only its own records, and an unowned record if it `adopts` it. `fields` (proto names) are those that it sets.
 */
export type Ownership =
  | { readonly kind: 'api'; readonly force: boolean }
  | { readonly kind: 'object'; readonly managedBy: string; readonly adopts: boolean; readonly fields: readonly string[] }

/** An API call that forces nothing. */
export const apiOwnership: Ownership = { kind: 'api', force: false }

/** An API call that takes records from the Kubernetes objects that own them. */
export const forcedOwnership: Ownership = { kind: 'api', force: true }

/** One call from a handler's point of view. */
export interface Context {
  readonly method: MethodRow
  /** Undefined for public methods. */
  readonly caller: Caller | undefined
  readonly requestId: string
  /** W3C trace context of the request; undefined if it has none. */
  readonly traceparent: string | undefined
  readonly signal: AbortSignal
  readonly validateOnly: boolean
  readonly ifMatch: string | undefined
  readonly ifNoneMatch: string | undefined
  readonly idempotencyKey: string | undefined
  readonly ownership: Ownership
  /** See Decoded.present. */
  readonly present: readonly string[] | undefined
  /** Checks the caller's credential again, as of now. Rejects with code 16 if it expired, or its identity was deleted. */
  reauthenticate(): Promise<void>
  /** Checks again, as of the current snapshot, whether the caller may make this call. Throws code 5 or 7 if not. */
  authorize(): void
  /** Returns the same call with another authorization check. */
  authorizedBy(authorize: () => void): Context
}

/** Returns the context of a call without a transport. All values that only headers carry are undefined. */
export function innerContext(
  call: Pick<Context, 'method' | 'requestId' | 'signal' | 'validateOnly' | 'ownership' | 'authorize'> & { readonly caller: Caller },
): Context {
  const context: Context = {
    ...call,
    traceparent: undefined,
    ifMatch: undefined,
    ifNoneMatch: undefined,
    idempotencyKey: undefined,
    present: undefined,
    reauthenticate: () => Promise.resolve(),
    authorizedBy: (authorize) => ({ ...context, authorize }),
  }
  return context
}

/** The form of an answer over REST that is not the JSON of its message. */
export interface AnswerDocument {
  readonly contentType: string
  readonly items: readonly Message[]
  readonly itemDesc: DescMessage
  readonly headers: Readonly<Record<string, string>>
}

/** One message of a stream. */
export interface StreamedMessage {
  readonly message: Message
  /** Where a caller continues after this message. */
  readonly cursor: string
  /** What the message carries over REST; undefined if it only moves the cursor. */
  readonly event: { readonly type: string; readonly document: Message; readonly desc: DescMessage } | undefined
}

/** A handler's answer. */
export interface HandlerAnswer {
  readonly message: Message
  /** Set if the message is one rendered record. */
  readonly shown?: Shown
  /** Set if the message is a list: its rendered items. */
  readonly page?: ShownPage
  /**
   * Set if the method is streaming: the messages, each made when the one before was sent. It ends by an error, never by itself. What it holds is free once it is
   * closed, or the call's signal aborts.
   */
  readonly stream?: AsyncIterable<StreamedMessage>
  /** Set if the answer has a form of its own over REST. */
  readonly document?: AnswerDocument
  readonly etag?: string
  readonly pageTokenRestarted?: boolean
  /** For the audit line. */
  readonly subject?: string
}

/** Answers one method. The message is a decoded request that passed the schema's constraints. */
export type Handler = (services: Services, context: Context, message: Message) => Promise<HandlerAnswer>

/** The parts of a call's context that a mutation needs. */
export type MutationContext = Pick<Context, 'caller' | 'signal' | 'validateOnly' | 'authorize' | 'ownership'>

/** Returns the caller of a call that is not public. */
export function callerOf({ caller }: Pick<Context, 'caller'>): Caller {
  if (caller === undefined) throw new TypeError('this call needs a caller')
  return caller
}

/**
 * Returns the caller that a verified token names, as of the current snapshot. Throws code 16 if the identity does not exist or is newer than the token
 * (docs/spec/storage.md#deletion-marks: tokens issued before it are 401).
 */
export function callerOfToken(services: Services, facts: Omit<AuthenticatedCaller, 'expiresAtMs'>): Caller {
  const { identityUid: identity, restrictions } = facts
  // A person known only through an organisation's own provider has no operator rights outside it.
  const operator = facts.operator && restrictions.trustedGroups === undefined
  const record = services.cache.tables.get('Identity', identity)
  const isOlder = record !== undefined && facts.issuedAtMs < record.createMs
  if ((record === undefined && !operator) || isOlder) throw new DomainError(16, 'the identity of this token does not exist')
  return {
    identity,
    operator,
    actor: actorClaims(facts.act),
    restrictions,
    permissions: () => services.grants.permissionsOf({ identity, operator, restrictions }),
  }
}
