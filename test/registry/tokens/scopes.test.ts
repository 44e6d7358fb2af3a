import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isRepositoryName } from '../../../src/registry/records/repo-paths.ts'
import { RegistryError } from '../../../src/registry/registry-error.ts'
import { formatScope, parseScopes } from '../../../src/registry/tokens/scope.ts'
import { campaignLength } from '../../soak/factor.ts'
import { startTestServer } from '../../support/test-server.ts'
import { publicName, RegistryWorld, type Access, type Tenant } from './registry-world.ts'

function parsed(...parameters: string[]): ReturnType<typeof parseScopes> | number {
  try {
    return parseScopes(parameters)
  } catch (error) {
    if (error instanceof RegistryError) return error.status
    throw error
  }
}

describe('scopes', () => {
  test.for([
    ['one repository', ['repository:a/b:pull'], [{ path: 'a/b', actions: ['pull'] }]],
    ['several actions, in any order', ['repository:a/b:push,pull'], [{ path: 'a/b', actions: ['pull', 'push'] }]],
    ['an action twice', ['repository:a/b:pull,pull'], [{ path: 'a/b', actions: ['pull'] }]],
    ['every action', ['repository:a/b:*'], [{ path: 'a/b', actions: ['pull', 'push', 'delete'] }]],
    ['an unknown action', ['repository:a/b:pull,admin'], [{ path: 'a/b', actions: ['pull'] }]],
    [
      'several in one parameter',
      ['repository:a/b:pull  repository:c/d:push'],
      [
        { path: 'a/b', actions: ['pull'] },
        { path: 'c/d', actions: ['push'] },
      ],
    ],
    ['a repository twice', ['repository:a/b:pull', 'repository:a/b:push'], [{ path: 'a/b', actions: ['pull', 'push'] }]],
    ['another type', ['registry:catalog:*'], []],
    ['another resource class', ['repository(plugin):a/b:pull'], []],
    ['no scope', [], []],
    ['an empty scope', [''], []],
  ] as const)('%s', ([, parameters, repositories]) => {
    expect(parsed(...parameters)).toMatchObject({ repositories })
  })

  test.for([
    'repository',
    'repository:a/b',
    ':a/b:pull',
    'repository::pull',
    'repository:a:pull',
    'repository:a/b:',
    'repository:a/b:pull,',
    'repository:a/b:,pull',
    'repository:a/b:PULL',
    'repository:A/b:pull',
    'repository:/a/b:pull',
    'repository:a/b/:pull',
    'repository:a//b:pull',
    'repository:a/../b:pull',
    'repository:a/./b:pull',
    'repository:a%2fb:pull',
    'repository:a/b:c:pull',
    'repository:host:5000/a/b:pull',
    'repository:a/b\u0000:pull',
    'repository:a/b:pull\tpush',
    `repository:${'a/'.repeat(200)}b:pull`,
    'Repository:a/b:pull',
    'repository(:a/b:pull',
  ])('scopes that are malformed are refused: %j', (scope) => {
    expect(parsed(scope)).toBe(400)
    expect(parsed('repository:a/b:pull', scope)).toBe(400)
  })

  test('scopes are limited to a hundred', () => {
    expect(parsed(Array.from({ length: 101 }, (_, at) => `repository:a/b${at}:pull`).join(' '))).toBe(400)
  })

  test('scopes are the same after parsing and formatting', () => {
    const name = fc.stringMatching(/^[a-z0-9]{1,8}(-[a-z0-9]{1,4})?(\/[a-z0-9]{1,8}){1,3}$/)
    const actions = fc.uniqueArray(fc.constantFrom('pull', 'push', 'delete'), { minLength: 1 })
    fc.assert(
      fc.property(name, actions, (path, asked) => {
        const scope = { path, actions: (['pull', 'push', 'delete'] as const).filter((action) => asked.includes(action)) }
        expect(parsed(formatScope(scope))).toMatchObject({ repositories: [scope] })
      }),
    )
  })
})

describe('scopes at /token', () => {
  let world: RegistryWorld
  let mine: Tenant
  let theirs: Tenant
  let free: Tenant
  let puller: string

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer({ env: { TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName } }))
    ;[mine, theirs, free] = [await world.tenant(), await world.tenant(), await world.publicTenant()]
    puller = (await world.member(mine.group, { role: 'registry.pull' })).authorization
  })
  afterAll(() => world.server.stop())

  /** Malformed scopes for existing paths: assembled from pieces, then changed. */
  function scopeTexts(): fc.Arbitrary<string> {
    const [name, repo] = theirs.path.split('/') as [string, string]
    const piece = fc.constantFrom(
      ...['repository', 'registry', 'repository(plugin)', ':', '::', ',', ' ', '/', '//', '..', '.', '%2f', '*', '\u0000', '\t', '"', '\\', 'é', 'ſ'],
      ...['pull', 'push', 'delete', 'PULL', 'catalog', 'admin', name, repo, theirs.path, mine.path, mine.name, 'app', theirs.group, theirs.repo, free.path],
    )
    const spoiled = fc
      .tuple(fc.constantFrom(theirs.path, mine.path, free.path), fc.array(piece, { minLength: 1, maxLength: 3 }), fc.nat())
      .map(([path, extra, at]) => {
        const scope = `repository:${path}:pull,push,delete`
        const cut = at % (scope.length + 1)
        return scope.slice(0, cut) + extra.join('') + scope.slice(cut)
      })
    return fc.oneof(
      fc.array(piece, { minLength: 1, maxLength: 12 }).map((pieces) => pieces.join('')),
      spoiled,
      fc.string({ unit: 'binary', maxLength: 60 }),
    )
  }

  test('scopes at /token without an organisation get an explanation of repository names', async () => {
    const answer = await world.requestToken(['repository:hello:pull,push'], mine.authorization)
    expect(answer).toMatchObject({ status: 400, codes: ['NAME_INVALID'] })
    expect(answer.body).toContain('<organization>/<image>')
  })

  test("scopes at /token that are malformed get 400, or never more than the caller's rights", async () => {
    const allowed = new Map([
      [mine.path, { uid: mine.repo, actions: ['pull'] }],
      [`${mine.group}/app`, { uid: mine.repo, actions: ['pull'] }],
      [free.path, { uid: free.repo, actions: ['pull'] }],
      [`${free.group}/app`, { uid: free.repo, actions: ['pull'] }],
    ])
    const tally = { refused: 0, empty: 0, granted: 0 }
    const check = async (scope: string): Promise<void> => {
      const { status, token, body } = await world.requestToken([scope], puller)
      if (status === 400) {
        tally.refused += 1
        expect(body).toContain('"errors"')
        return
      }
      expect(status, JSON.stringify(scope)).toBe(200)
      const { access } = world.claimsOf(token)
      if (access.length === 0) tally.empty += 1
      else tally.granted += 1
      for (const entry of access) assertAllowed(entry, scope)
    }
    const assertAllowed = ({ name, actions, uid, parent }: Access, scope: string): void => {
      expect(isRepositoryName(name)).toBe(true)
      const known = allowed.get(name)
      // In their own organisation callers may learn that a repo does not exist.
      if (known === undefined)
        expect({ scope, parent, actions }).toEqual({ scope, parent: expect.stringMatching(`^(${mine.group})`) as unknown, actions: ['pull'] })
      else expect({ scope, uid, actions }).toEqual({ scope, uid: known.uid, actions: known.actions })
    }
    const texts = fc.sample(scopeTexts(), campaignLength({ short: 2_000, full: 10_000 }))
    for (let at = 0; at < texts.length; at += 50) await Promise.all(texts.slice(at, at + 50).map(check))
    expect(tally.refused + tally.empty + tally.granted).toBe(texts.length)
    expect(tally.refused).toBeGreaterThan(texts.length / 2)
    expect(tally.empty).toBeGreaterThan(texts.length / 100)
    expect(tally.granted).toBeGreaterThan(0)
  })
})
