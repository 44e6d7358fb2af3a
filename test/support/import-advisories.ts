import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import type { JsonObject } from '@bufbuild/protobuf'
import { trustedUid } from '../../src/base/uid.ts'
import type { PublishedImport, ImportRefusal, RowCounts } from '../../src/catalogue/index.ts'
import { freshName, ok, type TestServer } from './test-server.ts'

/** What an import did, with the rows of advisories and what was refused. */
export interface TestImport extends PublishedImport, RowCounts {
  readonly refusals: readonly ImportRefusal[]
}

/** An OSV document about one package. */
export function osvDocument(id: string, more: JsonObject = {}): JsonObject {
  const affected = [{ package: { ecosystem: 'PyPI', name: 'example' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.2.3' }] }] }]
  return { id, published: '2026-01-02T03:04:05.678Z', modified: '2026-02-03T04:05:06Z', affected, ...more }
}

/** Imports files, and waits until the server serves the result. */
export async function importFiles(
  server: TestServer,
  group: string,
  paths: readonly string[],
  options: { replace?: boolean; dryRun?: boolean } = {},
): Promise<TestImport> {
  const { catalogues } = server.running.engine
  if (catalogues === undefined) throw new Error('the server has no upstream for catalogues')
  const refusals: ImportRefusal[] = []
  const { replace = false, dryRun = false } = options
  const onRefusal = (refusal: ImportRefusal): void => void refusals.push(refusal)
  const signal = AbortSignal.timeout(300_000)
  const imported = await catalogues.import(
    { paths, group: trustedUid(group), replace, dryRun, mayBegin: false, onRefusal, onProgress: () => undefined },
    signal,
  )
  const isServed = (digest: string): boolean => server.logs.some(({ message, fields }) => message === 'the catalogue is served' && fields['digest'] === digest)
  const digests = [...imported.published.values()].map(({ manifest }) => manifest)
  // Also in processes of the fuzzer, which have no vitest.
  while (!digests.every(isServed)) await delay(5, undefined, { signal })
  const none = { added: 0, changed: 0, unchanged: 0, removed: 0 }
  return { ...imported, ...(imported.rows.get('advisories') ?? none), refusals }
}

/** Imports documents in OSV form. */
export async function importDocuments(
  server: TestServer,
  group: string,
  documents: readonly JsonObject[],
  options: { replace?: boolean; dryRun?: boolean } = {},
): Promise<TestImport> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-osv-'))
  try {
    const path = join(folder, 'documents.jsonl')
    await writeFile(path, documents.map((document) => `${JSON.stringify(document)}\n`).join(''))
    return await importFiles(server, group, [path], options)
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Imports the life cycles of a product, by default of one of its own, in the form of endoflife.date. Returns its name. */
export async function importProduct(server: TestServer, group: string, cycles: readonly JsonObject[], name = freshName('product')): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-cycles-'))
  try {
    const path = join(folder, `${name}.json`)
    await writeFile(path, JSON.stringify(cycles))
    await importFiles(server, group, [path])
    return name
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** The JSON of a Python project, with one file for each version. */
export function pypiDocument(name: string, versions: readonly string[], more: JsonObject = {}): JsonObject {
  const releases = Object.fromEntries(
    versions.map((version, at) => [
      version,
      [{ filename: `${name}-${version}.tar.gz`, size: 100 + at, upload_time_iso_8601: `2026-01-0${at + 1}T00:00:00.000Z` }],
    ]),
  )
  return { info: { name, summary: `about ${name}`, ...more }, urls: [], releases }
}

/** Imports one advisory about a package of its own. Returns its uid. */
export async function importAdvisory(server: TestServer, group: string, name: string): Promise<string> {
  await importDocuments(server, group, [osvDocument(name, { affected: [{ package: { ecosystem: 'PyPI', name } }] })])
  const { advisories } = ok(await server.rest.call('ListAdvisories', { artifactNames: [name] }, { token: await server.operatorToken() }))
  const [advisory] = advisories as JsonObject[] // a list answer
  return String(advisory?.['uid'])
}

/** Makes an advisory by hand, as an operator. Returns it in version 1. */
export async function ownAdvisory(server: TestServer, parentId: string, more: JsonObject = {}): Promise<JsonObject> {
  const advisory = { advisoryId: freshName('X'), artifactName: 'made', artifactType: 'PyPI', ...more }
  return ok(await server.rest.call('Advisories/Create', { parentId, advisory }, { token: await server.operatorToken() }))
}

/** The PyPA advisory database in OSV form, where it lies next to the repository (CC-BY-4.0). */
const archive = resolve('../shared/data/pypa-osv.tar.xz')

/** False on a machine without the database. */
export const hasPypaData = existsSync(archive)

/** Resolves with its documents: the first `max`, or all of every `nth` package. */
export async function pypaDocuments({ max = Infinity, nth = 1 }: { readonly max?: number; readonly nth?: number }): Promise<unknown[]> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-osv-'))
  try {
    await promisify(execFile)('tar', ['-xJf', archive, '-C', folder])
    const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.yaml')).sort()
    const packages = [...new Set(names.map(dirname))]
    const wanted = new Set(packages.filter((_, at) => at % nth === 0))
    const chosen = names.filter((name) => wanted.has(dirname(name))).slice(0, max)
    const texts = await Promise.all(chosen.map((name) => readFile(join(folder, name), 'utf8')))
    return texts.map((text) => parse(text, { schema: 'core' }) as unknown)
  } finally {
    await rm(folder, { recursive: true })
  }
}
