import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { printAccess, printExplanation } from '../../src/cli/inspect/access.ts'
import { printWhetherAllowed } from '../../src/cli/inspect/can-i.ts'
import { parseMoment, printHistory, restore, type RestoreTarget } from '../../src/cli/inspect/tag-history.ts'
import { freshDirectory, runProcess } from '../e2e/process/harness/taproot-process.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { freshName, makeMember, ok, startTestServer } from '../support/test-server.ts'
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
