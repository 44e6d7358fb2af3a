import { execFile } from 'node:child_process'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
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
function taproot(...parameters: string[]): Promise<{ code: number; out: string; err: string }> {
  const command = ['--disable-warning=ExperimentalWarning', resolve('src/cli/taproot.ts'), 'import', ...parameters]
  return new Promise((done) => {
    execFile(process.execPath, command, { env: { ...programEnvironment(), TAPROOT_DATA_DIR: dataDir } }, (error, out, err) =>
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

test('what is refused is named with its line, and the exit code is 3', async () => {
  const path = join(dataDir, 'bad.jsonl')
  await writeFile(path, `${JSON.stringify(osvDocument('B-1'))}\n{"id":\n`)
  const { code, out, err } = await taproot(path, '--group', name)
  expect([code, err]).toEqual([3, `refused: ${path}:2: the text is not valid JSON\n`])
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
  ['a path that is missing', 'nowhere.json', 2, 'nowhere.json cannot be read'],
  ['a URL', 'https://advisories.example/all.zip', 2, 'download it'],
])('%s is a usage error', async (_what, path, code, message) => {
  expect(await taproot(path, '--group', name)).toMatchObject({ code, err: expect.stringContaining(message) as unknown })
})

test('an xz archive is refused with what to do', async () => {
  const path = join(dataDir, 'all.tar.xz')
  await writeFile(path, Buffer.from('fd377a585a000004', 'hex'))
  expect(await taproot(path, '--group', name)).toMatchObject({
    code: 3,
    err: `refused: ${path}: xz is not supported: decompress the file, or make a zip or tar.gz of it\n`,
  })
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
    expect([code, err]).toEqual([3, `refused: ${path}:2: the text is not valid JSON\n`])
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
