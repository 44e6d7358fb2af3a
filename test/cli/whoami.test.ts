import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createPlatformClient } from '../../src/cli/client/platform-client.ts'
import { type WhoAmICaller, whoami } from '../../src/cli/whoami.ts'
import { makeMember, makePerson, ok, roleUid, startTestServer } from '../support/test-server.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { contextOf } from './client-world.ts'

describe('taproot whoami', () => {
  let world: RegistryWorld
  let mine: Tenant
  let team: string

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer())
    mine = await world.tenant()
    team = await world.group(mine.group, 'team')
  })
  afterAll(() => world.server.stop())

  async function run(token: string, format: Parameters<typeof whoami>[1] = 'table'): Promise<string> {
    const context = contextOf(world.server, token)
    await whoami(context, format)
    return context.printed()
  }

  const caller = async (token: string): Promise<WhoAmICaller> => JSON.parse(await run(token, 'json')) as WhoAmICaller

  test('taproot whoami shows identity, sign-in, organisation, audience, expiry, and roles with the paths of their groups', async () => {
    const member = await makeMember(world.server, mine.group, { role: 'viewer' })
    await world.bind(team, member.uid, 'registry.push')
    expect(await caller(member.token)).toMatchObject({
      identity: { uid: member.uid, name: expect.stringMatching(/^member-/) as unknown },
      signedInAs: { issuer: `${world.server.config.baseUrl}/dev/issuer`, subject: 'test' },
      organisation: { uid: mine.group, name: mine.name },
      audience: [world.server.config.baseUrl],
      expirationTime: expect.stringMatching(/Z$/) as unknown,
      roles: [
        { role: 'viewer', group: mine.name, groupUid: mine.group, capabilities: expect.arrayContaining(['groups.list']) as unknown },
        { role: 'registry.push', group: `${mine.name}/team`, groupUid: team },
      ],
    })
    const lines = (await run(member.token)).split('\n')
    expect(lines).toEqual([
      expect.stringMatching(/^identity {6}member-\S+ \(\S+\)$/),
      `signed in as  test at ${world.server.config.baseUrl}/dev/issuer`,
      `organisation  ${mine.name} (${mine.group})`,
      `audience      ${world.server.config.baseUrl}`,
      expect.stringMatching(/^expires {7}\S+Z, in \d+m$/),
      'roles',
      `  viewer         ${mine.name}       ${mine.group}`,
      `  registry.push  ${mine.name}/team  ${team}`,
      '',
    ])
    expect(parse(await run(member.token, 'yaml'))).toEqual(await caller(member.token))
  })

  test('taproot whoami shows the content of the token to a caller who may see nothing', async () => {
    const powerless = await makeMember(world.server, mine.group)
    const reported = await caller(powerless.token)
    expect(reported).toMatchObject({ identity: { uid: powerless.uid }, organisation: { uid: mine.group }, roles: [] })
    expect(reported.identity.name).toBeUndefined()
    expect(reported.organisation?.name).toBeUndefined()
    expect(await run(powerless.token)).toMatch(/^roles {9}none$/m)
  })

  test('taproot whoami names the group of a role relative to what the caller may see', async () => {
    const member = await makeMember(world.server, mine.group, { role: 'viewer', bindAt: team })
    expect((await caller(member.token)).roles).toMatchObject([{ role: 'viewer', group: 'team' }])
  })

  test('taproot whoami shows no organisation for a person', async () => {
    const person = await makePerson(world.server, { issuer: 'https://issuer.example', subject: 'ann', email: 'ann@example.com' })
    const reported = await caller(person.token)
    expect(reported).toMatchObject({
      identity: { uid: person.uid },
      signedInAs: { issuer: 'https://issuer.example', subject: 'ann' },
      email: 'ann@example.com',
    })
    expect(reported.organisation).toBeUndefined()
  })

  test('taproot whoami shows a token of another issuer, with the identity that it is for', async () => {
    const { server } = world
    const { issuer } = server.devIssuer
    const token = await server.operatorToken()
    const identity = { name: 'ci', claimMatch: { issuer, subject: 'ci' } }
    const { uid } = ok(await server.rest.call('CreateIdentity', { parent: team, identity }, { token }))
    ok(await server.rest.call('CreateRoleBinding', { parent: team, roleBinding: { identityUid: String(uid), roleUid: roleUid('viewer') } }, { token }))
    const external = await server.devIssuer.mintDevToken({ subject: 'ci', audience: server.config.baseUrl })
    const context = contextOf(server, external)
    const client = createPlatformClient({ baseUrl: server.config.baseUrl, token: external, identity: String(uid) })
    await whoami({ ...context, client }, 'json')
    expect(JSON.parse(context.printed())).toMatchObject({ identity: { uid, name: 'ci' }, signedInAs: { issuer, subject: 'ci' }, roles: [{ role: 'viewer' }] })
  })

  test.for(['none', 'a.b.c'])('taproot whoami refuses a text that is not a token (%s) with code 16', async (token) => {
    await expect(run(token)).rejects.toMatchObject({ name: 'ClientError', code: 16, requestId: expect.stringMatching(/./) as unknown })
  })
})
