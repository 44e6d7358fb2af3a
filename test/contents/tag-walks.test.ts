import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import { rootParent, trustedUid, type Uid } from '../../src/base/uid.ts'
import { TagLooks } from '../../src/contents/tag-looks.ts'
import { TagWalks } from '../../src/contents/tag-walks.ts'
import { tagNamed } from '../../src/registry/index.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'

const restMs = 30_000
const digest = `sha256:${'a'.repeat(64)}`
const clock = new TestClock()
let server: TestServer
let [token, otherToken] = ['', '']
/** Two organisations. The first has 6 tags, of which 2 are in a subgroup, and the second has 2. */
let [first, second, team] = ['', '', ''].map(trustedUid) as [Uid, Uid, Uid]

async function makeTags(parent: string, names: readonly string[], token: string): Promise<void> {
  const { uid } = ok(await server.rest.call('CreateRepo', { parent, repo: { name: 'app' } }, { token }))
  for (const name of names) ok(await server.rest.call('CreateTag', { parent: String(uid), tag: { name, digest } }, { token }))
}

beforeAll(async () => {
  server = await startTestServer({ store: 'sqlite', leads: false, keepsContent: false })
  const [one, other] = [await makeOrganisation(server), await makeOrganisation(server)]
  await makeTags(one.group, ['a', 'b', 'c', 'd'], one.token)
  const sub = String(ok(await server.rest.call('CreateGroup', { parent: one.group, group: { name: 'team' } }, { token: one.token }))['uid'])
  token = await server.tokenFor(one.owner)
  await makeTags(sub, ['e', 'f'], token)
  await makeTags(other.group, ['x', 'y'], other.token)
  otherToken = other.token
  ;[first, second, team] = [trustedUid(one.group), trustedUid(other.group), trustedUid(sub)]
})
afterAll(() => server.stop())

let walks: TagWalks
beforeEach(() => {
  walks = new TagWalks(server.running.engine.services.cache, clock, restMs)
})

/** Returns the names of the next tags, at most `max`. */
function next(max = Infinity): string[] {
  const names: string[] = []
  for (let found = 0; found < max; found += 1) {
    const tag = walks.next()
    if (tag === undefined) break
    names.push(tag.name)
  }
  return names
}

test('each tag below places is walked once', () => {
  for (const place of [team, first, team]) walks.add(place)
  expect(next().sort()).toEqual(['a', 'b', 'c', 'd', 'e', 'f'])
  expect(next()).toEqual([])
})

test('only the tags below a place are walked', () => {
  walks.add(team)
  expect(next().sort()).toEqual(['e', 'f'])
})

test('changes during a walk are joined: they start one more walk, after a rest', () => {
  walks.add(first)
  const begun = next(3)
  for (let change = 0; change < 500; change += 1) walks.add(first)
  expect([...begun, ...next()].sort()).toEqual(['a', 'b', 'c', 'd', 'e', 'f'])
  expect(next()).toEqual([])
  clock.advance(restMs)
  walks.add(team)
  expect(next()).toHaveLength(6)
  clock.advance(restMs)
  expect(next()).toEqual([])
})

test('organisations take turns: one that changes all the time does not hold up another', () => {
  walks.add(first)
  walks.add(second)
  const found: string[] = []
  for (let turn = 0; turn < 4; turn += 1) {
    walks.add(first)
    found.push(...next(1))
  }
  expect(found.filter((name) => ['x', 'y'].includes(name)).sort()).toEqual(['x', 'y'])
})

test('everything is one more turn', () => {
  walks.add(rootParent)
  walks.add(second)
  expect(next(4).filter((name) => ['x', 'y'].includes(name)).length).toBeGreaterThanOrEqual(2)
  expect(next().length + 4).toBe(8 + 2)
})

test('an organisation with very many places is walked as a whole', () => {
  for (let place = 0; place < 1_000; place += 1) walks.add(trustedUid(`${second}/${String(place).padStart(16, '0')}`))
  expect(next().sort()).toEqual(['x', 'y'])
})

/** Makes or deletes tags of a repo, and waits until the server follows. */
async function withTags(repo: string, work: { readonly make?: readonly string[]; readonly remove?: readonly string[] }, credential: string): Promise<void> {
  const { cache } = server.running.engine.services
  for (const name of work.make ?? []) ok(await server.rest.call('CreateTag', { parent: repo, tag: { name, digest } }, { token: credential }))
  for (const name of work.remove ?? []) ok(await server.rest.call('DeleteTag', { uid: tagNamed(cache.tables, repo, name)?.uid ?? '' }, { token: credential }))
  await cache.barrier(AbortSignal.timeout(60_000))
}

/** Returns the uid of the repo that lies directly in a group. */
function repoIn(group: Uid): string {
  return [...server.running.engine.services.cache.tables.table('Repo').matching('parent', group)][0]?.uid ?? ''
}

test('organisations take turns with the tags that they change', async () => {
  const looks = new TagLooks(server.running.engine.services, { placeOf: () => undefined, restMs: 0 })
  onTestFinished(looks.follow())
  const [mine, others] = [['m', 'n', 'o', 'p'], ['z']]
  await withTags(repoIn(team), { make: mine }, token)
  await withTags(repoIn(second), { make: others }, otherToken)
  expect([...looks.all()].map(({ tag }) => tag.name)).toEqual(['m', 'z', 'n', 'o', 'p'])
  await withTags(repoIn(team), { remove: mine }, token)
  await withTags(repoIn(second), { remove: others }, otherToken)
})

test('an organisation that changes very many tags fills no more than its share, and misses none', async () => {
  const looks = new TagLooks(server.running.engine.services, { placeOf: () => undefined, restMs: 0 }, 20)
  onTestFinished(looks.follow())
  looks.begin()
  expect([...looks.all()]).toHaveLength(8)
  const [mine, others] = [['m', 'n', 'o', 'p'], ['z']]
  await withTags(repoIn(team), { make: mine }, token)
  await withTags(repoIn(second), { make: others }, otherToken)
  expect(looks.isDue).toBe(false)
  const names = [...looks.all()].map(({ tag }) => tag.name)
  // The changed tags of both, and all tags of the first one.
  expect(names.sort()).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'm', 'm', 'n', 'n', 'o', 'p', 'z'])
  await withTags(repoIn(team), { remove: mine }, token)
  await withTags(repoIn(second), { remove: others }, otherToken)
})

test('an organisation with very many tags that wait for contents takes no room from another', () => {
  const { services } = server.running.engine
  let edition = 'before'
  const imageContents = Object.assign(Object.create(null) as NonNullable<typeof services.imageContents>, { edition, editionOf: () => edition })
  const looks = new TagLooks({ ...services, imageContents }, { placeOf: () => undefined, restMs: 0 }, 20)
  expect([...looks.all()]).toEqual([])
  const [mine, other] = [trustedUid(repoIn(first)), trustedUid(repoIn(second))]
  for (let at = 0; at < 30; at += 1) looks.waitFor({ repo: mine, name: String(at) }, edition)
  looks.waitFor({ repo: other, name: 'x' }, edition)
  edition = 'after'
  Object.assign(imageContents, { edition })
  expect([...looks.all()].map(({ tag }) => tag.name)).toEqual(['0', 'x', '1'])
})

test('a tag that changes all the time holds up no look at all tags', async () => {
  const looks = new TagLooks(server.running.engine.services, { placeOf: () => undefined, restMs: 0 })
  onTestFinished(looks.follow())
  looks.begin()
  const missing = new Set(['a', 'b', 'c', 'd', 'e', 'f', 'x', 'y'])
  let changed = 0
  for (const { tag, isChanged } of looks.all()) {
    if (isChanged) changed += 1
    else missing.delete(tag.name)
    if (missing.size === 0 || changed === 30) break
    await withTags(repoIn(team), { make: ['m'] }, token)
    await withTags(repoIn(team), { remove: ['m'] }, token)
  }
  expect([...missing]).toEqual([])
  expect(changed).toBeGreaterThanOrEqual(6)
})

test('a look at all tags and walks that never end take turns', async () => {
  const { services } = server.running.engine
  const looks = new TagLooks(services, { placeOf: (kind) => (kind === 'Group' ? first : undefined), restMs: 0 })
  onTestFinished(looks.follow())
  looks.begin()
  const found: boolean[] = []
  for (const { isChanged } of looks.all()) {
    found.push(isChanged)
    if (found.filter((one) => !one).length === 8) break
    ok(await server.rest.call('UpdateGroup', { group: { uid: team, description: String(found.length) }, updateMask: 'description' }, { token }))
    await services.cache.barrier(AbortSignal.timeout(60_000))
  }
  // All tags were looked at, and about as many in walks.
  expect(found.filter((one) => !one)).toHaveLength(8)
  expect(found.length).toBeLessThanOrEqual(16)
  expect(found.filter((one) => one).length).toBeGreaterThanOrEqual(6)
})
