import { request } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { builtInRoles } from '../../src/base/roles.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { slowness } from '../budgets.ts'
import { fill, filledBinding, filledGroup, uidsBelow } from '../support/fill-bindings.ts'
import { longestTurn } from '../support/longest-turn.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'

const count = 10_000
/** 10 ms on the reference machine. */
const boundMs = 10 * slowness()

/** A request to an API path, or to a complete URL. */
interface Asking {
  readonly path: string
  readonly token: string
  readonly verb?: string
  readonly body?: object
}

/** Sends a request and returns the undecoded bytes of the answer, since decoding is not the server's work. Rejects on an error answer. */
function fetched(server: TestServer, { path, token, verb = 'GET', body }: Asking): Promise<Buffer[]> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer[]>()
  const headers = { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) }
  const req = request(new URL(path, server.config.baseUrl), { method: verb, headers, agent: false }, (res) => {
    const chunks: Buffer[] = []
    res.on('data', (chunk: Buffer) => void chunks.push(chunk))
    res.on('end', () => (res.statusCode === 200 ? resolve(chunks) : reject(new Error(Buffer.concat(chunks).toString().slice(0, 500)))))
  })
  req.on('error', reject)
  req.end(body === undefined ? undefined : JSON.stringify(body))
  return promise
}

interface WhoAmI {
  readonly capabilities: {
    readonly group: { readonly id: string; readonly name: string }
    readonly role: { readonly name: string }
    readonly capabilities: string[]
  }[]
}

describe('a caller with 10,000 bindings', () => {
  let server: TestServer
  let org: Organisation
  let caller: { uid: string; token: string }
  /** Has four times as many bindings, so that any cost that grows with them is visible. */
  let wide: { uid: string; token: string }
  let groups: string[]
  let fills = 0
  let subject = freshName('subject')
  let mirror: string
  const organisationName = freshName('many')
  const held = async (): Promise<WhoAmI['capabilities']> =>
    (JSON.parse(Buffer.concat(await fetched(server, { path: '/auth/v1/ok', token: caller.token })).toString()) as WhoAmI).capabilities

  beforeAll(async () => {
    server = await startTestServer()
    org = await makeOrganisation(server, organisationName)
    caller = await makeMember(server, org.group)
    wide = await makeMember(server, org.group)
    const claimMatch = { issuer: server.devIssuer.issuer, subject }
    ok(await server.rest.call('UpdateIdentity', { identity: { uid: wide.uid, claimMatch } }, { token: org.token }))
    groups = uidsBelow(org.group, count)
    await fill(server, [
      ...groups.map((uid, at) => filledGroup(uid, `team ${(at * 7919) % count}`)),
      ...groups.map((uid) => filledBinding(`${uid}/${'b'.repeat(16)}`, caller.uid, roleUid('viewer'))),
      ...groups.flatMap((uid) => builtInRoles.slice(0, 4).map((role, at) => filledBinding(`${uid}/${String(at).repeat(16)}`, wide.uid, role.uid))),
      // The source of its mirrors.
      filledBinding(`${org.group}/${'b'.repeat(16)}`, wide.uid, roleUid('viewer')),
    ])
    const source = ok(await server.rest.call('CreateRepo', { parent: org.group, repo: { name: 'source' } }, { token: org.token }))['uid']
    for (const at of [0, 1]) {
      const repo = { name: `mirror-${at}`, syncConfig: { source: source ?? '' } }
      mirror = String(ok(await server.rest.call('CreateRepo', { parent: groups[at] ?? '', repo }, { token: wide.token }))['uid'])
    }
    // The first requests compile code that every request runs.
    const other = await makeMember(server, org.group, { role: 'viewer' })
    const few = groups.slice(0, 150)
    await fill(
      server,
      few.map((uid) => filledBinding(`${uid}/${'c'.repeat(16)}`, other.uid, roleUid('viewer'))),
    )
    for (let times = 0; times < 20; times++) {
      for (const path of ['/auth/v1/ok', '/iam/v2/groups', '/iam/v2/roleBindings', `/iam/v2/groups?uidp.childrenOf=${org.group}&orderBy=name`]) {
        await fetched(server, { path, token: other.token })
      }
    }
  })
  afterAll(() => server.stop())

  /** Returns the processor time of the longest turn while `ask` is answered. Garbage collection may fall into any turn, so the best of ten runs counts. */
  const leastTurn = async (ask: () => Promise<Asking>, cold?: { readonly uid: string }): Promise<number> => {
    let least = Infinity
    for (let attempt = 0; attempt < 10 && least >= boundMs; attempt++) {
      const asking = await ask()
      // Invalidates the cached permissions of the identity.
      const uid = `${groups[0] ?? ''}/${(fills++).toString(16).padStart(16, 'd')}`
      if (cold !== undefined) await fill(server, [filledBinding(uid, cold.uid, roleUid('viewer'))])
      const { result, longestMs } = await longestTurn(() => fetched(server, asking))
      expect(result.length).toBeGreaterThan(0)
      least = Math.min(least, longestMs)
    }
    return least
  }

  test.each([
    ['to ask for its own identity', () => '/auth/v1/ok'],
    ['to ask for its own identity, again', () => '/auth/v1/ok'],
    ['to get one group', () => `/iam/v2/groups/${groups[5] ?? ''}`],
    ['to list groups', () => '/iam/v2/groups'],
    ['to list groups by name', () => '/iam/v2/groups?orderBy=name&pageSize=200'],
    ['to list groups by name, from a late page', () => '/iam/v2/groups?orderBy=name&skip=7000'],
    ['to list child groups by name', () => `/iam/v2/groups?uidp.childrenOf=${org.group}&orderBy=name`],
    ['to list child groups by name, again', () => `/iam/v2/groups?uidp.childrenOf=${org.group}&orderBy=name`],
    ['to list role bindings', () => '/iam/v2/roleBindings'],
    ['to list the bindings of a role', () => `/iam/v2/roleBindings?role=${roleUid('viewer')}&orderBy=create_time`],
    ['to list identities', () => '/iam/v2/identities?orderBy=name'],
    ['to list roles', () => '/iam/v2/roles'],
  ])('calls the API %s, and no turn of the event loop takes longer than 10 ms', async (title, pathOf) => {
    const ask = (): Promise<Asking> => Promise.resolve({ path: pathOf(), token: caller.token })
    expect(await leastTurn(ask, title.endsWith('again') ? undefined : caller)).toBeLessThan(boundMs)
  })

  const exchange = async (query = ''): Promise<Asking> => ({
    path: `/sts/exchange?identity=${wide.uid}${query}`,
    verb: 'POST',
    token: await server.devIssuer.mintDevToken({ subject, audience: server.config.baseUrl }),
  })
  const accessFor = async (audience: string): Promise<string> => {
    const act = { issuer: server.devIssuer.issuer, subject, audience }
    return (await server.running.signIn.tokens.mint({ identityUid: trustedUid(wide.uid), audiences: [audience], act, restrictions: {} })).token
  }

  test.each<[string, () => Promise<Asking>]>([
    ['exchanges its token', () => exchange()],
    ['exchanges its token for two groups', () => exchange(`&scopes=${groups[1] ?? ''}&scopes=${groups[2] ?? ''}`)],
    [
      'uses a token for two groups',
      async () => ({
        path: `/iam/v2/groups/${groups[5] ?? ''}`,
        token: await server.tokenFor(wide.uid, { scopes: [5, 6].map((at) => trustedUid(groups[at] ?? '')) }),
      }),
    ],
    [
      'lists tags at the registry host',
      async () => ({
        path: `http://127.0.0.1:${server.config.registry.port}/v2/${organisationName}/source/tags/list`,
        token: await accessFor(server.config.registry.host),
      }),
    ],
    [
      'asks for its own identity, in a session with 50 roles in its organisation',
      async () => {
        const roles = groups.slice(0, 50).map((role) => ({ group: trustedUid(org.group), role: trustedUid(role) }))
        return { path: '/auth/v1/ok', token: await server.tokenFor(wide.uid, { roles }) }
      },
    ],
    ['mirrored a repo that others then get', () => Promise.resolve({ path: `/registry/v2/repos/${mirror}`, token: org.token })],
    ['mirrored repos that others then list', () => Promise.resolve({ path: '/registry/v2/repos?pageSize=200', token: org.token })],
    [
      'gets another way to sign in',
      () =>
        Promise.resolve({
          path: `/iam/v2/identities/${wide.uid}`,
          verb: 'PATCH',
          token: org.token,
          body: { claimMatch: { issuer: server.devIssuer.issuer, subject: (subject = freshName('subject')) } },
        }),
    ],
  ])('a caller with 40,000 bindings %s: no turn of the event loop takes longer than 10 ms', async (_title, ask) => {
    expect(await leastTurn(ask, wide)).toBeLessThan(boundMs)
  })

  test('an owner of 10,000 groups asks for audit events: no turn of the event loop takes longer than 10 ms', async () => {
    const owner = await makeMember(server, org.group)
    await fill(
      server,
      groups.map((uid) => filledBinding(`${uid}/${'e'.repeat(16)}`, owner.uid, roleUid('owner'))),
    )
    ok(await server.rest.call('UpdateGroup', { group: { uid: groups[9_000] ?? '', description: 'seen' }, updateMask: 'description' }, { token: org.token }))
    expect(await leastTurn(() => Promise.resolve({ path: '/audit/v2/events?pageSize=200', token: owner.token }), owner)).toBeLessThan(boundMs)
  })

  test('a changed binding, group and role count from the next answer on', async () => {
    const before = await held()
    expect(before.length).toBeGreaterThanOrEqual(count)
    expect([...new Set(before.map(({ group }) => group.id))]).toEqual(groups)
    ok(await server.rest.call('UpdateGroup', { group: { uid: groups[3] ?? '', name: 'renamed' }, updateMask: 'name' }, { token: org.token }))
    expect((await held()).find(({ group }) => group.id === groups[3])?.group.name).toBe('renamed')
    ok(await server.rest.call('DeleteRoleBinding', { uid: `${groups[4] ?? ''}/${'b'.repeat(16)}` }, { token: org.token }))
    expect((await held()).length).toBe(before.length - 1)
    ok(await server.rest.call('DeleteIdentity', { uid: caller.uid }, { token: org.token }))
    expect((await server.rest.call('Validate', {}, { token: caller.token })).code).toBe(16)
  })
})
