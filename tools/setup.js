// Prepares a clone for the npm scripts. Installs packages if the lock file has changed, and the real programs that commands need. With
// `--production` it leaves out the packages for developers, and the files that no server reads. It runs before anything is installed: plain
// JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { partSets } from './part-sets.js'
import { removeUnreadFiles } from './unread-files.js'

const root = join(import.meta.dirname, '..')
const packages = join(root, 'node_modules')
const stampFile = join(packages, '.taproot-setup')
const pinnedNode = join(packages, '.bin', 'node')
/** What the stamp file has after the hash if only the packages of production are installed. */
const productionMark = ' production'
const isProduction = process.argv.includes('--production')

const fingerprint = createHash('sha256')
  .update(readFileSync(join(root, 'package-lock.json')))
  .digest('hex')
const stamp = existsSync(stampFile) ? readFileSync(stampFile, 'utf8') : ''
const isInstalled = existsSync(pinnedNode) && (stamp === fingerprint || (isProduction && stamp === fingerprint + productionMark))
// A clone that has the packages for developers keeps them.
const hasDevPackages = existsSync(packages) && !stamp.endsWith(productionMark)
if (!isInstalled) installPackages(isProduction && !hasDevPackages)
prepareParts([...new Set(process.argv.slice(2).flatMap((command) => partSets[command] ?? []))])

/**
 * Installs the packages with `npm install --no-save`. `npm ci` would refuse a lock file that lacks the optional binaries of this platform,
 * because it was written on another one. Both keep the locked versions and the lock file.
 */
function installPackages(onlyProduction) {
  process.stdout.write('installing packages ...\n')
  if (!onlyProduction && stamp.endsWith(productionMark)) removePackages()
  // An installation that is interrupted counts as none. The next one has to know that files may be missing.
  if (onlyProduction) writeStamp(productionMark)
  else rmSync(stampFile, { force: true })
  const args = ['install', '--no-save', onlyProduction ? '--omit=dev' : '--include=dev', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']
  run(npmCommand(args), 'npm could not install the packages')
  if (onlyProduction) removeUnreadFiles(packages)
  writeStamp(onlyProduction ? fingerprint + productionMark : fingerprint)
}

function writeStamp(text) {
  mkdirSync(packages, { recursive: true })
  writeFileSync(stampFile, text)
}

/** Removes the packages of production: developers need the files that they lack. The Node that runs this stays. */
function removePackages() {
  const removed = readdirSync(packages).filter((name) => !/^(?:\.bin|node-(?:bin-)?(?:linux|darwin)-\w+)$/.test(name))
  for (const name of removed) rmSync(join(packages, name), { recursive: true, force: true })
}

/** Returns the command of the npm that runs this script, otherwise of the npm on the path. */
function npmCommand(args) {
  const self = process.env.npm_execpath
  return self !== undefined && /npm-cli\.js$/.test(self) ? [process.execPath, self, ...args] : ['npm', ...args]
}

function prepareParts(names) {
  if (names.length === 0) return
  const { status } = spawnSync(process.execPath, [join(root, 'tools', 'parts.js'), ...names], { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}

/** Runs a command without showing its output. If it fails, prints the output and exits. */
function run([command, ...args], complaint) {
  const result = spawnSync(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, shell: process.platform === 'win32' })
  if (result.status === 0) return
  process.stderr.write(`${complaint}:\n${result.stdout ?? ''}${result.stderr ?? ''}${result.error?.message ?? ''}\n`)
  process.exit(result.status ?? 1)
}
