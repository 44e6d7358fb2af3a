import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { parse } from 'yaml'

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
