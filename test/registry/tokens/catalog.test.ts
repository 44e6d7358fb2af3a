import { afterAll, beforeAll, expect, test } from 'vitest'
import { freshName, startTestServer } from '../../support/test-server.ts'
import { registrySuite } from './registry-suite.ts'
import { bearer, RegistryWorld } from './registry-world.ts'

registrySuite('the list of repositories', (suite) => {
  /** Lists all pages, with a check of each status. */
  async function listed(authorization: string, query = ''): Promise<string[]> {
    const found: string[] = []
    let path: string | undefined = `/v2/_catalog${query}`
    while (path !== undefined) {
      const { status, body, headers } = await suite.world.ask({ path, authorization })
      expect(status).toBe(200)
      found.push(...(JSON.parse(body) as { repositories: string[] }).repositories)
      path = /^<([^>]+)>; rel="next"$/.exec(String(headers.link ?? ''))?.[1]
    }
    return found
  }

  test('the list of repositories contains what the caller may pull, each repository once, also page by page, and nothing else', async () => {
    const { world, mine } = suite
    const group = await world.group(mine.group, 'team')
    const names = Array.from({ length: 5 }, () => freshName('app'))
    for (const name of names) await world.repo(group, name)
    const team = names.map((name) => `${mine.name}/team/${name}`).sort()
    const all = [mine.path, ...team].sort()
    expect((await listed(mine.authorization)).sort()).toEqual(all)
    expect((await listed(mine.authorization, '?n=2')).sort()).toEqual(all)
    const member = await world.member(mine.group, { role: 'registry.pull', bindAt: group })
    expect((await listed(member.authorization)).sort()).toEqual(team)
    const [first = '', ...others] = await listed(member.authorization)
    expect(await listed(member.authorization, `?n=2&last=${first}`)).toEqual(others)
    expect(await listed((await world.member(mine.group)).authorization)).toEqual([])
    const push = await world.member(mine.group, { role: 'registry.pull_token_creator' })
    expect(await listed(push.authorization)).not.toContain(suite.theirs.path)
  })

  test('the list of repositories needs a credential, or a token for the catalogue scope', async () => {
    const { world, mine } = suite
    const challenge = async (authorization?: string): Promise<unknown> => {
      const { status, headers } = await world.ask({ path: '/v2/_catalog', authorization })
      return [status, /scope="([^"]*)"/.exec(String(headers['www-authenticate']))?.[1]]
    }
    expect(await challenge()).toEqual([401, 'registry:catalog:*'])
    for (const scope of [`repository:${mine.path}:pull`, 'registry:catalog:pull']) {
      expect(await challenge(bearer(await world.tokenFor(scope, mine.authorization)))).toEqual([401, 'registry:catalog:*'])
    }
    const token = bearer(await world.tokenFor('registry:catalog:*', mine.authorization))
    expect(await listed(token)).toContain(mine.path)
    // The token allows only listing.
    expect(await world.list(mine.path, token)).toMatchObject({ status: 403 })
    expect(await world.requestToken(['registry:catalog:*'])).toMatchObject({ status: 401 })
  })

  test('the list of repositories refuses malformed page parameters', async () => {
    const { world, mine } = suite
    for (const [query, status] of [
      ['?n=x', 400],
      ['?after=x', 400],
      ['?last=none/such', 404],
    ] as const) {
      expect(await world.ask({ path: `/v2/_catalog${query}`, authorization: mine.authorization })).toMatchObject({ status })
    }
    expect(await world.ask({ method: 'POST', path: '/v2/_catalog', authorization: mine.authorization })).toMatchObject({ status: 405 })
  })
})

let off: RegistryWorld
beforeAll(async () => {
  off = new RegistryWorld(await startTestServer({ env: { TAPROOT_REGISTRY_CATALOG: 'false' } }))
})
afterAll(() => off.server.stop())

test('is 405 if the configuration switches it off', async () => {
  const { authorization } = await off.tenant()
  expect(await off.ask({ path: '/v2/_catalog', authorization })).toMatchObject({ status: 405, codes: ['UNSUPPORTED'] })
})
