import { createReadStream } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { trustedUid } from '../../src/base/uid.ts'
import { importInto } from '../../src/catalogue/import/run-import.ts'
import type { Environment } from '../environment.ts'
import type { Row, RowGroup } from './row.ts'

const documentCount = 20_000
/** The first round warms up. */
const rounds = 6
/** A core that parses and inserts 70,000 such documents per second should import 5,000. */
const goal = { atMost: 14 }

/** Returns a document with the size and shape of those of the PyPA advisory database: 1.8 KB, one package, 45 versions. */
function documentOf(at: number): object {
  const name = `package-${(at * 7919) % 6_000}`
  const hex = ((at + 1) * 2_654_435_761).toString(16)
  const versions = Array.from({ length: 45 }, (_, minor) => `1.${minor}.${at % 10}`)
  return {
    id: `PYSEC-2026-${at}`,
    modified: new Date(1_767_225_600_000 + at * 60_000).toISOString(),
    published: '2026-01-01T00:00:00Z',
    aliases: [`CVE-2026-${10_000 + at}`, `GHSA-${hex.slice(0, 4)}-${hex.slice(4, 8)}-${at}`],
    details: `${name} decodes what it should not. `.repeat(12),
    references: ['ADVISORY', 'FIX', 'WEB', 'WEB'].map((type, index) => ({ type, url: `https://example.com/${name}/${at}/${index}` })),
    severity: [{ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }],
    affected: [
      {
        package: { ecosystem: 'PyPI', name, purl: `pkg:pypi/${name}` },
        ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '1.0' }, { fixed: `1.45.${at % 10}` }] }],
        versions,
      },
    ],
  }
}

/** Returns the processor time of some work, in seconds. */
async function seconds(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1e6
}

async function importAll(path: string, folder: string): Promise<void> {
  const options = { paths: [path], group: trustedUid('a'.repeat(40)), replace: false, nowMs: 1_767_225_600_000 }
  const watcher = { onRefusal: ({ reason }: { readonly reason: string }): never => failed(reason), onProgress: () => undefined }
  await importInto(async (kind) => ({ path: join(folder, kind), isNew: true }), { ...options, ...watcher }, AbortSignal.timeout(600_000))
}

function failed(reason: string): never {
  throw new Error(`a document was refused: ${reason}`)
}

/** The least that any import does: parses each document, and inserts it into a table by id. */
async function insertAll(path: string, folder: string): Promise<void> {
  const database = new DatabaseSync(join(folder, 'bare'), { defensive: false })
  database.exec('PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE document (id TEXT PRIMARY KEY, body TEXT NOT NULL); BEGIN')
  const insert = database.prepare('INSERT INTO document (id, body) VALUES (?, ?)')
  for await (const line of createInterface({ input: createReadStream(path) })) {
    const { id } = JSON.parse(line) as { readonly id: string } // of `documentOf`
    insert.run(id, line)
  }
  database.exec('COMMIT')
  database.close()
}

/** Returns the middle one of the values. */
function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? NaN
}

/** Measures in this process, whose processor time includes the garbage collector. */
async function measureOsv(environment: Environment): Promise<Row> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-bench-import-'))
  try {
    const path = join(folder, 'documents.jsonl')
    await writeFile(path, Array.from({ length: documentCount }, (_, at) => `${JSON.stringify(documentOf(at))}\n`).join(''))
    const [ratios, rates]: [number[], number[]] = [[], []]
    for (let round = 0; round < rounds; round++) {
      environment.progress(`measuring import-osv, round ${round + 1} of ${rounds}`)
      const inner = await mkdtemp(join(folder, 'round-'))
      const imported = await seconds(() => importAll(path, inner))
      const bare = await seconds(() => insertAll(path, inner))
      await rm(inner, { recursive: true })
      if (round === 0) continue
      ratios.push(imported / bare)
      rates.push(documentCount / imported)
    }
    const note = `${Math.round(median(rates)).toLocaleString('en')} documents per second of processor time`
    const title = 'import of OSV documents, as a multiple of JSON.parse and one insert'
    return { id: 'import-osv', title, unit: 'x', value: median(ratios), goal, measured: [], note }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Imports into catalogues, by processor time. */
export const importRows: RowGroup = {
  name: 'import',
  about: 'imports into catalogues',
  rows: [{ id: 'import-osv', measure: measureOsv }],
}
