import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const root = resolve(import.meta.dirname, '../../..')

let directory: string | undefined

/** Returns the folder of the earlier version's files; undefined until one was extracted. */
export function previousVersion(): string | undefined {
  return directory
}

/**
 * Extracts the program of a Git revision into a temporary directory, for processes of the action `change version`. It uses the installed packages. Resolves
 * with the directory, which the caller removes. Rejects if Git does not know the revision.
 */
export async function extractVersion(revision: string): Promise<string> {
  const place = await mkdtemp(join(tmpdir(), 'taproot-previous-'))
  const archive = join(place, 'source.tar')
  await run('git', ['archive', `--output=${archive}`, revision, 'src', 'package.json'], { cwd: root })
  const target = join(place, 'source')
  await mkdir(target)
  await run('tar', ['-xf', archive, '-C', target])
  await symlink(join(root, 'node_modules'), join(target, 'node_modules'))
  directory = target
  return place
}
