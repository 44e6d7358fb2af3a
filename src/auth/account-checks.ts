import { SignJWT } from 'jose'
import { randomHex, type Clock, type Random } from '../base/runtime.ts'
import type { Uid } from '../base/uid.ts'
import { FetchError, type FetchRequest, type SafeFetch } from './safe-fetch.ts'
import { signingAlgorithm, type SigningKeys } from './keys/signing-keys.ts'

/** A cloud account that a group is associated with, at one provider. */
export type CloudAccount =
  | { readonly provider: 'amazon'; readonly account: string }
  | { readonly provider: 'google'; readonly projectNumber: string }
  | { readonly provider: 'azure'; readonly tenantId: string; readonly clientIds: Readonly<Record<string, string>> }

/** The result of a check. Its text is for people and contains only the HTTP status of the provider's answer. */
export type AccountCheck =
  { readonly kind: 'ready' } | { readonly kind: 'not_configured'; readonly message: string } | { readonly kind: 'refused'; readonly message: string }

/** Checks whether a cloud provider gives this installation access to a group's account. */
export interface AccountChecks {
  /**
   * Exchanges a platform token, whose subject is the group's uid, for a credential of the provider, and discards the credential. The owner of the account
   * decides whether to trust that subject. Rejects only with the signal's reason.
   */
  check(group: Uid, account: CloudAccount, signal: AbortSignal): Promise<AccountCheck>
}

/** The endpoints and parameters for each provider (configuration `accountChecks`). A provider whose first key is absent is not checked. */
export interface AccountCheckSettings {
  readonly amazon: { readonly role?: string; readonly endpoint: string; readonly partition: string; readonly audience: string }
  readonly google: { readonly provider?: string; readonly endpoint: string }
  readonly azure: { readonly client?: string; readonly endpoint: string; readonly scope: string }
}

/** The token exchange with one provider: the audience of the platform token, the request to send, and the test for a credential in the answer. */
interface AwsTokenExchange {
  readonly audience: string
  request(token: string): Pick<FetchRequest, 'url' | 'headers' | 'body'>
  isCredential(body: string): boolean
}

type AccountOf<P extends CloudAccount['provider']> = Extract<CloudAccount, { readonly provider: P }>

const formHeaders = { 'content-type': 'application/x-www-form-urlencoded' }

/** True if the body is a successful answer of an OAuth 2.0 token endpoint (RFC 6749 5.1). */
function hasAccessToken(body: string): boolean {
  try {
    const answer = JSON.parse(body) as unknown
    return typeof answer === 'object' && answer !== null && 'access_token' in answer && typeof answer.access_token === 'string' && answer.access_token !== ''
  } catch {
    // A body that is not JSON contains no credential.
    return false
  }
}

/** Builds the token exchange for each provider. Undefined if the configuration or the association lacks a value that it needs. */
const exchanges: {
  readonly [P in CloudAccount['provider']]: (settings: AccountCheckSettings[P], account: AccountOf<P>, group: Uid) => AwsTokenExchange | undefined
} = {
  // AWS STS AssumeRoleWithWebIdentity, version 2011-06-15.
  amazon({ role, endpoint, partition, audience }, { account }, group) {
    if (role === undefined) return undefined
    return {
      audience,
      request: (token) => ({
        url: endpoint,
        headers: formHeaders,
        body: new URLSearchParams({
          Action: 'AssumeRoleWithWebIdentity',
          Version: '2011-06-15',
          RoleArn: `arn:${partition}:iam::${account}:role/${role}`,
          // At most 64 characters without a slash.
          RoleSessionName: `check-${group.slice(group.lastIndexOf('/') + 1)}`,
          DurationSeconds: '900',
          WebIdentityToken: token,
        }).toString(),
      }),
      isCredential: (body) => body.includes('<SecretAccessKey>') && body.includes(`<Arn>arn:${partition}:sts::${account}:assumed-role/`),
    }
  },
  // Google STS token exchange (RFC 8693) at a workload identity pool.
  google({ provider, endpoint }, { projectNumber }) {
    const [pool, name] = provider?.split('/') ?? []
    if (pool === undefined || name === undefined) return undefined
    const resource = `//iam.googleapis.com/projects/${projectNumber}/locations/global/workloadIdentityPools/${pool}/providers/${name}`
    return {
      audience: `https:${resource}`,
      request: (token) => ({
        url: endpoint,
        headers: formHeaders,
        body: new URLSearchParams({
          grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
          audience: resource,
          scope: 'https://www.googleapis.com/auth/cloud-platform',
          requested_token_type: 'urn:ietf:params:oauth:token-type:access_token',
          subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
          subject_token: token,
        }).toString(),
      }),
      isCredential: hasAccessToken,
    }
  },
  // Microsoft Entra client credentials with a federated assertion (RFC 7523 2.2).
  azure({ client, endpoint, scope }, { tenantId, clientIds }) {
    const clientId = client === undefined || !Object.hasOwn(clientIds, client) ? undefined : clientIds[client]
    if (clientId === undefined) return undefined
    return {
      audience: 'api://AzureADTokenExchange',
      request: (token) => ({
        url: `${endpoint.replace(/\/$/, '')}/${encodeURIComponent(tenantId)}/oauth2/v2.0/token`,
        headers: formHeaders,
        body: new URLSearchParams({
          grant_type: 'client_credentials',
          client_id: clientId,
          scope,
          client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
          client_assertion: token,
        }).toString(),
      }),
      isCredential: hasAccessToken,
    }
  },
}

function exchangeFor(settings: AccountCheckSettings, account: CloudAccount, group: Uid): AwsTokenExchange | undefined {
  switch (account.provider) {
    case 'amazon':
      return exchanges.amazon(settings.amazon, account, group)
    case 'google':
      return exchanges.google(settings.google, account, group)
    case 'azure':
      return exchanges.azure(settings.azure, account, group)
  }
}

/** The use of these tokens, which no platform endpoint accepts (docs/spec/tokens.md#token-uses). */
const use = 'account_check'
/** Lifetime of the token in seconds. It is used once, but the provider's clock may differ. */
const tokenSeconds = 300

/** The dependencies of the account checks. */
export interface AccountChecksOptions {
  readonly settings: AccountCheckSettings
  /** `iss` of the tokens: the base URL, under which a provider finds the platform's public keys. */
  readonly issuer: string
  readonly keys: Pick<SigningKeys, 'current'>
  readonly fetch: SafeFetch
  readonly clock: Clock
  readonly random: Random
}

/** Creates AccountChecks. */
export function createAccountChecks({ settings, issuer, keys, fetch, clock, random }: AccountChecksOptions): AccountChecks {
  async function tokenFor(group: Uid, audience: string): Promise<string> {
    const issuedAt = Math.floor(clock.now() / 1000)
    const { kid, privateKey } = keys.current()
    return new SignJWT({ use })
      .setProtectedHeader({ alg: signingAlgorithm, kid, typ: 'JWT' })
      .setIssuer(issuer)
      .setSubject(group)
      .setAudience(audience)
      .setIssuedAt(issuedAt)
      .setExpirationTime(issuedAt + tokenSeconds)
      .setJti(randomHex(random, 16))
      .sign(privateKey)
  }

  return {
    async check(group, account, signal) {
      const exchange = exchangeFor(settings, account, group)
      if (exchange === undefined) return { kind: 'not_configured', message: `this installation has no configuration to check this ${account.provider} account` }
      const request = exchange.request(await tokenFor(group, exchange.audience))
      try {
        // The operator's configuration names the endpoint, so it may have a private address.
        const { body } = await fetch.send({ ...request, method: 'POST', allowPrivate: true }, signal)
        if (exchange.isCredential(Buffer.from(body).toString())) return { kind: 'ready' }
        return { kind: 'refused', message: 'the provider returned no credential for this account' }
      } catch (error) {
        if (!(error instanceof FetchError)) throw error
        const { reason: errorReason, status } = error
        return {
          kind: 'refused',
          message: status === undefined ? `the provider is unreachable: ${errorReason}` : `the provider answered with status ${status}`,
        }
      }
    },
  }
}
