import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import yauzl from 'yauzl'
import { zipEnd, zipEntry } from '../../../src/catalogue/exports/zip-records.ts'
import { runClient } from './run-client.ts'

/** What tests read of documents about Python packages. */
export interface PythonDocument extends JsonObject {
  readonly id: string
  readonly affected: {
    readonly package: { readonly name: string }
    readonly ranges?: { readonly type: string; readonly events: Record<string, string>[] }[]
    readonly versions?: string[]
  }[]
}

/** A zip of the documents as they are. */
export function zipOf(documents: readonly PythonDocument[]): Buffer {
  const entries: Uint8Array[] = []
  const records: Uint8Array[] = []
  let offset = 0
  for (const document of documents) {
    const { bytes, record } = zipEntry(`${document.id}.json`, JSON.stringify(document), offset)
    entries.push(bytes)
    records.push(record)
    offset += bytes.length
  }
  const directory = Buffer.concat(records)
  return Buffer.concat([...entries, directory, zipEnd({ count: documents.length, length: directory.length, offset })])
}

/** Resolves with the documents in a zip. */
export async function documentsIn(bytes: Buffer): Promise<PythonDocument[]> {
  const zip = await yauzl.fromBufferPromise(bytes)
  const documents: PythonDocument[] = []
  for await (const entry of zip.eachEntry()) {
    const pieces: Buffer[] = []
    for await (const piece of await zip.openReadStreamPromise(entry)) pieces.push(piece as Buffer) // a stream without encoding
    documents.push(JSON.parse(Buffer.concat(pieces).toString()) as PythonDocument) // of documents about packages
  }
  return documents
}

/** What a scan prints. */
interface Report {
  readonly results: readonly {
    readonly packages: readonly {
      readonly package: Readonly<Record<'name' | 'version', string>>
      readonly vulnerabilities: readonly { readonly id: string }[]
    }[]
  }[]
}

/**
 * Lets a real osv-scanner look for Python packages, such as `django==3.2`, in a zip of OSV documents, without a network. Resolves with the sorted ids of
 * each package that it finds. Rejects if the scanner does not work.
 */
export async function scanPython(zip: Uint8Array, requirements: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-osv-scanner-'))
  try {
    const database = join(folder, 'osv-scanner', 'PyPI')
    await mkdir(database, { recursive: true })
    await writeFile(join(database, 'all.zip'), zip)
    const file = join(folder, 'requirements.txt')
    await writeFile(file, requirements.map((one) => `${one}\n`).join(''))
    const { stdout, stderr, code } = await runClient('osv-scanner', ['scan', '--experimental-offline', '--format', 'json', '--lockfile', file], {
      timeoutMs: 120_000,
      own: () => ({ OSV_SCANNER_LOCAL_DB_CACHE_DIRECTORY: folder }),
    })
    // 1 means that it found something.
    if (code !== 0 && code !== 1) throw new Error(`osv-scanner ended with ${code ?? 'a signal'}:\n${stderr}`)
    const { results } = JSON.parse(stdout) as Report // what this version prints
    const found = results.flatMap(({ packages }) => packages)
    return new Map(found.map(({ package: { name, version }, vulnerabilities }) => [`${name}==${version}`, vulnerabilities.map(({ id }) => id).sort()]))
  } finally {
    await rm(folder, { recursive: true })
  }
}
