import { Buffer } from 'node:buffer'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { importInto, type ImportCounts, type ImportRefusal } from '../../src/catalogue/import/run-import.ts'

/** The group of documents that tests import. */
export const testGroup = trustedUid('a'.repeat(40))

/** A folder that is removed after the test. A hook of this module would run for the first file of a worker only. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-catalogue-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** Writes a file into a folder of its own. Returns its path. */
export async function fileOf(name: string, content: string | Uint8Array): Promise<string> {
  const path = join(await temporaryFolder(), name)
  await writeFile(path, typeof content === 'string' ? Buffer.from(content) : content)
  return path
}

/** What an import into a new catalogue did. */
export interface ImportOutcome {
  readonly counts: ImportCounts
  readonly refusals: readonly ImportRefusal[]
  readonly target: string
}

/** Imports paths into a new catalogue, or into `target`. */
export async function importPaths(paths: readonly string[], options: { target?: string; replace?: boolean; group?: string } = {}): Promise<ImportOutcome> {
  const target = options.target ?? join(await temporaryFolder(), 'catalogue.sqlite')
  const refusals: ImportRefusal[] = []
  const counts = await importInto(
    { path: target, isNew: options.target === undefined },
    {
      paths,
      group: trustedUid(options.group ?? testGroup),
      replace: options.replace ?? false,
      nowMs: 1_767_225_600_000,
      onRefusal: (refusal) => refusals.push(refusal),
      onProgress: () => undefined,
    },
    AbortSignal.timeout(120_000),
  )
  return { counts, refusals, target }
}
