import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../harness/test-server.ts'
import { long } from './bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, missingBeside, type World } from './world.ts'

/** Whom the identity made last trusts. */
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
  { what: 'an identity that is no uid', request: exchangeWith({ identity: 'somebody' }), code: 7 },
  { what: 'an identity that is missing', request: ({ identity }) => ({ identity: missingBeside(String(identity)) }), code: 7 },
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

/** Ping, the token exchange and who-am-I. */
export const doorCases: Readonly<Record<string, MethodCase>> = {
  'PingService/Ping': { request: (): JsonObject => ({}), badInputs: [] },
  'Auth/Validate': { request: () => ({}), badInputs: [] },
  'SecurityTokenService/Exchange': {
    request: async (world) => ({ identity: await assumable(world) }),
    caller: (world) => externalToken(world, subjects.get(world) ?? ''),
    badInputs: badExchange,
  },
}
