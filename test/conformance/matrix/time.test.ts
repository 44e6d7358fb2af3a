import { performance } from 'node:perf_hooks'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freshName, type TestServer } from '../../support/test-server.ts'
import { RegistryWorld } from '../../registry/tokens/registry-world.ts'
import { askScim, makeDirectory, type Directory } from '../../iam/scim/directory.ts'
import { ask, missingIn } from './asking.ts'
import { round, compareTimings } from './timing.ts'
import { grantedRole, makeMatrixWorld, startMatrixServer, type MatrixWorld, type Things } from './world.ts'

let server: TestServer
let world: MatrixWorld
let registry: RegistryWorld
/** A token of the development issuer for a subject that no identity here trusts. */
let external: string
let authorization: string
let directories: Directories

beforeAll(async () => {
  server = await startMatrixServer('sqlite')
  world = await makeMatrixWorld(server)
  registry = new RegistryWorld(server)
  external = await server.devIssuer.mintDevToken({ subject: 'another-person', audience: server.config.baseUrl })
  authorization = `Bearer ${await registry.accessToken(world.things.ancestor.identity)}`
  directories = { mine: await makeDirectory(server), theirs: await makeDirectory(server), off: await makeDirectory(server) }
  await directories.off.setEnabled(false)
})
afterAll(() => server.stop())

/** A call that names a record, for one class of methods. */
interface Timed {
  readonly named: (things: Things) => string
  readonly call: (value: string, own: Things) => Promise<unknown>
  readonly missing?: (value: string) => string
}

function api(name: string, request: (value: string, own: Things) => JsonObject, transport: 'rest' | 'grpc' = 'rest'): Timed['call'] {
  return (value, own) => {
    const call = { name, request: request(value, own), token: world.tokens['an owner of the root'], options: { validateOnly: true } }
    return ask(server[transport], call)
  }
}

/**
 * Not for identities with keys of their own. A caller who knows uid, issuer and subject learns from a signature check that it exists (docs/security.md).
 */
const asIdentity: Timed['call'] = (identity) => ask(server.rest, { name: 'Exchange', request: { identity }, token: external })

const bindingOf = (own: Things, change: JsonObject): JsonObject => ({
  parent: own.group,
  roleBinding: { identityUid: own.identity, roleUid: grantedRole, ...change },
})

/** Foreign against missing records: one row for each way to name a record in a request. */
const timed: Readonly<Record<string, Timed>> = {
  'a read': { named: ({ repo }) => repo, call: api('GetRepo', (uid) => ({ uid })) },
  'a read over gRPC': { named: ({ repo }) => repo, call: api('GetRepo', (uid) => ({ uid }), 'grpc') },
  'a change': { named: ({ identity }) => identity, call: api('UpdateIdentity', (uid) => ({ identity: { uid, description: 'x' } })) },
  'a deletion': { named: ({ role }) => role, call: api('DeleteRole', (uid) => ({ uid })) },
  'a creation': { named: ({ group }) => group, call: api('CreateRepo', (parent) => ({ parent, repo: { name: 'made' } })) },
  'a verb': { named: ({ provider }) => provider, call: api('GenerateScimToken', (identityProviderUid) => ({ identityProviderUid })) },
  'a question about access': { named: ({ tag }) => tag, call: api('ListAccess', (resource) => ({ resource })) },
  'a list of what lies in something': { named: ({ repo }) => repo, call: api('ListTags', (childrenOf) => ({ uidp: { childrenOf } })) },
  'a list of what lies below something': { named: ({ group }) => group, call: api('ListRepos', (descendantsOf) => ({ uidp: { descendantsOf } })) },
  'a list by uid': { named: ({ invite }) => invite, call: api('ListGroupInvites', (uid) => ({ uidp: { ids: [uid] } })) },
  'a list by a filter': { named: ({ identity }) => identity, call: api('ListRoleBindings', (identity) => ({ identity })) },
  'a role in a body': { named: ({ role }) => role, call: api('CreateRoleBinding', (roleUid, own) => bindingOf(own, { roleUid })) },
  'an identity in a body': { named: ({ identity }) => identity, call: api('CreateRoleBinding', (identityUid, own) => bindingOf(own, { identityUid })) },
  'a default role in a body': {
    named: ({ role }) => role,
    call: api('UpdateIdentityProvider', (defaultRole, own) => ({ identityProvider: { uid: own.provider, defaultRole } })),
  },
  'a source in a body': {
    named: ({ repo }) => repo,
    call: api('CreateRepo', (source, own) => ({ parent: own.place, repo: { name: 'made', syncConfig: { source } } })),
  },
  'a group by its name': {
    named: ({ placeName }) => placeName,
    missing: () => freshName('group'),
    call: api('CreateGroup', (parent) => ({ parent, group: { name: 'made' } })),
  },
  'an identity that is asked about': {
    named: ({ identity }) => identity,
    call: api('Explain', (identity, own) => ({ identity, resource: own.repo, capability: 'repo.list' })),
  },
  'an identity that is signed in as': { named: ({ identity }) => identity, call: asIdentity },
  'a repository at /token': {
    named: ({ repoPath }) => repoPath,
    missing: (path) => `${path.slice(0, -4)}none`,
    call: (path) => registry.requestToken([`repository:${path}:pull`], authorization),
  },
}

/** Two organisations with a directory, and one whose SCIM is off. */
interface Directories {
  readonly mine: Directory
  readonly theirs: Directory
  readonly off: Directory
}

/** A provider, and the token presented to its SCIM server. */
type Shown = readonly [provider: string, token: string]

const foreign = ({ mine, theirs }: Directories): Shown => [theirs.provider, mine.scimToken]
const missing = ({ mine }: Directories): Shown => [missingIn(mine.group, mine.provider), mine.scimToken]
const off = (directories: Directories): Shown => [directories.off.provider, directories.off.scimToken]
const bad = ({ mine }: Directories): Shown => [mine.provider, `cgscim_${'0'.repeat(64)}`]

/** Refusals of a SCIM server that must take equally long. */
const refusedByScim = {
  'a foreign provider and a missing one': [foreign, missing],
  'a foreign provider and a bad token': [foreign, bad],
  'a missing provider and a bad token': [missing, bad],
  'SCIM that is off and a bad token': [off, bad],
} as const satisfies Readonly<Record<string, readonly [(of: Directories) => Shown, (of: Directories) => Shown]>>

function askedScim([provider, token]: Shown): () => Promise<unknown> {
  return async () => expect((await askScim(`${server.config.baseUrl}/scim/v2/${provider}/Users`, 'GET', { token })).status).toBe(401)
}

function comparisonOf({ named, call, missing }: Timed, plantedMs = 0): Parameters<typeof compareTimings>[0] {
  const { own, other } = world.things
  const foreign = named(other)
  const absent = missing?.(foreign) ?? missingIn(other.place, foreign)
  const planted = async (): Promise<void> => {
    await call(foreign, own)
    for (const end = performance.now() + plantedMs; performance.now() < end;);
  }
  return { one: planted, other: () => call(absent, own), pairs: 150, rounds: 4 }
}

describe('the time of an answer does not reveal whether a record is foreign or missing:', () => {
  test.each(Object.entries(timed))('%s', async (_, row) => {
    expect(await compareTimings(comparisonOf(row))).toEqual([])
  })

  test.each(Object.entries(refusedByScim))('at a SCIM server: %s', async (_, [one, other]) => {
    expect(await compareTimings({ one: askedScim(one(directories)), other: askedScim(other(directories)), pairs: 150, rounds: 4 })).toEqual([])
  })

  test('the comparison detects a difference of a quarter of a call, or of the noise of the machine', async () => {
    const row = timed['a read']
    if (row === undefined) throw new Error('no such row')
    let found = 0
    for (let tries = 0; tries < 10 && found === 0; tries++) {
      const { noise, usual } = await round(comparisonOf(row))
      found = (await compareTimings(comparisonOf(row, Math.max(0.2, 3 * noise, usual / 4)))).length
    }
    expect(found).toBe(4)
  })
})
