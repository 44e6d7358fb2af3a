// Prepares a clone for the npm scripts: installs packages if the lock file changed and the real parts for commands that need them.
// Runs before anything is installed: plain JavaScript for Node 20, no packages.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { partSets } from './part-sets.js'

const root = join(import.meta.dirname, '..')
const stampFile = join(root, 'node_modules', '.taproot-setup')
const pinnedNode = join(root, 'node_modules', '.bin', 'node')
if (!isInstalled()) installPackages()
prepareParts([...new Set(process.argv.slice(2).flatMap((command) => partSets[command] ?? []))])

/** What the installed packages follow from. */
function fingerprint() {
  return createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex')
}

function isInstalled() {
  return existsSync(pinnedNode) && existsSync(stampFile) && readFileSync(stampFile, 'utf8') === fingerprint()
}

/**
 * `npm install --no-save` and not `npm ci`: a lock file written on one platform may lack the optional binaries of the others, which
 * `npm ci` refuses. Locked versions are kept either way, and the lock file is not touched.
 */
function installPackages() {
  process.stdout.write('installing packages ...\n')
  const args = ['install', '--no-save', '--include=dev', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']
  run(npmCommand(args), 'npm could not install the packages')
  writeFileSync(stampFile, fingerprint())
}

/** The npm that runs this script, else the one on the path. */
function npmCommand(args) {
  const self = process.env.npm_execpath
  return self !== undefined && /npm-cli\.js$/.test(self) ? [process.execPath, self, ...args] : ['npm', ...args]
}

function prepareParts(names) {
  if (names.length === 0) return
  const { status } = spawnSync(process.execPath, [join(root, 'tools', 'parts.js'), ...names], { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}

/** Runs a command quietly; on failure prints what it said and exits. */
function run([command, ...args], complaint) {
  const result = spawnSync(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, shell: process.platform === 'win32' })
  if (result.status === 0) return
  process.stderr.write(`${complaint}:\n${result.stdout ?? ''}${result.stderr ?? ''}${result.error?.message ?? ''}\n`)
  process.exit(result.status ?? 1)
}
