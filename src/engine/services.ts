import type { DescField, DescMessage, Message } from '@bufbuild/protobuf'
import type { AccountChecks } from '../auth/account-checks.ts'
import type { Keyring } from '../auth/keys/sealing.ts'
import type { DeniesPkce } from '../auth/oidc/pkce-look.ts'
import type { AuthenticatedCaller } from '../auth/access-tokens/authenticator.ts'
import { actorClaims } from '../auth/access-tokens/principal.ts'
import type { TokenRestrictions } from '../auth/access-tokens/token-restrictions.ts'
import type { EffectivePermissions } from '../authz/effective-permissions.ts'
import type { GrantsIndex } from '../authz/grants-index.ts'
import type { AuditReader } from './audit-query.ts'
import type { Networks } from '../base/client-address.ts'
import type { Digest } from '../base/digest.ts'
import { DomainError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import type { Tracing } from '../base/tracing.ts'
import type { PageKey } from '../base/page-token.ts'
import type { Clock, Random } from '../base/runtime.ts'
import type { MethodRow } from '../base/schema/method.ts'
import type { TaskTurn } from '../base/task-thread.ts'
import { rootOf, trustedUid, type Uid } from '../base/uid.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { Resource } from '../cache/records/cached-record.ts'
import type { ContentsSource, ImageFacts, ImageName, ImageVulnerability, RecordedImages, TagDays } from '../cache/lists/contents-source.ts'
import type { ScannerReportsSource } from '../cache/lists/scanner-reports-source.ts'
import type { CatalogueControl, CatalogueKind, CatalogueSources, FeedControl } from '../cache/lists/catalogue-sources.ts'
import type { RecentDeliveries } from './log/recent-deliveries.ts'
import type { SharedLog } from './log/shared-log.ts'
import type { Quotas } from './quota/quotas.ts'
import type { DryRunPullPolicyResponse_Verdict, PullPolicy } from '../gen/taproot/registry/v2/pull_policies_pb.ts'
import type { Guard, Store, Transaction } from '../store/store.ts'

/** A record as readers see it, with its JSON text and protobuf bytes once a transport has made them. It is kept while the record stays decoded. */
export interface Shown {
  readonly message: Resource
  json?: string
  binary?: Uint8Array
}

/** The records in a list's answer. A transport joins their encodings, and reuses those made earlier. */
export interface ShownPage {
  readonly field: DescField
  readonly items: readonly Shown[]
  /** The encodings of all items, joined, in pieces. They replace the items. */
  readonly joined?: readonly Uint8Array[]
}

/** The keys of page tokens: one encrypts new tokens, and the others still decrypt earlier tokens. */
export interface PageKeys {
  current(): PageKey
  /** Returns the key with this id. Reads an unknown one from the store. Undefined if the key was removed or never existed. */
  find(id: string, signal: AbortSignal): Promise<PageKey | undefined>
}

/** Frees the store keys of records that depended on removed records. */
export interface Cascader {
  /** Removes the dependents of all records with a deletion mark. Resolves to whether there were any marks. */
  finish(signal: AbortSignal): Promise<boolean>
  /** Removes only the dependents because of which these guards of a refused transaction failed. Resolves to whether there were any. */
  finishBlocking(guards: readonly Guard[], signal: AbortSignal): Promise<boolean>
}

/** Access to the content of repos in the upstream registry, as far as records depend on it. Rejects with DomainError code 14 if the registry does not answer. */
export interface ContentSource {
  /** True if the upstream registry has the manifest. `digest` is its digest there. */
  holdsManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean>
  /** Reads a blob of at most `maxBytes`. `digest` is its digest there. Undefined if the upstream registry has none, or a larger one. */
  readBlob(repo: Uid, blob: { readonly digest: Digest; readonly maxBytes: number }, signal: AbortSignal): Promise<Buffer | undefined>
}

/** A manifest to ask pull policies about, as if it were pulled: by its tag, or by its digest if the tag is empty. */
export interface TriedPull {
  readonly repo: Uid
  readonly digest: Digest
  readonly tag: string
}

/** Asks pull policies about manifests without a pull. */
export interface PullTrials {
  /**
   * Resolves with what each set of policies says about a manifest; undefined if its repo does not hold it. Rejects with StoreError, DomainError, or the
   * signal's reason.
   */
  verdicts(pull: TriedPull, sets: readonly (readonly PullPolicy[])[], signal: AbortSignal): Promise<readonly DryRunPullPolicyResponse_Verdict[] | undefined>
  /** Ends what the trials hold. */
  close(): Promise<void>
}

/** The settings on which the behaviour of resources depends. */
export interface ResourceSettings {
  /** True if any signed-in person may create a root group, and becomes its owner. */
  readonly selfServiceRootGroups: boolean
  /** Maximum number of root groups that one person may create for themselves. */
  readonly organizationsPerPerson: number
  /** The limits of a new root group, if an operator creates it and if any other caller does. */
  readonly limits: { readonly operators: Readonly<Record<string, number>>; readonly selfService: Readonly<Record<string, number>> }
  /** How long the name of a renamed or deleted root group is reserved for its former owners, in milliseconds. */
  readonly nameHoldMs: number
  /** The platform's own token issuer, which no identity may name. */
  readonly ownIssuer: string
  /** Issuers whose e-mail claims are trusted when groups are searched by domain. */
  readonly trustedIssuers: ReadonlySet<string>
  /** The persons who are operators by configuration. */
  readonly operators: ReadonlySet<Uid>
  /** Lifetime of refresh tokens in milliseconds: of one that is not used, and of a whole series of successors. */
  readonly refresh: { readonly idleMs: number; readonly maxMs: number }
  /** True in the role `dev`, in which issuers of identities may use http. */
  readonly development: boolean
  /** Issuers that may have private addresses and use http. */
  readonly privateIssuers: ReadonlySet<string>
  /** The ids of the documents that groups may accept. */
  readonly terms: ReadonlySet<string>
  /** Private networks in which event sinks may be. */
  readonly sinkNetworks: Networks
  /** Absent if no registry is configured. */
  readonly registry?: RegistrySettings
}

/** The settings of the registry host on which records depend. */
export interface RegistrySettings {
  /** Name and port of the registry host in image references, e.g. `registry.example:5000`. */
  readonly host: string
  /** Name of the root group whose repos are public; undefined if there is none. */
  readonly publicOrganization: string | undefined
  /** Number of characters before the repo's uid in the name of its repository in the upstream registry. */
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
  /** Undefined if tracing is off. */
  readonly tracing?: Tracing | undefined
  readonly pageKeys: PageKeys
  /** Encrypts and decrypts the secrets of records. */
  readonly keyring: Keyring
  /** Checks whether an issuer's discovery document excludes PKCE. */
  readonly deniesPkce: DeniesPkce
  readonly settings: ResourceSettings
  /** The existing events in the order of their commits. */
  readonly eventLog: SharedLog
  /** The last events that sinks accepted, if this process delivers. */
  readonly recentDeliveries: RecentDeliveries
  readonly accountChecks: AccountChecks
  /** The audit events that are kept; undefined in processes that keep none. */
  readonly audit: AuditReader | undefined
  /** Undefined without an upstream registry. The digests of tags are then not checked. */
  readonly content: ContentSource | undefined
  /** Undefined in processes that know the contents of no image. */
  readonly imageContents: ContentsSource | undefined
  /** Resolves with the vulnerabilities that affect an image, each once; undefined if its contents are not known. */
  readonly vulnerabilitiesIn: (image: ImageName, turn: TaskTurn) => Promise<readonly ImageVulnerability[] | undefined>
  /** Resolves with what was recorded about the images of a tag on some days. */
  readonly recordedVulnerabilities: (tag: TagDays, signal: AbortSignal) => Promise<RecordedImages>
  /** Undefined if no upstream is configured. */
  readonly pullTrials: PullTrials | undefined
  /** The reports of other scanners; undefined without an upstream. */
  readonly scannerReports: ScannerReportsSource | undefined
  /** Resolves with what is known of images of one repo for decisions about pulls. What this process does not know is a gap, never an error. */
  readonly imageFacts: (repo: Uid, images: readonly Digest[], turn: TaskTurn) => Promise<readonly ImageFacts[]>
  /** Returns what is read of a kind of catalogue as of now: undefined before its first import. Throws code 14 while it is being loaded. */
  readonly catalogue: <Kind extends CatalogueKind>(kind: Kind) => CatalogueSources[Kind] | undefined
  /** The catalogues that are kept; undefined without an upstream. */
  readonly catalogues: CatalogueControl | undefined
  readonly feeds: FeedControl
}

/** The caller that a verified token names. */
export interface Caller {
  readonly identity: Uid
  readonly operator: boolean
  /** The verified claims of the external token with which the caller signed in: issuer, subject, audience, e-mail. */
  readonly actor: Readonly<Record<string, string>>
  /** The restrictions of the token. `permissions` already applies them. */
  readonly restrictions: TokenRestrictions
  /** Returns the caller's permissions as of the current snapshot. Call it again after every await. */
  permissions(): EffectivePermissions
}

/**
 * On whose behalf a call writes records (ADR 0016):
 * - `api`: the caller. A record that a Kubernetes object owns is refused, unless the caller forces the write, which takes the record from the object
 * - `object`: a Kubernetes object. It may write its own records, and records without an owner if it `adopts` them. `fields` (proto names) are those that it
 *   sets
 */
export type Ownership =
  | { readonly kind: 'api'; readonly force: boolean }
  | { readonly kind: 'object'; readonly managedBy: string; readonly adopts: boolean; readonly fields: readonly string[] }

/** The ownership of an API call that does not take records from Kubernetes objects. */
export const apiOwnership: Ownership = { kind: 'api', force: false }

/** The ownership of an API call that takes records from the Kubernetes objects that own them. */
export const forcedOwnership: Ownership = { kind: 'api', force: true }

/** One call as handlers see it. */
export interface Context {
  readonly method: MethodRow
  /** The caller; undefined for public methods, unless they take an optional token. */
  readonly caller: Caller | undefined
  readonly requestId: string
  /** W3C trace context of the request; undefined if it has none. */
  readonly traceparent: string | undefined
  readonly signal: AbortSignal
  readonly validateOnly: boolean
  readonly ifMatch: string | undefined
  readonly ifNoneMatch: string | undefined
  readonly idempotencyKey: string | undefined
  /** The request as it was sent: of the version that the caller used, with its paths, before DecodedCall.complete. Undefined without a transport. */
  readonly asked?: Message
  /**
   * Returns what the transaction of a mutation also guards and writes: the Idempotency-Key of a create that the mutation answers, or the names on paths. Throws
   * code 10 if a path has changed.
   */
  readonly also?: ((nowMs: number) => Transaction) | undefined
  readonly ownership: Ownership
  /** The fields that are present in a REST body, see DecodedCall.present. */
  readonly present: readonly string[] | undefined
  /** Checks again, at this moment, whether the caller's credential is valid. Rejects with code 16 if it expired, or its identity was deleted. */
  reauthenticate(): Promise<void>
  /** Checks again, in the current snapshot, whether the caller may make this call. Throws code 5 or 7 if not. */
  authorize(): void
  /** Returns a copy of the context with another method or `authorize`. Without one, the copy authorizes this call. */
  with(changes: Partial<Pick<Context, 'method' | 'authorize'>>): Context
}

/** Returns the context of a call that the platform makes itself, without a transport. All values from headers are undefined. */
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
    with: (changes) => innerContext({ ...call, ...changes }),
  }
  return context
}

/** Returns a context in which the platform itself calls a method, without a request of anyone. `requestId` names the work. */
export function platformContext(services: Pick<Services, 'settings'>, call: Pick<Context, 'method' | 'requestId' | 'signal'>): Context {
  const caller: Caller = {
    identity: trustedUid(''),
    operator: true,
    actor: { iss: services.settings.ownIssuer },
    restrictions: {},
    permissions: () => ({ operator: true, grants: [] }),
  }
  return innerContext({ ...call, caller, validateOnly: false, ownership: apiOwnership, authorize: () => undefined })
}

/** An answer that has another form over REST than the JSON of its message. */
export interface AnswerDocument {
  readonly contentType: string
  readonly items: readonly Message[]
  readonly itemDesc: DescMessage
  readonly headers: Readonly<Record<string, string>>
}

/** One message of a streaming method's answer. */
export interface StreamedMessage {
  readonly message: Message
  /** The cursor with which a caller continues after this message. */
  readonly cursor: string
  /** The event that the message contains over REST; undefined if the message only has a new cursor. */
  readonly event: { readonly type: string; readonly document: Message; readonly desc: DescMessage } | undefined
}

/** The answer of a handler. */
export interface HandlerAnswer {
  readonly message: Message
  /** The rendered record with its cached encodings, if the answer is a single record. */
  readonly shown?: Shown
  /** The rendered records with their cached encodings, if the answer is a list. */
  readonly page?: ShownPage
  /** Reads the next page of a list, with the caller's rights at that time. Undefined on the last page. */
  readonly next?: () => Promise<Pick<HandlerAnswer, 'page' | 'next'>>
  /**
   * Set if the method is streaming. Each message is made when the one before was sent. The stream ends only with an error. It frees its resources when it is
   * closed or the call's signal aborts.
   */
  readonly stream?: AsyncIterable<StreamedMessage>
  /** Set if the answer has another form over REST. */
  readonly document?: AnswerDocument
  readonly etag?: string
  readonly pageTokenRestarted?: boolean
  /** Uid of the resource that the audit event names; of a catalogue the digest, of a feed the name. */
  readonly subject?: string
}

/** Answers one method. The message is a decoded request that passed the schema's constraints. */
export type Handler = (services: Services, context: Context, message: Message) => Promise<HandlerAnswer>

/** The parts of a call's context that a mutation needs. */
export type MutationContext = Pick<Context, 'caller' | 'signal' | 'validateOnly' | 'authorize' | 'ownership' | 'also'>

/** Returns the caller of a call. Throws for a call of a public method. */
export function callerOf({ caller }: Pick<Context, 'caller'>): Caller {
  if (caller === undefined) throw new TypeError('a call of a public method has no caller')
  return caller
}

/** Returns the turn of a call's work in a thread: organisations take turns, and a person counts as one. So do all callers of public methods together. */
export function turnOf({ caller, signal }: Pick<Context, 'caller' | 'signal'>): TaskTurn {
  return { key: caller === undefined ? '' : rootOf(caller.identity), signal }
}

/**
 * Returns the caller that a verified token names, as of the current snapshot. Throws code 16 if the identity does not exist or was created after the token was
 * issued (docs/spec/storage.md#deletion-marks).
 */
export function callerOfToken(services: Services, facts: Omit<AuthenticatedCaller, 'expiresAtMs'>): Caller {
  const { identityUid: identity, restrictions } = facts
  // A person whom only an organisation's own provider authenticates is not an operator.
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
