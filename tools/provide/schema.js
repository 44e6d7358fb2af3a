// Provides JSON schemas, which are files in packages. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pid, stdout } from 'node:process'
import { withLock } from './lock.js'
import { cacheDirectory, sourceDirectory } from './program.js'
import { readZipEntry } from './zip.js'

/**
 * Copies a schema into the cache, once, and checks that its content has the hash `sha256`. `file` is its path in the Go module `goModule`, whose version
 * the go.mod of tools/parts/`name` pins. Without a module, it is the path in the wheel that requirements.txt pins by hash. Returns `{ path, built }` or
 * `{ reason }`.
 */
export function provideSchema(name, { goModule, file, sha256 }) {
  const path = join(cacheDirectory(), `${name}-${sha256.slice(0, 16)}`, `${name}.json`)
  if (existsSync(path)) return { path, built: false }
  mkdirSync(dirname(path), { recursive: true })
  return withLock(join(dirname(path), 'lock'), () => {
    if (existsSync(path)) return { path, built: true }
    stdout.write(`fetching ${name}, once ...\n`)
    try {
      const content = goModule === undefined ? fileInWheel(name, file) : fileInModule(name, { goModule, file })
      if (createHash('sha256').update(content).digest('hex') !== sha256) throw new Error(`its content does not have the hash ${sha256}`)
      writeFileSync(`${path}.${pid}`, content)
      renameSync(`${path}.${pid}`, path)
      return { path, built: true }
    } catch (error) {
      return { reason: `${name} could not be fetched: ${error.message}` }
    }
  })
}

function fileInModule(name, { goModule, file }) {
  const { Dir: directory } = JSON.parse(run(name, ['go', 'mod', 'download', '-json', goModule]))
  return readFileSync(join(directory, file))
}

/** Only the file is used. So the package may be made for a newer Python, and what it depends on is not fetched. */
function fileInWheel(name, file) {
  const home = mkdtempSync(join(cacheDirectory(), `${name}-`))
  try {
    const quiet = ['--no-input', '--disable-pip-version-check', '-q']
    const pinned = ['--no-deps', '--require-hashes', '--only-binary', ':all:', '--python-version', '3.14', '-r', 'requirements.txt']
    run(name, ['python3', '-m', 'pip', 'download', ...quiet, ...pinned, '-d', home])
    const [wheel = ''] = readdirSync(home)
    return readZipEntry(readFileSync(join(home, wheel)), file)
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

/** Runs a command in the folder of the part. Returns its output. */
function run(name, [command, ...args]) {
  const { status, stdout: said, stderr, error } = spawnSync(command, args, { cwd: sourceDirectory(name), encoding: 'utf8' })
  if (error !== undefined) throw new Error(`${command} is missing`)
  if (status !== 0) throw new Error(`${stderr}\n${said}`.trim().split('\n').at(-1) || `${command} failed`)
  return said
}
