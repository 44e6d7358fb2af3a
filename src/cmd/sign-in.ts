import { signInFor } from '../authn/audience-sign-in.ts'
import type { Authenticator } from '../authn/authenticator.ts'
import { createAuthenticator } from '../authn/authenticator.ts'
import { defaultAudiences, urlForms } from '../authn/default-audiences.ts'
import type { DevIssuer } from '../authn/dev-issuer.ts'
import { createExchange, type Exchange } from '../authn/exchange.ts'
import { createExternalSignIn, type ExternalSignIn, type ExternalSignInOptions, type IdentityFacts, type Relationship } from '../authn/external-sign-in.ts'
import { createIssuerKeys } from '../authn/issuer-keys.ts'
import { createPlatformTokens, type PlatformTokens } from '../authn/platform-token.ts'
import { createSafeFetch } from '../authn/safe-fetch.ts'
import { createSignatureChecks, type SignatureChecks } from '../authn/signature-checks.ts'
import type { SigningKeys } from '../authn/signing-keys.ts'
import { createTokenVerifier } from '../authn/token-verifier.ts'
import { grantsOf } from '../authz/grants-index.ts'
import { everywhere, narrow } from '../authz/reach.ts'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Clock, Random } from '../core/runtime.ts'
import { trustedUid, type Uid } from '../core/uid.ts'
import type { Identity } from '../gen/taproot/iam/v2/identities_pb.ts'
import type { Replica } from '../snapshot/replica.ts'
import type { Row } from '../snapshot/row.ts'
import type { Config } from './config/config.ts'

/** What signing in is made of. */
export interface SignInOptions {
  readonly config: Config
  readonly replica: Replica
  readonly signingKeys: SigningKeys
  readonly clock: Clock
  readonly random: Random
  /** Served inside this process, role `dev` only. */
  readonly devIssuer: DevIssuer | undefined
  /** Told of each signature that is really checked. */
  readonly onSignatureCheck: () => void
}

/** The parts that verify and issue tokens. */
export interface SignIn {
  /** For the API. */
  readonly authenticator: Authenticator
  /** For the registry host: reads identities from the snapshot as it is. */
  readonly registryAuthenticator: Authenticator
  readonly checks: SignatureChecks
  readonly exchange: Exchange
  readonly tokens: PlatformTokens
  close(): Promise<void>
}

function relationshipOf(identity: Identity): Relationship {
  const { relationship } = identity
  switch (relationship.case) {
    case 'claimMatch': {
      const { iss, sub, aud, claims, claimPatterns } = relationship.value
      const match = {
        ...(iss.case === 'issuer' ? { issuer: iss.value } : iss.case === 'issuerPattern' ? { issuerPattern: iss.value } : {}),
        ...(sub.case === 'subject' ? { subject: sub.value } : sub.case === 'subjectPattern' ? { subjectPattern: sub.value } : {}),
        ...(aud.case === 'audience' ? { audience: aud.value } : aud.case === 'audiencePattern' ? { audiencePattern: aud.value } : {}),
        claims,
        claimPatterns,
      }
      return { kind: 'claimMatch', match }
    }
    case 'staticKeys': {
      const { issuer, subject, issuerKeys, expirationTime, audiences } = relationship.value
      const keys = { issuer, subject, issuerKeys, audiences, ...(expirationTime === undefined ? {} : { expirationTimeMs: timestampMs(expirationTime) }) }
      return { kind: 'staticKeys', keys }
    }
    case 'awsIdentity':
      return { kind: 'aws' }
    case 'servicePrincipal':
      return { kind: 'servicePrincipal' }
    case undefined:
      return { kind: 'none' }
  }
}

function factsOf(row: Row): IdentityFacts {
  // A row of kind Identity holds an Identity.
  return { uid: row.uid, createTimeMs: row.createMs, relationship: relationshipOf(row.message as unknown as Identity) }
}

/** Signs in over the replica's identities, each read once `before` has resolved. */
function signInOver(
  replica: Replica,
  before: (signal: AbortSignal) => Promise<void> | undefined,
  shared: Omit<ExternalSignInOptions, 'identityOf' | 'personOf'>,
): ExternalSignIn {
  const identityAt = async (uid: Uid, signal: AbortSignal): Promise<Row | undefined> => {
    await before(signal)
    return replica.snapshot.get('Identity', uid)
  }
  return createExternalSignIn({
    ...shared,
    async identityOf(uid, signal) {
      const row = await identityAt(uid, signal)
      return row === undefined ? undefined : factsOf(row)
    },
    async personOf(uid, signal) {
      const row = await identityAt(uid, signal)
      return row === undefined ? undefined : { createTimeMs: row.createMs }
    },
  })
}

/** Builds the verifiers, the exchange and the authenticators of both doors over the replica's identities. */
export function createSignIn(options: SignInOptions): SignIn {
  const { config, replica, signingKeys, clock, random, devIssuer } = options
  const { baseUrl } = config
  const checks = createSignatureChecks({ clock, onCheck: options.onSignatureCheck })
  const fetch = createSafeFetch()
  const local = devIssuer === undefined ? {} : { local: new Map([[devIssuer.issuer, () => devIssuer.keySet]]) }
  const issuerKeys = createIssuerKeys({ fetch, clock, configured: config.issuers, ...local })
  const tokens = createPlatformTokens({ issuer: baseUrl, keys: signingKeys, checks, clock, random })
  const verifier = createTokenVerifier({ issuerKeys, checks, clock })
  const ownIssuer = baseUrl
  const { operators } = config.bootstrap
  const audiences = defaultAudiences(baseUrl, config.registry.host)
  const shared = { verifier, issuerKeys, clock, ownIssuer, audiences, operators }
  // The identity as of now: whoever signs in right after it was made must find it.
  const signIn = signInOver(replica, (signal) => replica.barrier(signal), shared)
  const exchange = createExchange({
    signIn,
    tokens,
    audiences: config.tokens.audiences,
    defaultAudience: baseUrl,
    heldBy(principal, narrowing) {
      const { grants } = narrow({ operator: false, grants: grantsOf(replica.snapshot, principal.identityUid) }, narrowing)
      return new Map(grants.filter((grant) => grant.group !== everywhere).map((grant) => [trustedUid(grant.group), grant.capabilities]))
    },
  })
  const door = { tokens, ownIssuer, operators, clock }
  const hostForms = urlForms(config.registry.host)
  return {
    authenticator: createAuthenticator({ ...door, signIn, audiences: [...urlForms(baseUrl), new URL(baseUrl).host] }),
    registryAuthenticator: createAuthenticator({
      ...door,
      signIn: signInFor(
        hostForms,
        signInOver(replica, () => undefined, shared),
      ),
      audiences: hostForms,
    }),
    checks,
    exchange,
    tokens,
    async close() {
      await issuerKeys.close()
      await fetch.close()
    },
  }
}
