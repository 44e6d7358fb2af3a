import { createPasswordToken } from '../auth/tokens/password-token.ts'
import { builtInRoles } from '../base/roles.ts'
import { randomHex, type Clock, type Random } from '../base/runtime.ts'
import { ClientError, textOf, type Json } from './client/client-error.ts'
import type { PlatformClient } from './client/platform-client.ts'
import { UsageError } from './usage-error.ts'
import { findGroup } from './client/places.ts'

/** A pull token: an identity with static keys and a binding to `registry.pull` (docs/spec/registry.md#pull-tokens). */
export interface PullToken {
  /** The identity: the user name. */
  readonly uid: string
  readonly name: string
  readonly expirationTime: string
  /** When it was used last, or made. */
  readonly lastSeenTime: string
}

/** A pull token that was just made: its password is shown this once. */
export interface NewPullToken extends PullToken {
  readonly password: string
}

/** What is asked for. */
export interface PullTokenRequest {
  /** Uid, or names as in `demo/team`. The token pulls all that is in the group and below it. */
  readonly group: string
  readonly name: string | undefined
  readonly ttlMs: number
}

/** What pull tokens are made with. */
export interface PullTokensOptions {
  readonly client: PlatformClient
  /** The registry host: the audience of the passwords. */
  readonly registry: string
  readonly clock: Clock
  readonly random: Random
}

const hourMs = 3_600_000
/** How long a pull token is good where nothing is said, and at most (docs/spec/registry.md#pull-tokens). */
export const pullTokenTtl = { defaultHours: 720, maxHours: 8760 } as const

const roleName = 'registry.pull'
const subjectPrefix = 'pull-token:'

/** Makes a pull token. Rejects with ClientError; what was made until then is removed again, as far as the caller may. */
export async function createPullToken(options: PullTokensOptions, request: PullTokenRequest): Promise<NewPullToken> {
  const { client, clock, random, registry } = options
  const group = await findGroup(client, request.group)
  const id = randomHex(random, 8)
  const nowMs = clock.now()
  const facts = { issuer: issuerOf(registry), subject: `${subjectPrefix}${id}`, audience: registry, issuedAtMs: nowMs, expiresAtMs: nowMs + request.ttlMs }
  const { token, issuerKeys } = await createPasswordToken(facts)
  const { issuer, subject } = facts
  const staticKeys = { issuer, subject, issuerKeys, expirationTime: new Date(facts.expiresAtMs).toISOString(), audiences: [registry] }
  const body = { name: request.name ?? `pull-token-${id}`, description: `Pulls from ${registry}`, staticKeys }
  const identity = await client.call({ method: 'POST', path: `/iam/v2/identities/${group}`, body })
  const made = shownOf(identity)
  await bind(client, group, made)
  return { ...made, password: token }
}

async function bind(client: PlatformClient, group: string, { uid }: PullToken): Promise<void> {
  const roleUid = builtInRoles.find(({ name }) => name === roleName)?.uid ?? ''
  try {
    await client.call({ method: 'POST', path: `/iam/v2/roleBindings/${group}`, body: { identityUid: uid, roleUid } })
  } catch (error) {
    // Creators may not be allowed to delete what they made; without a binding it is good for nothing.
    await client.call({ method: 'DELETE', path: `/iam/v2/identities/${uid}` }).catch(() => undefined)
    throw error
  }
}

/** The pull tokens of a group and below, or of all groups within reach. Needs `identity.list`, which who makes them may lack. */
export async function listPullTokens({ client, registry }: PullTokensOptions, group: string | undefined): Promise<readonly PullToken[]> {
  const place = group === undefined ? {} : { 'uidp.descendants_of': await findGroup(client, group) }
  const found: PullToken[] = []
  for await (const identity of client.list('/iam/v2/identities', 'identities', { relationship_type: 'RELATIONSHIP_TYPE_STATIC', ...place })) {
    if (isPullToken(identity, registry)) found.push(shownOf(identity))
  }
  return found
}

/** Deletes a pull token: it is refused from then on. Rejects with ClientError, also for an identity that is no pull token. */
export async function revokePullToken({ client, registry }: PullTokensOptions, uid: string): Promise<void> {
  const path = `/iam/v2/identities/${uid}`
  if (!isPullToken(await client.call({ method: 'GET', path }), registry)) throw new ClientError(`${uid} is an identity, but no pull token of ${registry}`)
  await client.call({ method: 'DELETE', path })
}

/** Reads a time to live such as `720h`, `30d` or `90m`. Throws UsageError where it is none, or longer than the longest. */
export function parseTtl(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,6})(m|h|d)$/.exec(text) ?? []
  const unitMs = { m: hourMs / 60, h: hourMs, d: 24 * hourMs }[unit]
  const ttlMs = Number(digits) * (unitMs ?? NaN)
  if (!(ttlMs > 0 && ttlMs <= pullTokenTtl.maxHours * hourMs)) {
    throw new UsageError(`--ttl takes a time such as 720h or 30d, ${pullTokenTtl.maxHours}h at most, not "${text}"`)
  }
  return ttlMs
}

/** Nobody serves keys there: the identity holds them. */
function issuerOf(registry: string): string {
  return `https://${registry}/pull-tokens`
}

function staticKeysOf(identity: Json): Json {
  const keys = identity['staticKeys']
  return typeof keys === 'object' && keys !== null ? (keys as Json) : {} // a cast: an object of JSON
}

function isPullToken(identity: Json, registry: string): boolean {
  const { issuer, subject } = staticKeysOf(identity)
  return issuer === issuerOf(registry) && textOf(subject).startsWith(subjectPrefix)
}

function shownOf(identity: Json): PullToken {
  return {
    uid: textOf(identity['uid']),
    name: textOf(identity['name']),
    expirationTime: textOf(staticKeysOf(identity)['expirationTime']),
    lastSeenTime: textOf(identity['lastSeenTime']),
  }
}
