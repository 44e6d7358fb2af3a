import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { freshName } from '../../support/test-server.ts'
import { crane } from '../../support/parts/crane.ts'
import { digestOf } from '../../../src/base/digest.ts'
import { ChangeSet } from '../../../src/engine/change-set.ts'
import { appendHistory, readHead } from '../../../src/registry/tags/tag-history.ts'
import { registrySuite } from './registry-suite.ts'
import { basic, bearer, type Answer } from './registry-world.ts'

interface Shown {
  readonly updateTimestamp: string
  readonly digest: string
}

// docs/spec/registry.md#history-endpoint
registrySuite('tag history at the registry host', (suite) => {
  const digest = (of: number): ReturnType<typeof digestOf> => digestOf(Buffer.from(String(of)))

  /** Writes moves of a tag like its commits. Returns their times. */
  async function moves(repo: string, tag: string, count: number): Promise<number[]> {
    const { store, services } = suite.world.server.running.engine
    const times: number[] = []
    for (let done = 0; done < count; done += 1) {
      const changes = new ChangeSet()
      const after = await readHead(store, { repo, name: tag }, AbortSignal.timeout(60_000))
      times.push(appendHistory(changes, { repo, name: tag }, { digest: digest(done), nowMs: services.clock.now(), notBeforeMs: 0, after }))
      await store.transact(changes, AbortSignal.timeout(60_000))
    }
    return times
  }

  const read = (path: string, options: { query?: string; authorization?: string } = {}): Promise<Answer> =>
    suite.world.ask({ path: `/v2/${path}${options.query ?? ''}`, authorization: options.authorization ?? suite.mine.authorization })
  const historyOf = ({ body }: Answer): readonly Shown[] => (JSON.parse(body) as { history: Shown[] }).history
  const path = (tag: string): string => `${suite.mine.path}/_service/history/${tag}`

  test('tag history at the registry host returns updateTimestamp and digest, oldest first, as a JSON object with history alone', async () => {
    const tag = freshName('tag')
    const times = await moves(suite.mine.repo, tag, 3)
    const answer = await read(path(tag))
    expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'application/json' } })
    expect(JSON.parse(answer.body)).toEqual({ history: times.map((ms, at) => ({ updateTimestamp: new Date(ms).toISOString(), digest: digest(at) })) })
    expect(answer.headers.link).toBeUndefined()
  })

  test('tag history at the registry host includes start and excludes end, in every form of ISO 8601', async () => {
    const tag = freshName('tag')
    const times = await moves(suite.mine.repo, tag, 4)
    const [first = 0, second = 0, third = 0] = times
    const iso = (ms: number): string => new Date(ms).toISOString()
    const shifted = (ms: number): string => `${iso(ms + 5.5 * 3_600_000).slice(0, -1)}+05:30`
    const window = async (query: Readonly<Record<string, string>>): Promise<string[]> =>
      historyOf(await read(path(tag), { query: `?${new URLSearchParams(query).toString()}` })).map(({ updateTimestamp }) => updateTimestamp)
    const all = times.map(iso)
    expect(await window({ start: iso(second) })).toEqual(all.slice(1))
    expect(await window({ end: iso(third) })).toEqual(all.slice(0, 2))
    expect(await window({ start: iso(second), end: iso(third) })).toEqual(all.slice(1, 2))
    expect(await window({ start: shifted(second), end: shifted(third) })).toEqual(all.slice(1, 2))
    expect(await window({ start: iso(second).replaceAll(/[-:]/g, '') })).toEqual(all.slice(1))
    expect(await window({ start: iso(first).replace('Z', '000001Z'), end: iso(first).replace('Z', '9Z') })).toEqual(second > first + 1 ? [] : all.slice(1, 1))
    expect(await window({ start: '2000-01-01', end: '2001-01-01' })).toEqual([])
    expect(await window({ start: '2999', end: '3000' })).toEqual([])
    expect(await window({ start: '', end: '' })).toEqual(all)
    expect(historyOf(await read(path(tag), { query: `?start=${shifted(second)}` }))).toHaveLength(3)
  })

  test.for([
    ['an unparsable start', 'start=yesterday'],
    ['an unparsable end', 'end=1769860800'],
    ['a day that does not exist', 'start=2026-02-30'],
    ['an end before the start', 'start=2026-02-01&end=2026-01-01'],
    ['an end at the start', 'start=2026-02-01&end=2026-02-01T00:00:00.000Z'],
    ['two starts', 'start=2026-01-01&start=2026-01-02'],
  ] as const)('tag history at the registry host answers 400 for %s', async ([, query]) => {
    const tag = freshName('tag')
    await moves(suite.mine.repo, tag, 1)
    const answer = await read(path(tag), { query: `?${query}` })
    expect(answer.status).toBe(400)
    expect(answer.codes).toHaveLength(1)
  })

  test('tag history at the registry host returns 1,000 of 1,001 moves, oldest first, and a Link that continues up to the same end', async () => {
    const tag = freshName('tag')
    const times = await moves(suite.mine.repo, tag, 1_001)
    const answer = await read(path(tag))
    const first = historyOf(answer)
    expect(first).toHaveLength(1_000)
    expect(first.map(({ updateTimestamp }) => Date.parse(updateTimestamp))).toEqual(times.slice(0, 1_000))
    const next = /^<(?<path>[^>]+)>; rel="next"$/.exec(answer.headers.link as string)?.groups?.['path'] ?? ''
    expect(next).toContain('start=')
    const rest = await suite.world.ask({ path: next, authorization: suite.mine.authorization })
    expect(historyOf(rest).map(({ updateTimestamp }) => Date.parse(updateTimestamp))).toEqual(times.slice(1_000))
    expect(rest.headers.link).toBeUndefined()
    const bounded = await read(path(tag), { query: `?end=${new Date(times[1_000] ?? 0).toISOString()}` })
    expect(historyOf(bounded)).toHaveLength(1_000)
    expect(bounded.headers.link).toBeUndefined()
  })

  test('tag history at the registry host answers 404 in the registry format for an unknown image or tag', async () => {
    expect(await read(path('never'))).toMatchObject({ status: 404, codes: ['MANIFEST_UNKNOWN'] })
    expect(await read(`${suite.mine.name}/never/_service/history/latest`)).toMatchObject({ status: 404, codes: ['NAME_UNKNOWN'] })
    expect(await read(`${suite.mine.name}/never/at/all/_service/history/latest`)).toMatchObject({ status: 404, codes: ['NAME_UNKNOWN'] })
  })

  test('tag history at the registry host uses paths with nested groups', async () => {
    const { world, mine } = suite
    const team = await world.group(mine.group, 'team')
    const squad = await world.group(team, 'squad')
    const repo = await world.repo(squad, 'tool')
    await moves(repo, 'v1', 2)
    const nested = `${mine.name}/team/squad/tool`
    const token = bearer(await world.tokenFor(`repository:${nested}:pull`, mine.authorization))
    expect(historyOf(await read(`${nested}/_service/history/v1`, { authorization: token }))).toHaveLength(2)
  })

  test('tag history accepts a token for the image or the registry host; another audience or image is 403, no token 401', async () => {
    const { world, mine, theirs } = suite
    const tag = freshName('tag')
    await moves(mine.repo, tag, 1)
    await world.repo(mine.group, 'sibling')
    const token = bearer(await world.tokenFor(`repository:${mine.path}:pull`, mine.authorization))
    const sibling = bearer(await world.tokenFor(`repository:${mine.name}/sibling:pull`, mine.authorization))
    const api = bearer(await world.accessToken(mine.owner, { audiences: [world.server.config.baseUrl] }))
    expect(await read(path(tag), { authorization: token })).toMatchObject({ status: 200 })
    expect(await read(path(tag))).toMatchObject({ status: 200 })
    expect(await read(path(tag), { authorization: basic('_token', mine.authorization.slice(7)) })).toMatchObject({ status: 200 })
    expect(await read(path(tag), { authorization: sibling })).toMatchObject({ status: 403, codes: ['DENIED'] })
    expect(await read(path(tag), { authorization: api })).toMatchObject({ status: 403, codes: ['DENIED'] })
    expect(await read(path(tag), { authorization: theirs.authorization })).toMatchObject({ status: 403, codes: ['DENIED'] })
    const none = await world.ask({ path: `/v2/${path(tag)}` })
    expect(none).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
    expect(none.headers['www-authenticate']).toContain(`scope="repository:${mine.path}:pull"`)
  })

  test('tag history at the registry host accepts an anonymous token for public images', async () => {
    const { world, free } = suite
    const tag = freshName('tag')
    await moves(free.repo, tag, 1)
    const token = bearer(await world.tokenFor(`repository:${free.path}:pull`))
    expect(await read(`${free.path}/_service/history/${tag}`, { authorization: token })).toMatchObject({ status: 200 })
  })

  test('tag history at the registry host answers 405 for other methods, and HEAD like GET without its body', async () => {
    const tag = freshName('tag')
    await moves(suite.mine.repo, tag, 1)
    const { authorization } = suite.mine
    expect(await suite.world.ask({ method: 'POST', path: `/v2/${path(tag)}`, authorization })).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } })
    expect(await suite.world.ask({ method: 'HEAD', path: `/v2/${path(tag)}`, authorization })).toMatchObject({ status: 200, body: '' })
  })

  test('tag history at the registry host shows three moves after three pushes by crane, and a digest of them pins the image', async () => {
    const { world, mine } = suite
    const image = `${world.host}/${mine.name}/built`
    const login = { auths: { [world.host]: { auth: Buffer.from(`_token:${mine.authorization.slice(7)}`).toString('base64') } } }
    const folder = await mkdtemp(join(tmpdir(), 'taproot-crane-login-'))
    try {
      await writeFile(`${folder}/config.json`, JSON.stringify(login))
      const env = { DOCKER_CONFIG: folder }
      for (const version of ['one', 'two', 'three']) {
        const pushed = await crane(['append', '--oci-empty-base', '-f', await layer(folder, version), '-t', `${image}:latest`], { env })
        expect(pushed, pushed.stderr).toMatchObject({ code: 0 })
      }
      const history = historyOf(await read(`${mine.name}/built/_service/history/latest`))
      expect(history).toHaveLength(3)
      for (const { digest: pinned } of history) expect(await crane(['manifest', `${image}@${pinned}`], { env })).toMatchObject({ code: 0 })
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })
})

/** A tar file with one file in it. */
async function layer(folder: string, content: string): Promise<string> {
  await writeFile(`${folder}/${content}`, content)
  execFileSync('tar', ['cf', `${folder}/${content}.tar`, '-C', folder, content])
  return `${folder}/${content}.tar`
}
