import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { osvDocument } from '../support/import-advisories.ts'
import { programEnvironment } from '../support/parts/own-program.ts'
import { makeOrganisation, startTestServer, type TestServer } from '../support/test-server.ts'

let dataDir = ''
let group = ''
let name = ''
let documents = ''

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'taproot-import-'))
  const server = await startTestServer({ store: 'sqlite', dataDir })
  group = (await makeOrganisation(server)).group
  const { body } = await server.rest.call('GetGroup', { uid: group }, { token: await server.operatorToken() })
  name = String(body['name'])
  await server.stop()
  documents = join(dataDir, 'documents.jsonl')
  await writeFile(documents, ['A-1', 'A-2'].map((id) => `${JSON.stringify(osvDocument(id))}\n`).join(''))
})
afterAll(() => rm(dataDir, { recursive: true, force: true }))

/** Runs the command; resolves with its exit code and what it printed. */
const taproot = (...parameters: string[]): ReturnType<typeof taprootWith> => taprootWith({}, ...parameters)

function taprootWith(env: Readonly<Record<string, string>>, ...parameters: string[]): Promise<{ code: number; out: string; err: string }> {
  const command = ['--disable-warning=ExperimentalWarning', resolve('src/cli/taproot.ts'), 'import', ...parameters]
  return new Promise((done) => {
    execFile(process.execPath, command, { env: { ...programEnvironment(), TAPROOT_DATA_DIR: dataDir, ...env } }, (error, out, err) =>
      done({ code: Number(error?.code ?? 0), out, err }),
    )
  })
}

test('a dry run counts, and changes nothing', async () => {
  const { code, out } = await taproot(documents, '--group', name, '--dry-run')
  expect(code).toBe(0)
  expect(out).toMatch(/^2 documents, 0 refused\nadvisories: 2 added, 0 changed, 0 unchanged, 0 removed\n[^]*dry run: nothing was published\n$/)
})

test('imports into a group by its path, and says what it did', async () => {
  const { code, out, err } = await taproot(documents, '--group', name)
  expect([code, err]).toEqual([0, ''])
  expect(out).toMatch(/^2 documents, 0 refused\nadvisories: 2 added, 0 changed, 0 unchanged, 0 removed\n[^]*published advisories sha256:[0-9a-f]{64}\n/)
})

test('the same again changes nothing', async () => {
  const { out } = await taproot(documents, '--group', group)
  expect(out).toMatch(/^2 documents, 0 refused\nadvisories: 0 added, 0 changed, 2 unchanged, 0 removed\n[^]*nothing changed\n$/)
})

test('what is refused is named with its line and without control characters, and the exit code is 3', async () => {
  const path = join(dataDir, 'bad\u001b[31m.jsonl')
  await writeFile(path, `${JSON.stringify(osvDocument('B-1'))}\n{"id":\n`)
  const { code, out, err } = await taproot(path, '--group', name)
  expect([code, err]).toEqual([3, `refused: ${path.replace('\u001b', ' ')}:2: the text is not valid JSON\n`])
  expect(out).toMatch(/^2 documents, 1 refused\nadvisories: 1 added, 0 changed, 0 unchanged, 0 removed\n/)
})

test('sources without a document change nothing, also with --replace', async () => {
  const empty = await mkdtemp(join(dataDir, 'empty-'))
  await writeFile(join(empty, 'LICENSE'), 'text')
  const { code, err } = await taproot(empty, '--group', name, '--replace')
  expect([code, err]).toEqual([1, expect.stringContaining('the sources contain no documents')])
  expect((await taproot(documents, '--group', name)).out).toContain('2 unchanged')
})

test.each([
  ['a path that is missing', ['nowhere.json'], 'nowhere.json cannot be read'],
  ['no source', [], 'nothing to import'],
  ['an unknown option', ['--colour'], '--colour'],
  ['a feed that is not configured', ['--feed', 'other'], 'there is no feed "other": the feeds are own'],
  ['a feed with a path', ['--feed', 'own', 'all.zip'], 'give neither paths nor these options'],
  ['a feed with a group', ['--feed', 'own', '--group', 'acme'], 'give neither paths nor these options'],
])('%s is a usage error', async (_what, given, message) => {
  const feeds = JSON.stringify([{ name: 'own', source: documents, group: name }])
  expect(await taprootWith({ TAPROOT_CATALOGUES_FEEDS: feeds }, ...given)).toMatchObject({ code: 2, err: expect.stringContaining(message) as unknown })
})

describe('a source that is downloaded', () => {
  let url = ''
  const server = createServer(({ url: path }, response) => {
    const found = path?.startsWith('/all.jsonl') === true
    response.writeHead(found ? 200 : 404).end(found ? `${JSON.stringify(osvDocument('URL-1'))}\n{"id":\n` : '')
  })
  beforeAll(async () => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}` // a cast: it listens on a port
  })
  afterAll(() => void server.close())

  const leftDownloads = async (): Promise<string[]> => (await readdir(join(dataDir, 'catalogues'))).filter((file) => file.endsWith('.part'))

  test('is imported, and refusals name it without its query', async () => {
    const { code, out, err } = await taproot(`${url}/all.jsonl?key=secret`, '--group', name, '--allow-private')
    expect([code, err]).toEqual([3, `refused: ${url}/all.jsonl:2: the text is not valid JSON\n`])
    expect(out).toContain('advisories: 1 added')
    expect(await leftDownloads()).toEqual([])
  })

  test.each([
    ['over http', '/all.jsonl', [], 'only https is allowed'],
    ['that does not exist', '/none?key=secret', ['--allow-private'], '/none: the server refused the request (status 404)'],
  ])('%s ends the import with what to do', async (_what, path, options, message) => {
    const { code, err } = await taproot(`${url}${path}`, '--group', name, ...options)
    expect([code, err]).toEqual([1, expect.stringContaining(message)])
    expect(err).not.toContain('secret')
    expect(await leftDownloads()).toEqual([])
  })

  test('is imported by the name of its feed, with the settings of the feed', async () => {
    const feeds = JSON.stringify([{ name: 'own', source: `${url}/all.jsonl`, group: name, allowPrivate: true }])
    const { code, out } = await taprootWith({ TAPROOT_CATALOGUES_FEEDS: feeds }, '--feed', 'own')
    expect(code).toBe(3)
    expect(out).toContain('advisories: 0 added, 0 changed, 1 unchanged')
  })
})

test('an xz archive is refused with what to do', async () => {
  const path = join(dataDir, 'all.tar.xz')
  await writeFile(path, Buffer.from('fd377a585a000004', 'hex'))
  expect(await taproot(path, '--group', name)).toMatchObject({
    code: 3,
    err: `refused: ${path}: xz is not supported: decompress the file, or make a zip or tar.gz of it\n`,
  })
})

test('an import without the catalogue that the upstream lost says what it started without', async () => {
  const folders = (await readdir(join(dataDir, 'registry'), { recursive: true })).filter((path) => basename(path) === 'blobs')
  for (const path of [...folders.map((folder) => join('registry', folder)), 'catalogues']) await rm(join(dataDir, path), { recursive: true })
  const { code, out } = await taproot(documents, '--group', name)
  expect(code).toBe(0)
  expect(out).toMatch(/^2 documents, 0 refused\n[^]*started advisories without the rows of sha256:[0-9a-f]{64}: the upstream does not have it\n[^]*published/)
  expect((await taproot(documents, '--group', name)).out).not.toContain('started')
})

test('an unknown group is a usage error', async () => {
  expect(await taproot(documents, '--group', 'no-such-group')).toMatchObject({ code: 2, err: expect.stringContaining('there is no group') as unknown })
})

test('advisories without a group end the import with what to do', async () => {
  const { code, err } = await taproot(documents)
  expect([code, err]).toEqual([1, 'taproot: the sources have advisories: say with --group which group they belong to\n'])
})

const secdb = JSON.stringify({
  apkurl: '',
  reponame: 'main',
  urlprefix: 'https://example.com',
  packages: [{ pkg: { name: 'a', secfixes: { '1': ['CVE-2026-1'] } } }],
})

test('an ecosystem is named for packages that do not name one', async () => {
  const path = join(dataDir, 'secdb.json')
  await writeFile(path, secdb)
  expect(await taproot(path, '--group', name, '--ecosystem', 'wolfi')).toMatchObject({ code: 1, err: 'taproot: there is no ecosystem wolfi: write Wolfi\n' })
  expect((await taproot(path, '--group', name, '--ecosystem', 'Wolfi')).out).toContain('advisories: 1 added, 0 changed')
})

describe('while a server has the embedded store', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ store: 'sqlite', dataDir })
  })
  afterAll(() => server.stop())

  test('the server imports, and serves the result', async () => {
    const path = join(dataDir, 'served.jsonl')
    await writeFile(path, `${JSON.stringify(osvDocument('S-1'))}\n{"id":\n`)
    const { code, out, err } = await taproot(path, '--group', name)
    expect([code, err]).toEqual([3, `refused: ${path.replace('\u001b', ' ')}:2: the text is not valid JSON\n`])
    expect(out).toMatch(/^2 documents, 1 refused\nadvisories: 1 added, [^]*published advisories sha256:[0-9a-f]{64}\n/)
    const served = async (): Promise<unknown> => {
      const { body } = await server.rest.call('ListAdvisories', { advisoryIds: ['S-1'] }, { token: await server.operatorToken() })
      return body['totalCount']
    }
    await expect.poll(served).toBe('1')
    expect((await taproot(path, '--group', name, '--dry-run')).out).toMatch(/advisories: 0 added, 0 changed, 1 unchanged, 0 removed\n[^]*dry run/)
  })

  test('the server takes the ecosystem', async () => {
    const path = join(dataDir, 'secdb.json')
    expect((await taproot(path, '--group', name, '--ecosystem', 'Wolfi')).out).toContain('advisories: 0 added, 0 changed, 1 unchanged')
    expect((await taproot(path, '--group', name, '--ecosystem', 'Alpine:v3.20')).out).toContain('advisories: 0 added, 1 changed')
  })

  test('errors of the server are those of the command', async () => {
    expect(await taproot(documents, '--group', 'no-such-group')).toMatchObject({ code: 1, err: expect.stringContaining('there is no group') as unknown })
    const empty = await mkdtemp(join(dataDir, 'empty-'))
    expect(await taproot(empty, '--group', name)).toMatchObject({ code: 1, err: expect.stringContaining('contain no documents') as unknown })
  })

  test('a server that stops ends the import, and nothing changes', async () => {
    const path = join(dataDir, 'long.jsonl')
    const line = (at: number): string => `${JSON.stringify(osvDocument(`L-${at}`))}\n`
    await writeFile(path, Array.from({ length: 200_000 }, (_, at) => line(at)).join(''))
    const importing = taproot(path, '--group', name)
    const parts = async (): Promise<number> => (await readdir(join(dataDir, 'catalogues'))).filter((file) => file.endsWith('.part')).length
    await expect.poll(parts).toBeGreaterThan(0)
    await server.stop()
    expect(await importing).toMatchObject({ code: 1, err: expect.stringContaining('the server ended: nothing changed') as unknown })
    expect(await parts()).toBe(0)
    server = await startTestServer({ store: 'sqlite', dataDir })
    const count = async (id: string): Promise<unknown> => {
      const { body } = await server.rest.call('ListAdvisories', { advisoryIds: [id] }, { token: await server.operatorToken() })
      return body['totalCount']
    }
    await expect.poll(() => count('S-1')).toBe('1')
    expect(await count('L-1')).toBe('0')
  })
})
