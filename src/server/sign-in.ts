import {
  signInFor,
  signInNotFor,
  createExchange,
  createTokenIssue,
  type TokenExchange,
  type TokenIssue,
  mappedRoles,
  providersOf,
  admitsPerson,
  externalIdOf,
} from '../iam/index.ts'
import type { AwsMatch } from '../auth/aws/aws-match.ts'
import { createAwsSignIn, type AwsSignIn } from '../auth/aws/aws-sign-in.ts'
import type { Authenticator } from '../auth/access-tokens/authenticator.ts'
import { createAuthenticator } from '../auth/access-tokens/authenticator.ts'
import type { ClaimMatch } from '../auth/oidc/claim-match.ts'
import { defaultAudiences, urlForms, createTokenVerifier } from '../auth/access-tokens/token-verifier.ts'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import {
  createExternalSignIn,
  isConfiguredIssuer,
  type ExternalSignIn,
  type ExternalSignInOptions,
  type IdentityFacts,
  type Relationship,
} from '../auth/oidc/external-sign-in.ts'
import type { ConfiguredIssuer } from '../auth/oidc/issuer-source.ts'
import { createIssuerKeys } from '../auth/oidc/issuer-keys.ts'
import { createOidcLogin, type OidcLogin } from '../auth/oidc/oidc-client.ts'
import { createPlatformTokens, maxHeldGroups, type PlatformTokens } from '../auth/access-tokens/platform-token.ts'
import { patternError } from '../auth/oidc/bounded-pattern.ts'
import type { SafeFetch } from '../auth/safe-fetch.ts'
import { createSignatureChecks, type SignatureChecks } from '../auth/access-tokens/signature-checks.ts'
import type { SigningKeys } from '../auth/keys/signing-keys.ts'
import type { GrantsIndex } from '../authz/grants-index.ts'
import { everywhere } from '../authz/effective-permissions.ts'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Log } from '../base/log.ts'
import { RecentMap } from '../base/recent-map.ts'
import type { Clock, Random } from '../base/runtime.ts'
import { trustedUid, type Uid } from '../base/uid.ts'
import type { Identity, Identity_AWSIdentity, Identity_ClaimMatch } from '../gen/taproot/iam/v2/identities_pb.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import type { Config } from '../config/config.ts'
import { messageOf } from '../cache/records/record-types.ts'
import type { SignInObserver } from './telemetry/process-metrics.ts'

/** Dependencies and settings of sign-in. */
export interface SignInOptions {
  readonly config: Config
  readonly cache: RecordCache
  readonly grants: GrantsIndex
  readonly signingKeys: SigningKeys
  /** For URLs that tenants configure. The caller closes it. */
  readonly fetch: SafeFetch
  /** Issuers from the configuration. */
  readonly issuers: readonly ConfiguredIssuer[]
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  /** The development issuer that this process serves; only in role `dev`. */
  readonly devIssuer: DevIssuer | undefined
  readonly observer: SignInObserver
}

/** The components that verify and issue tokens. */
export interface SignIn {
  /** Authenticator of the API. */
  readonly authenticator: Authenticator
  /** Authenticator of the registry host. Reads identities from the current snapshot. */
  readonly registryAuthenticator: Authenticator
  readonly checks: SignatureChecks
  /** Sign-in with external tokens, for the API. */
  readonly signIn: ExternalSignIn
  readonly exchange: TokenExchange
  readonly tokenIssue: TokenIssue
  /** Browser sign-in with identity providers. */
  readonly oidc: OidcLogin
  readonly tokens: PlatformTokens
  close(): Promise<void>
}

function claimMatchOf({ iss, sub, aud, claims, claimPatterns }: Identity_ClaimMatch): ClaimMatch {
  return {
    ...(iss.case === 'issuer' ? { issuer: iss.value } : iss.case === 'issuerPattern' ? { issuerPattern: iss.value } : {}),
    ...(sub.case === 'subject' ? { subject: sub.value } : sub.case === 'subjectPattern' ? { subjectPattern: sub.value } : {}),
    ...(aud.case === 'audience' ? { audience: aud.value } : aud.case === 'audiencePattern' ? { audiencePattern: aud.value } : {}),
    claims,
    claimPatterns,
  }
}

function awsMatchOf({ awsAccount: account, awsArn, awsUserId }: Identity_AWSIdentity): AwsMatch {
  return {
    account,
    ...(awsArn.case === 'arn' ? { arn: awsArn.value } : awsArn.case === 'arnPattern' ? { arnPattern: awsArn.value } : {}),
    ...(awsUserId.case === 'userId' ? { userId: awsUserId.value } : awsUserId.case === 'userIdPattern' ? { userIdPattern: awsUserId.value } : {}),
  }
}

function relationshipOf(identity: Identity): Relationship {
  const { relationship } = identity
  switch (relationship.case) {
    case 'claimMatch':
      return { kind: 'claimMatch', match: claimMatchOf(relationship.value) }
    case 'staticKeys': {
      const { issuer, subject, issuerKeys, expirationTime, audiences } = relationship.value
      const keys = { issuer, subject, issuerKeys, audiences, ...(expirationTime === undefined ? {} : { expirationTimeMs: timestampMs(expirationTime) }) }
      return { kind: 'staticKeys', keys }
    }
    case 'awsIdentity':
      return { kind: 'aws', match: awsMatchOf(relationship.value) }
    case 'servicePrincipal':
      return { kind: 'servicePrincipal' }
    case undefined:
      return { kind: 'none' }
  }
}

/** Returns the patterns of an identity, which match its tokens. */
function patternsOf(relationship: Relationship): readonly string[] {
  if (relationship.kind === 'claimMatch') {
    const { issuerPattern = '', subjectPattern = '', audiencePattern = '', claimPatterns = {} } = relationship.match
    return [issuerPattern, subjectPattern, audiencePattern, ...Object.values(claimPatterns)]
  }
  return relationship.kind === 'aws' ? [relationship.match.arnPattern ?? '', relationship.match.userIdPattern ?? ''] : []
}

/** Maximum number of record versions for which a warning was logged and is remembered. */
const maxWarned = 10_000

/**
 * Returns a function that reads an identity's sign-in facts. Logs one warning for each stored pattern that exceeds the current limits and
 * so matches nothing.
 */
function createFacts(log: Log): (record: CachedRecord) => IdentityFacts {
  const warned = new RecentMap<string, true>(maxWarned)
  return (record) => {
    const relationship = relationshipOf(messageOf(record, 'Identity'))
    const errors = patternsOf(relationship).flatMap((pattern) => patternError(pattern) ?? [])
    const version = `${record.uid} ${record.etag}`
    if (errors.length > 0 && warned.get(version) === undefined) {
      warned.set(version, true)
      log.warn('an identity cannot sign in: one of its patterns exceeds the limits and matches nothing', { identity: record.uid, fault: errors[0] })
    }
    return { uid: record.uid, createTimeMs: record.createMs, relationship }
  }
}

/** A function that reads sign-in facts from an identity's record. */
interface FactsReader {
  readonly factsOf: (record: CachedRecord) => IdentityFacts
}

/** Returns a sign-in that reads identities from the cache, each time after `before` has resolved. */
function signInOver(
  cache: RecordCache,
  before: (signal: AbortSignal) => Promise<void> | undefined,
  { factsOf, ...shared }: Omit<ExternalSignInOptions, 'identityOf' | 'personOf' | 'providersOf' | 'isBoundWithin' | 'rolesOf' | 'admits'> & FactsReader,
): ExternalSignIn {
  const identityAt = async (uid: Uid, signal: AbortSignal): Promise<CachedRecord | undefined> => {
    await before(signal)
    return cache.tables.get('Identity', uid)
  }
  return createExternalSignIn({
    ...shared,
    async identityOf(uid, signal) {
      const record = await identityAt(uid, signal)
      return record === undefined ? undefined : factsOf(record)
    },
    async personOf(uid, signal) {
      const record = await identityAt(uid, signal)
      return record === undefined ? undefined : { createTimeMs: record.createMs }
    },
    async providersOf(issuer, signal) {
      await before(signal)
      return providersOf(cache.tables, issuer)
    },
    admits: ({ uid }, token) => admitsPerson(cache.tables, uid, externalIdOf(cache.tables, uid, token)),
    isBoundWithin: (person, group) => cache.tables.table('RoleBinding').matching('identity', person, group).size > 0,
    rolesOf: ({ uid }, groups) => mappedRoles(cache.tables, uid, groups),
  })
}

/** Returns the prefixes of the binding headers: the platform's own, and those of compatible APIs (setting `compat.namespaces`). */
function bindingPrefixes({ compat }: Config): string[] {
  return [...new Set(['taproot', ...compat.namespaces.map((namespace) => namespace.split('.')[0]?.toLowerCase() ?? '')])]
}

function awsSignIn({ config, cache, clock, fetch }: SignInOptions, { factsOf }: FactsReader): AwsSignIn {
  const { hosts, endpoint, audiences } = config.aws
  return createAwsSignIn({
    hosts,
    ...(endpoint === undefined ? {} : { endpoint }),
    audiences: audiences.flatMap(urlForms),
    prefixes: bindingPrefixes(config),
    fetch,
    clock,
    async identityOf(uid, signal) {
      await cache.barrier(signal)
      const record = cache.tables.get('Identity', uid)
      return record === undefined ? undefined : factsOf(record)
    },
  })
}

/** Creates the token verifiers, the token exchange and the authenticators of both ports, which read identities from the cache. */
export function createSignIn(options: SignInOptions): SignIn {
  const { config, cache, signingKeys, fetch, clock, random, devIssuer } = options
  const { baseUrl } = config
  const checks = createSignatureChecks({ clock, onCheck: options.observer.onSignatureCheck })
  const local = devIssuer === undefined ? {} : { local: new Map([[devIssuer.issuer, () => devIssuer.keySet]]) }
  const kept = config.bootstrap.operators.map(({ issuer }) => issuer)
  const issuerKeys = createIssuerKeys({ fetch, clock, configured: options.issuers, kept, ...local })
  const tokens = createPlatformTokens({ issuer: baseUrl, keys: signingKeys, checks, clock, random })
  const verifier = createTokenVerifier({ issuerKeys, checks, clock })
  const ownIssuer = baseUrl
  const { operators } = config.bootstrap
  const audiences = defaultAudiences(baseUrl, config.registry.host)
  const factsOf = createFacts(options.log)
  const shared = { verifier, issuerKeys, clock, ownIssuer, audiences, operators, factsOf }
  // Waits for the latest state of the store, so that a new identity can sign in immediately after its creation.
  const signIn = signInOver(cache, (signal) => cache.barrier(signal), shared)
  const tokenIssue = createTokenIssue({
    tokens,
    audiences: config.tokens.audiences,
    defaultAudience: baseUrl,
    trusts: (issuer) => isConfiguredIssuer(shared, issuer),
    async heldBy(identity, restrictions) {
      await options.grants.prepare(identity, restrictions)
      const { grants } = options.grants.permissionsOf({ identity, operator: false, restrictions })
      if (grants.length > maxHeldGroups) return undefined
      return new Map(grants.filter((grant) => grant.group !== everywhere).map((grant) => [trustedUid(grant.group), grant.capabilities]))
    },
  })
  const audienceOptions = { tokens, ownIssuer, operators, clock }
  const apiForms = [...urlForms(baseUrl), new URL(baseUrl).host]
  const hostForms = urlForms(config.registry.host)
  return {
    authenticator: createAuthenticator({
      ...audienceOptions,
      signIn: signInNotFor(
        hostForms.filter((form) => !apiForms.includes(form)),
        signIn,
      ),
      audiences: apiForms,
    }),
    registryAuthenticator: createAuthenticator({
      ...audienceOptions,
      signIn: signInFor(
        hostForms,
        signInOver(cache, () => undefined, shared),
      ),
      audiences: hostForms,
    }),
    checks,
    signIn,
    exchange: options.observer.counted(createExchange({ external: signIn, aws: awsSignIn(options, { factsOf }) }, tokenIssue)),
    tokenIssue,
    oidc: createOidcLogin(fetch, options.issuers),
    tokens,
    close: () => issuerKeys.close(),
  }
}
