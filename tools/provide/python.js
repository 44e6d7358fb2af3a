// Provides Python packages, each set in its own virtual environment. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pid, platform, stdout } from 'node:process'
import { withLock } from './lock.js'
import { cacheDirectory, isProgram, sourceDirectory } from './program.js'

/**
 * Installs the packages that requirements.txt in `folder` pins by hash, into a virtual environment in the cache, once. The program is the
 * python of that environment. Needs a python3 of version `minimum` (such as `3.11`) with venv. Returns `{ path, built }` or `{ reason }`.
 */
export function provideByPython(name, { folder = name, minimum }) {
  if (platform === 'win32') return { reason: `${name} is not fetched on Windows` }
  const found = /^Python (\d+)\.(\d+)/.exec(python(['--version']).stdout ?? '')
  if (found === null) return { reason: `${name} can not be fetched: there is no python3` }
  const [major, minor] = minimum.split('.').map(Number)
  if (Number(found[1]) !== major || Number(found[2]) < minor) return { reason: `${name} can not be fetched: python3 is older than ${minimum}` }
  const requirements = join(sourceDirectory(folder), 'requirements.txt')
  const version = createHash('sha256').update(readFileSync(requirements)).digest('hex').slice(0, 16)
  const directory = join(cacheDirectory(), `${name}-${version}-python${found[1]}.${found[2]}`)
  const part = { name, directory, requirements, path: join(directory, name), interpreter: join(directory, 'venv', 'bin', 'python') }
  if (isThere(part)) return { path: part.path, built: false }
  mkdirSync(directory, { recursive: true })
  return withLock(join(directory, 'lock'), () => (isThere(part) ? { path: part.path, built: true } : install(part)))
}

/** Returns true if the environment is complete. Returns false if the python that created it no longer exists. */
function isThere({ path, interpreter }) {
  return isProgram(path) && isProgram(interpreter)
}

function python(args) {
  return spawnSync('python3', args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
}

/** Creates the environment. The program is written last, so an interrupted installation counts as incomplete and starts again. */
function install({ name, directory, requirements, path, interpreter }) {
  stdout.write(`fetching ${name}, once ...\n`)
  const environment = join(directory, 'venv')
  rmSync(environment, { recursive: true, force: true })
  const made = python(['-m', 'venv', environment])
  if (made.status !== 0) return failure(name, made)
  const pip = (args) =>
    spawnSync(interpreter, ['-m', 'pip', '--no-input', '--disable-pip-version-check', ...args], { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
  // The file names every package. Without --no-deps, older versions of pip search for the newest version of a package that another one
  // requires with an extra.
  const installed = pip(['install', '--no-deps', '--require-hashes', '--only-binary', ':all:', '-q', '-r', requirements])
  if (installed.status !== 0) return failure(name, installed)
  const complete = pip(['check'])
  if (complete.status !== 0) return failure(name, complete)
  const unfinished = `${path}.${pid}`
  writeFileSync(unfinished, `#!/bin/sh\nexec '${interpreter.replaceAll("'", "'\\''")}' "$@"\n`)
  chmodSync(unfinished, 0o755)
  renameSync(unfinished, path)
  return { path, built: true }
}

function failure(name, { stdout: said, stderr }) {
  return { reason: `${name} could not be fetched: ${`${said ?? ''}\n${stderr ?? ''}`.trim().split('\n').at(-1) || 'python3 failed'}` }
}
