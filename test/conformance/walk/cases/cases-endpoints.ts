import { randomBytes } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { personUid } from '../../../../src/auth/oidc/issuer-name.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import { leaveHeadlessSession } from '../../../../src/iam/signin/pending-logins.ts'
import { issueRefreshToken } from '../../../../src/iam/signin/refresh-tokens.ts'
import { freshName, ok, roleUid } from '../../../support/test-server.ts'
import { long } from '../bad-fields.ts'
import type { BadInput, ExternalCase, MethodCase } from './method-case.ts'
import { made, missingSibling, type World } from '../world.ts'

/** The subject that the last created identity of a world trusts. */
const subjects = new WeakMap<World, string>()

/** An identity that trusts a subject of the development issuer. */
async function assumable(world: World): Promise<string> {
  const subject = freshName('workload')
  subjects.set(world, subject)
  const claimMatch = { issuer: world.server.devIssuer.issuer, subject }
  return made(world, 'CreateIdentity', { parent: world.group, identity: { name: freshName('workload'), claimMatch } })
}

/** A token of the development issuer for this platform. */
export function externalToken(world: World, subject: string): Promise<string> {
  return world.server.devIssuer.mintDevToken({ subject, audience: world.server.config.baseUrl })
}

function exchangeWith(change: JsonObject): (valid: JsonObject) => JsonObject {
  return (valid) => ({ ...valid, ...change })
}

const texts = (count: number): string[] => Array.from({ length: count }, (_, at) => `text${at}`)

const badExchange: readonly BadInput[] = [
  { what: 'more audiences than 16', breaks: ['aud:repeated.max_items'], request: exchangeWith({ aud: texts(17) }), fields: ['aud'] },
  // In a query an empty value counts as absent.
  { what: 'an empty audience', only: 'grpc', breaks: ['aud[]:string.min_len'], request: exchangeWith({ aud: [''] }), fields: ['aud'] },
  { what: 'an audience that is too long', breaks: ['aud[]:string.max_len'], request: exchangeWith({ aud: [long(2049)] }), fields: ['aud'] },
  { what: 'an audience that is not ours', request: exchangeWith({ aud: ['https://elsewhere.example'] }), fields: ['aud'] },
  { what: 'a scope that is too long', breaks: ['scope:string.max_len'], request: exchangeWith({ scope: long(256) }), fields: ['scope'] },
  { what: 'a scope that is no uid', request: exchangeWith({ scope: 'everything' }), fields: ['scopes'] },
  { what: 'more scopes than 100', breaks: ['scopes:repeated.max_items'], request: exchangeWith({ scopes: texts(101) }), fields: ['scopes'] },
  { what: 'an empty scope', only: 'grpc', breaks: ['scopes[]:string.min_len'], request: exchangeWith({ scopes: [''] }), fields: ['scopes'] },
  { what: 'a scope in the list that is too long', breaks: ['scopes[]:string.max_len'], request: exchangeWith({ scopes: [long(256)] }), fields: ['scopes'] },
  { what: 'an identity that is too long', breaks: ['identity:string.max_len'], request: exchangeWith({ identity: long(256) }), fields: ['identity'] },
  { what: 'an identity that is no uid', request: exchangeWith({ identity: 'foreign-name' }), code: 7 },
  { what: 'an identity that is missing', request: ({ identity }) => ({ identity: missingSibling(String(identity)) }), code: 7 },
  { what: 'more capabilities than 256', breaks: ['cap:repeated.max_items'], request: exchangeWith({ cap: texts(257) }), fields: ['cap'] },
  { what: 'an empty capability', only: 'grpc', breaks: ['cap[]:string.min_len'], request: exchangeWith({ cap: [''] }), fields: ['cap'] },
  { what: 'a capability that is too long', breaks: ['cap[]:string.max_len'], request: exchangeWith({ cap: [long(256)] }), fields: ['cap'] },
  { what: 'a capability that is unknown', request: exchangeWith({ cap: ['groups.fly'] }), fields: ['cap'] },
  {
    what: 'an identity provider that is too long',
    breaks: ['identity_provider:string.max_len'],
    request: exchangeWith({ identityProvider: long(256) }),
    fields: ['identity_provider'],
  },
]

const exchangeCase: ExternalCase = {
  secretIn: ({ token }) => String(token),
  stranger: (world) => externalToken(world, 'another-person'),
  async alike(world) {
    const token = await externalToken(world, subjects.get(world) ?? '')
    return [world.other.owner, missingSibling(world.other.owner)].map((identity) => ({ request: { identity }, token, about: identity }))
  },
  codes: { unsigned: 7, stranger: 7, ours: 7 },
}

/** The last created person of a world. */
const people = new WeakMap<World, string>()

function personOf(world: World): string {
  return personUid(world.server.devIssuer.issuer, people.get(world) ?? '')
}

/** Creates a person who had a role of the organisation before they registered. */
async function expectedPerson(world: World): Promise<void> {
  people.set(world, freshName('person'))
  const roleBinding = { identityUid: personOf(world), roleUid: world.plainRole }
  await made(world, 'CreateRoleBinding', { parent: world.group, roleBinding })
}

const registerCase: ExternalCase = {
  secretIn: ({ identity }) => `sub: ${String(identity)}, which is no secret`,
  stranger: (world) => world.server.devIssuer.mintDevToken({ subject: people.get(world) ?? '', audience: 'https://elsewhere.example' }),
  async alike(world) {
    const token = await externalToken(world, people.get(world) ?? '')
    const { code } = ok(
      await world.server.rest.call(
        'CreateGroupInvite',
        { parent: world.other.group, groupInvite: { roleUid: roleUid('viewer'), ttl: '3600s', email: 'person@else.example' } },
        { token: world.other.token },
      ),
    )
    // The code is a secret: its holder may learn that it is for another person. The answer to a wrong one reveals nothing.
    const wrong = [`${String(code).slice(0, -4)}AAAA`, 'AAAA'.repeat(10)]
    return wrong.map((text) => ({ request: { code: text }, token, about: 'nothing' }))
  },
  codes: { unsigned: 7, stranger: 7, ours: 7 },
}

/** Creates a refresh token of a person, like a browser login. */
async function refreshToken(world: World): Promise<string> {
  const { services } = world.server.running.engine
  const { baseUrl } = world.server.config
  const act = { issuer: world.server.devIssuer.issuer, subject: people.get(world) ?? '', audience: baseUrl }
  const claims = { act, restrictions: {}, issuedAtMs: services.clock.now() }
  const grant = { person: trustedUid(personOf(world)), claims, provider: undefined, externalId: '', audiences: [baseUrl] }
  return (await issueRefreshToken(services, grant, AbortSignal.timeout(60_000))).text
}

const refreshCase: ExternalCase = {
  secretIn: ({ refreshToken: next }) => String((next as JsonObject)['token']),
  async stranger(world) {
    const used = await refreshToken(world)
    ok(await world.server.rest.call('ExchangeRefreshToken', {}, { token: used }))
    return used
  },
  async alike(world) {
    const text = await refreshToken(world)
    const read = JSON.parse(Buffer.from(text, 'base64').toString()) as JsonObject
    const changed = (change: JsonObject): string => Buffer.from(JSON.stringify({ ...read, ...change })).toString('base64')
    return [changed({ sec: 'a'.repeat(64) }), changed({ fam: 'a'.repeat(32) })].map((token) => ({ request: {}, token, about: 'nothing' }))
  },
  refusalEnds: true,
  codes: { unsigned: 16, stranger: 16, ours: 16 },
}

const badRefresh: readonly BadInput[] = badExchange.filter(
  ({ breaks = [], fields = [] }) => [...breaks, ...fields].every((name) => !name.startsWith('identity')) && (breaks.length > 0 || fields.length > 0),
)

/** Ping, token exchanges, registering and leaving, and Validate. */
export const apiClientCases: Readonly<Record<string, MethodCase>> = {
  'Auth/Register': {
    request: async (world) => {
      await expectedPerson(world)
      return { identityId: personOf(world) }
    },
    caller: (world) => externalToken(world, people.get(world) ?? ''),
    external: registerCase,
    badInputs: [
      { what: 'a uid that is not the one of the token', request: () => ({ identityId: 'a'.repeat(40) }), fields: ['identity_id'] },
      { what: 'a uid that is too long', breaks: ['identity_id:string.max_len'], request: () => ({ identityId: long(256) }), fields: ['identity_id'] },
      { what: 'a code that is too long', breaks: ['code:string.max_len'], request: () => ({ code: long(4097) }), fields: ['code'] },
      { what: 'a code that is none', request: () => ({ code: 'none' }), code: 5 },
      { what: 'a number for the code', only: 'rest', request: () => ({ code: 7 }), fields: ['code'] },
    ],
  },
  'Auth/Delete': {
    request: async (world) => {
      await expectedPerson(world)
      ok(await world.server.rest.call('Register', {}, { token: await externalToken(world, people.get(world) ?? '') }))
      return { id: personOf(world) }
    },
    caller: (world) => world.server.tokenFor(personOf(world)),
    outsider: { code: 5 },
    badInputs: [
      { what: 'the uid of another organisation', request: (_valid, world) => ({ id: world.owner.slice(0, 40) }), code: 5 },
      { what: 'a text that is no uid', request: () => ({ id: 'foreign-name' }), code: 5 },
    ],
  },
  'SecurityTokenService/ExchangeRefreshToken': {
    request: async (world) => {
      await expectedPerson(world)
      ok(await world.server.rest.call('Register', {}, { token: await externalToken(world, people.get(world) ?? '') }))
      return {}
    },
    caller: refreshToken,
    external: refreshCase,
    badInputs: badRefresh,
  },
  'Auth/GetHeadlessSession': {
    request: async ({ server }) => {
      const code = randomBytes(32).toString('base64url')
      await leaveHeadlessSession(server.running.engine.services, { code, publicKey: code, encrypted: randomBytes(40) }, AbortSignal.timeout(60_000))
      return { code }
    },
    badInputs: [
      { what: 'a code for which nothing was left', request: () => ({ code: randomBytes(32).toString('base64url') }), code: 5 },
      { what: 'no code', request: () => ({}), code: 5 },
      { what: 'a code that is too long', breaks: ['code:string.max_len'], request: () => ({ code: long(256) }), fields: ['code'] },
    ],
  },
  'PingService/Ping': { request: (): JsonObject => ({}), badInputs: [] },
  'v1.PingService/Ping': { request: (): JsonObject => ({}), badInputs: [] },
  'Auth/Validate': { request: () => ({}), badInputs: [] },
  'SecurityTokenService/Exchange': {
    request: async (world) => ({ identity: await assumable(world) }),
    caller: (world) => externalToken(world, subjects.get(world) ?? ''),
    external: exchangeCase,
    badInputs: badExchange,
  },
}
