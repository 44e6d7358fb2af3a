import { Buffer } from 'node:buffer'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { CatalogueKind } from '../../src/cache/lists/catalogue-sources.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { importInto, type ImportCounts, type ImportRefusal, type OpenTarget, type RowCounts } from '../../src/catalogue/import/run-import.ts'

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

/** What an import into new catalogues did: documents, and rows of advisories. */
export interface ImportOutcome {
  readonly counts: Pick<ImportCounts, 'documents' | 'refused'> & RowCounts
  /** Rows of all kinds. */
  readonly rows: ImportCounts['rows']
  readonly refusals: readonly ImportRefusal[]
  /** The file of advisories. The file of each other kind lies next to it. */
  readonly target: string
}

/** Returns the file of a kind next to the file of advisories. */
export function fileOfKind(target: string, kind: CatalogueKind): string {
  return kind === 'advisories' ? target : `${target}.${kind}`
}

/** Makes the files to write: empty ones, or those of an earlier import. */
export function targetsAt(target: string): OpenTarget {
  return async (kind) => {
    const path = fileOfKind(target, kind)
    return { path, isNew: !existsSync(path) }
  }
}

/** Imports paths into new catalogues, or into those of `target`. */
export async function importPaths(
  paths: readonly string[],
  options: { target?: string; replace?: boolean; group?: string | undefined; ecosystem?: string | undefined } = {},
): Promise<ImportOutcome> {
  const target = options.target ?? join(await temporaryFolder(), 'catalogue.sqlite')
  const refusals: ImportRefusal[] = []
  const group = 'group' in options ? options.group : testGroup
  const counts = await importInto(
    targetsAt(target),
    {
      paths,
      group: group === undefined ? undefined : trustedUid(group),
      ecosystem: options.ecosystem,
      replace: options.replace ?? false,
      nowMs: 1_767_225_600_000,
      onRefusal: (refusal) => refusals.push(refusal),
      onProgress: () => undefined,
    },
    AbortSignal.timeout(120_000),
  )
  const { documents, refused, rows } = counts
  const none = { added: 0, changed: 0, unchanged: 0, removed: 0 }
  return { counts: { documents, refused, ...(rows.get('advisories') ?? none) }, rows, refusals, target }
}
