// Prepares a clone for the npm scripts. Installs packages if the lock file has changed, and the real programs that commands need. With
// `--production` it leaves out the packages for developers, and the files that no server reads. It runs before anything is installed: plain
// JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { partSets } from './part-sets.js'
import { removeUnreadFiles } from './unread-files.js'

const root = join(import.meta.dirname, '..')
const packages = join(root, 'node_modules')
const stampFile = join(packages, '.taproot-setup')
/** Where packages are that an installation replaces, until it has succeeded. */
const asideFolder = join(packages, '.taproot-replaced')
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
  putBack()
  const isTrimmed = stamp.endsWith(productionMark)
  // An installation that is interrupted counts as none. The next one has to know that files may be missing.
  if (onlyProduction || isTrimmed) writeStamp(productionMark)
  else rmSync(stampFile, { force: true })
  if (isTrimmed && !onlyProduction) putAside()
  const args = ['install', '--no-save', onlyProduction ? '--omit=dev' : '--include=dev', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']
  run(npmCommand(args), 'npm could not install the packages', () => {
    if (putBack()) writeStamp(stamp)
  })
  rmSync(asideFolder, { recursive: true, force: true })
  if (onlyProduction) removeUnreadFiles(packages)
  writeStamp(onlyProduction ? fingerprint + productionMark : fingerprint)
}

function writeStamp(text) {
  mkdirSync(packages, { recursive: true })
  writeFileSync(stampFile, text)
}

/** Moves the packages of production aside: developers need the files that they lack. The Node that runs this stays. */
function putAside() {
  mkdirSync(asideFolder)
  const moved = readdirSync(packages).filter((name) => !/^(?:\.bin|\.taproot-.*|node-(?:bin-)?(?:linux|darwin)-\w+)$/.test(name))
  for (const name of moved) renameSync(join(packages, name), join(asideFolder, name))
}

/** Moves the packages back that an installation put aside, if it was interrupted or failed. Returns true if there were some. */
function putBack() {
  if (!existsSync(asideFolder)) return false
  for (const name of readdirSync(asideFolder)) {
    rmSync(join(packages, name), { recursive: true, force: true })
    renameSync(join(asideFolder, name), join(packages, name))
  }
  rmSync(asideFolder, { recursive: true })
  return true
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

/** Runs a command without showing its output. If it fails, calls `undo`, prints the output and exits. */
function run([command, ...args], complaint, undo) {
  const result = spawnSync(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, shell: process.platform === 'win32' })
  if (result.status === 0) return
  undo()
  process.stderr.write(`${complaint}:\n${result.stdout ?? ''}${result.stderr ?? ''}${result.error?.message ?? ''}\n`)
  process.exit(result.status ?? 1)
}
