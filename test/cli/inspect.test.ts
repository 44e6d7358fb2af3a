import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { get, type GetRequest } from '../../src/cli/get.ts'
import { printAccess, printExplanation } from '../../src/cli/inspect/access.ts'
import { printWhetherAllowed } from '../../src/cli/inspect/can-i.ts'
import { parseMoment, printHistory, restore, type RestoreTarget } from '../../src/cli/inspect/tag-history.ts'
import { ClientError } from '../../src/cli/client/client-error.ts'
import { freshDirectory, runProcess } from '../e2e/process/harness/taproot-process.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { freshName, makeMember, ok, roleUid, startTestServer } from '../support/test-server.ts'
import { contextOf, type TestContext } from './client-world.ts'

const digests = ['ab', 'cd'].map((byte) => `sha256:${byte.repeat(32)}`) as [string, string] // a cast: two digests

let world: RegistryWorld
let mine: Tenant
let puller: { readonly uid: string; readonly token: string }
let team = ''

beforeAll(async () => {
  world = new RegistryWorld(await startTestServer({ keepsContent: false }))
  mine = await world.tenant(freshName('mine'))
  const call = async (method: string, body: JsonObject) => String(ok(await world.server.rest.call(method, body, { token: mine.token }))['uid'])
  team = await call('CreateGroup', { parent: mine.group, group: { name: 'team' } })
  puller = await makeMember(world.server, team, { role: 'registry.pull' })
  const repo = await call('CreateRepo', { parent: team, repo: { name: 'app' } })
  for (const digest of digests) {
    const tag = await call('CreateTag', { parent: repo, tag: { name: '1.0', digest } })
    if (digest === digests[0]) ok(await world.server.rest.call('DeleteTag', { uid: tag }, { token: mine.token }))
  }
})
afterAll(() => world.server.stop())

async function printed(command: (context: TestContext) => Promise<void>, token = mine.token): Promise<{ lines: string[]; notes: readonly string[] }> {
  const context = contextOf(world.server, token)
  await command(context)
  return { lines: context.printed().trimEnd().split('\n'), notes: context.notes }
}

test('taproot access prints who has access to a repo, with the path of the group', async () => {
  const resource = `${mine.name}/team/app`
  const access = (capability?: string) => printed((context) => printAccess(context, { resource, capability, format: 'table' }))
  const { lines, notes } = await access()
  expect(lines[0]).toMatch(/^IDENTITY +ROLE +GROUP +AGE$/)
  const endings = lines.slice(1).map((line) => line.split(/ {2,}/).slice(1, 3))
  expect(endings.toSorted()).toEqual([
    ['owner', mine.name],
    ['owner', mine.name],
    ['registry.pull', `${mine.name}/team`],
  ])
  expect(notes).toEqual([])
  expect((await access('repo.create')).lines).toHaveLength(3)
})

test('taproot access and explain say where role bindings are not shown', async () => {
  const binder = await makeMember(world.server, team, { role: 'owner' })
  const { lines, notes } = await printed((context) => printAccess(context, { resource: team, capability: undefined, format: 'name' }), binder.token)
  expect(lines).toHaveLength(2)
  expect(notes).toEqual([`role bindings on ${mine.group} are not shown: you may not list them there`])
})

test.for([
  ['tag.list', 'yes', 'grants it'],
  ['repo.create', 'no: no role of the identity there has the capability', 'has other capabilities'],
] as const)('taproot explain says whether and why: %s', async ([capability, verdict, effect]) => {
  const resource = `${mine.name}/team/app:1.0`
  const request = { identity: puller.uid, capability, resource, format: 'table' } as const
  const { lines } = await printed((context) => printExplanation(context, request))
  expect(lines[0]).toBe(`${puller.uid} has ${capability} at ${resource}: ${verdict}`)
  expect(lines.slice(1)).toEqual([expect.stringMatching(new RegExp(`^ {2}registry\\.pull on ${mine.name}/team ${effect} \\([0-9a-f/]+\\)$`))])
  const json = await printed((context) => printExplanation(context, { ...request, format: 'json' }))
  expect(JSON.parse(json.lines.join('\n'))).toMatchObject({ allowed: verdict === 'yes', capability })
})

test('taproot explain refuses an unknown capability with the message of the API', async () => {
  const request = { identity: puller.uid, capability: 'repo.fly', resource: mine.name, format: 'table' } as const
  await expect(printed((context) => printExplanation(context, request))).rejects.toMatchObject({ code: 3, message: /is not a capability/ })
})

test('taproot can-i says yes or no, and that it cannot see a path', async () => {
  const ask = async (capability: string, resource: string): Promise<string[]> =>
    (await printed(async (context) => void (await printWhetherAllowed(context, capability, resource)), puller.token)).lines
  expect(await ask('tag.list', team)).toEqual(['yes'])
  expect(await ask('repo.create', team)).toEqual(['no'])
  expect(await ask('tag.list', mine.group)).toEqual(['no'])
  // The path is below groups that the caller cannot see.
  expect(await ask('tag.list', `${mine.name}/team/app`)).toEqual(['yes'])
  await expect(ask('tag.list', `${mine.name}/nowhere`)).rejects.toThrow(/^there is no group or repo .*\/nowhere that you may see/)
  await expect(ask('repo.fly', team)).rejects.toMatchObject({ code: 3 })
})

test('taproot can-i ends with code 1 for no', async () => {
  const env = { TAPROOT_SERVER: world.server.config.baseUrl, TAPROOT_TOKEN: puller.token }
  const run = async (capability: string) => runProcess({ args: ['can-i', capability, team], env, cwd: await freshDirectory() })
  expect(await run('tag.list')).toEqual({ code: 0, stdout: 'yes\n', stderr: '' })
  expect(await run('tag.delete')).toEqual({ code: 1, stdout: 'no\n', stderr: '' })
})

test('taproot history prints what a tag pointed to, and restore moves it back', async () => {
  const path = `${mine.name}/team/app:1.0`
  const history = async (): Promise<unknown[]> => {
    const { lines } = await printed((context) => printHistory(context, path, 'json'))
    return (JSON.parse(lines.join('\n')) as { digest: unknown }[]).map(({ digest }) => digest)
  }
  const restored = (to: RestoreTarget, dryRun = false) => printed((context) => restore(context, path, { to, dryRun }))
  expect(await history()).toEqual(digests)
  const { lines } = await printed((context) => printHistory(context, path, 'table'))
  expect(lines).toEqual([expect.stringMatching(/^TIME +DIGEST$/), ...digests.map((digest) => expect.stringMatching(new RegExp(`Z +${digest}$`)))])
  expect((await restored({ digest: digests[0] }, true)).lines).toEqual([`tag ${path} would be restored to ${digests[0]}`])
  expect(await history()).toEqual(digests)
  expect((await restored({ digest: digests[0] })).lines).toEqual([`tag ${path} restored to ${digests[0]}`])
  expect(await history()).toEqual([...digests, digests[0]])
  await expect(restored({ timeMs: Date.now() - 86_400_000 })).rejects.toMatchObject({ code: 9 })
  await expect(printed((context) => printHistory(context, `${mine.name}/team/app:2.0`, 'table'))).rejects.toThrow(/^there is no tag .*:2\.0 that you may see/)
  await expect(printed((context) => printHistory(context, 'app', 'table'))).rejects.toThrow(/is not a tag: write its path/)
})

test('the time of taproot restore is an age or a time with a zone', () => {
  expect(parseMoment('2h', 10_000_000)).toBe(10_000_000 - 7_200_000)
  expect(parseMoment('2026-01-31T12:00:00+01:00', 0)).toBe(Date.parse('2026-01-31T11:00:00Z'))
  for (const text of ['yesterday', '2026-01-31T12:00:00', '0h', '12']) expect(() => parseMoment(text, 0)).toThrow(/Use an age such as/)
})

/** Starts to watch. Returns what was printed so far, as lines of JSON, and the end of the watch. */
function watching(request: Partial<GetRequest> & { kind: string }, context = contextOf(world.server, mine.token)) {
  const stop = new AbortController()
  onTestFinished(() => stop.abort())
  const ended = get(context, { record: undefined, filter: [], format: 'json', watch: true, signal: stop.signal, ...request })
  const changes = (): { type: string; object: { name?: string; digest?: string } }[] =>
    context
      .printed()
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as { type: string; object: object }]))
  return { context, changes, ended, stop, brief: () => changes().map(({ type, object }) => `${type} ${object.name}`) }
}

const ask = async (method: string, body: JsonObject): Promise<string> => String(ok(await world.server.rest.call(method, body, { token: mine.token }))['uid'])

test('taproot get --watch prints the list, and then what is created, changed and deleted', async () => {
  const place = await ask('CreateGroup', { parent: mine.group, group: { name: 'watched' } })
  const first = await ask('CreateRepo', { parent: place, repo: { name: 'first' } })
  const { context, brief, ended, stop } = watching({ kind: 'repos', in: `${mine.name}/watched` })
  await expect.poll(brief).toEqual(['ADDED first'])
  const second = await ask('CreateRepo', { parent: place, repo: { name: 'second' } })
  await expect.poll(brief, { timeout: 10_000 }).toEqual(['ADDED first', 'ADDED second'])
  await ask('UpdateRepo', { repo: { uid: second, description: 'new' } })
  await expect.poll(brief, { timeout: 10_000 }).toEqual(['ADDED first', 'ADDED second', 'MODIFIED second'])
  await ask('CreateRepo', { parent: mine.group, repo: { name: 'elsewhere' } })
  ok(await world.server.rest.call('DeleteRepo', { uid: first }, { token: mine.token }))
  await expect.poll(brief, { timeout: 10_000 }).toEqual(['ADDED first', 'ADDED second', 'MODIFIED second', 'DELETED first'])
  expect(context.notes).toEqual([])
  stop.abort()
  await ended
})

test('taproot get --watch follows one tag, in a table with its path', async () => {
  const repo = await ask('CreateRepo', { parent: team, repo: { name: 'moving' } })
  const tag = await ask('CreateTag', { parent: repo, tag: { name: 'stable', digest: digests[0] } })
  const { context } = watching({ kind: 'tags', record: `${mine.name}/team/moving:stable`, format: 'wide' })
  const lines = () => context.printed().trimEnd().split('\n').slice(1)
  const line = (type: string, digest: string) =>
    expect.stringMatching(new RegExp(`^${type} +${mine.name}/team/moving:stable +${digest.slice(0, 19)} .* ${tag}$`))
  await expect.poll(lines).toEqual([line('ADDED', digests[0])])
  expect(context.printed()).toMatch(/^EVENT +PATH +DIGEST /)
  await ask('CreateTag', { parent: repo, tag: { name: 'stable', digest: digests[1] } })
  await ask('CreateTag', { parent: repo, tag: { name: 'other', digest: digests[0] } })
  await expect.poll(lines, { timeout: 10_000 }).toEqual([line('ADDED', digests[0]), line('MODIFIED', digests[1])])
})

test.for([
  ['the connection was cut', new ClientError('the connection was cut'), 'the list could not be read: trying again'],
  ['the token was renewed late', new ClientError('the token has expired', { code: 16 }), 'the token was refused or cannot be read: reading it again'],
] as const)('taproot get --watch goes on after a list that could not be read: %s', async ([what, error, note]) => {
  const own = contextOf(world.server, mine.token)
  const name = `late-${what.length}`
  let broken = 0
  const pages: typeof own.client.pages = (...request) => {
    if (broken-- > 0) throw error
    return own.client.pages(...request)
  }
  const { context, brief } = watching({ kind: 'groups', filter: [`name=${name}`] }, { ...own, source: 'token file', client: { ...own.client, pages } })
  await expect.poll(() => context.notes).toEqual(['no groups yet that you may see: waiting for changes'])
  broken = 2
  await ask('CreateGroup', { parent: mine.group, group: { name } })
  await expect.poll(brief, { timeout: 20_000 }).toEqual([`ADDED ${name}`])
  // One note for both failures.
  expect(context.notes.slice(1)).toEqual([note])
})

test('taproot get --watch ends if the token is refused and cannot be renewed', async () => {
  const own = contextOf(world.server, mine.token)
  let broken = false
  const pages: typeof own.client.pages = (...request) => {
    if (broken) throw new ClientError('the token has expired', { code: 16 })
    return own.client.pages(...request)
  }
  const { ended, context } = watching({ kind: 'groups', filter: ['name=never'] }, { ...own, client: { ...own.client, pages } })
  await expect.poll(() => context.notes).toHaveLength(1)
  broken = true
  await Promise.all([expect(ended).rejects.toMatchObject({ code: 16 }), ask('CreateGroup', { parent: mine.group, group: { name: 'never' } })])
})

test('taproot get --watch of role bindings shows other names of identities and roles', async () => {
  const place = await ask('CreateGroup', { parent: mine.group, group: { name: 'bound' } })
  const identity = { name: 'ci', claimMatch: { issuer: 'https://ci.example', subject: 'x' } }
  const uid = await ask('CreateIdentity', { parent: place, identity })
  await ask('CreateRoleBinding', { parent: place, roleBinding: { identityUid: uid, roleUid: roleUid('viewer') } })
  const { context } = watching({ kind: 'rolebindings', in: `${mine.name}/bound`, filter: [`identity=${uid}`], format: 'table' })
  const lines = () =>
    context
      .printed()
      .trimEnd()
      .split('\n')
      .map((line) => line.split(/ {2,}/).slice(0, 4).join(' '))
  await expect.poll(lines).toEqual(['EVENT GROUP ROLE IDENTITY', `ADDED ${mine.name}/bound viewer ci`])
  await ask('UpdateIdentity', { identity: { uid, name: 'cix' } })
  await expect
    .poll(lines, { timeout: 10_000 })
    .toEqual(['EVENT GROUP ROLE IDENTITY', `ADDED ${mine.name}/bound viewer ci`, `MODIFIED ${mine.name}/bound viewer cix`])
  // Both rows have their columns at the same place.
  const [, added = '', modified = ''] = context.printed().split('\n')
  expect(added.indexOf(mine.name)).toBe(modified.indexOf(mine.name))
})

test.for<[what: string, request: Partial<GetRequest> & { kind: string }, message: RegExp]>([
  ['a kind without events', { kind: 'artifacts' }, /^artifacts cannot be watched/],
  ['a kind that is listed per parent', { kind: 'termsacceptances', in: 'x' }, /^terms acceptances cannot be watched/],
  ['a limit', { kind: 'groups', limit: 3 }, /remove --limit and --order-by$/],
  ['a format without a place for the change', { kind: 'groups', format: 'name' }, /^--watch prints table, wide, json or yaml$/],
  ['a record that does not exist', { kind: 'groups', record: 'nowhere' }, /^there is no group nowhere/],
])('taproot get --watch refuses %s', async ([, request, message]) => {
  await expect(watching(request).ended).rejects.toThrow(message)
})

test('a template prints what it names', async () => {
  const printedBy = async (request: Partial<GetRequest> & { kind: string }): Promise<string> => {
    const context = contextOf(world.server, mine.token)
    await get(context, { record: undefined, filter: [], format: 'json', ...request })
    return context.printed()
  }
  expect(await printedBy({ kind: 'groups', record: `${mine.name}/team`, format: 'jsonpath={.uid}' })).toBe(team)
  expect(await printedBy({ kind: 'groups', filter: ['name=team'], format: 'jsonpath={range .items[*]}{.name} {.uid}{"\n"}{end}' })).toBe(`team ${team}\n`)
  expect(await printedBy({ kind: 'groups', filter: ['name=nothing-like-it'], format: 'jsonpath={.items[*].name}' })).toBe('')
})

test('a template is checked before anything is changed', async () => {
  const env = { TAPROOT_SERVER: world.server.config.baseUrl, TAPROOT_TOKEN: mine.token }
  const run = async (...args: readonly string[]) => runProcess({ args, env, cwd: await freshDirectory() })
  expect(await run('create', 'group', `${mine.name}/by-template`, '-o', 'jsonpath={.uid')).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(/^taproot: jsonpath: the "\{" has no other brace: \{\.uid\n$/) as unknown,
  })
  expect(await run('get', 'group', `${mine.name}/by-template`)).toMatchObject({ code: 1 })
  expect(await run('whoami', '-o=jsonpath={.identity.uid}')).toMatchObject({ code: 0, stdout: mine.owner })
  expect(await run('get', 'groups', '-o', 'jsonpath=')).toMatchObject({ code: 2 })
})
