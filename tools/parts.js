// Finds or builds the real programs that tests run against. Plain JavaScript for Node 20, no packages.
// Usage: node tools/parts.js etcd grpcurl
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'
import { argv, env, pid, platform, stdout } from 'node:process'
import { pathToFileURL } from 'node:url'

/** Where each part comes from: the Go package of its program, whose module and version its go.mod pins; `.` is our own program in that folder. */
const parts = {
  crane: { goPackage: 'github.com/google/go-containerregistry/cmd/crane' },
  etcd: { goPackage: 'go.etcd.io/etcd/server/v3' },
  etcdutl: { goPackage: 'go.etcd.io/etcd/etcdutl/v3' },
  grpcurl: { goPackage: 'github.com/fullstorydev/grpcurl/cmd/grpcurl' },
  'history-checker': { goPackage: '.' },
  'kube-apiserver': { goPackage: 'k8s.io/kubernetes/cmd/kube-apiserver', ldflags: kubernetesVersionFlags },
  // Other programs have this name too: one on the path is not taken.
  registry: { goPackage: 'github.com/distribution/distribution/v3/cmd/registry', pinnedOnly: true },
}

const suffix = platform === 'win32' ? '.exe' : ''
const lockPollMs = 200
const lockPatienceMs = 15 * 60_000

/**
 * Returns `{ path }` of the part's program: on the path or among envtest's binaries, else from the cache outside the checkout, else
 * built with Go into that cache, once. Returns `{ reason }`, one line, where the machine can't provide it. Blocks while it builds.
 */
export function ensurePart(name) {
  const part = parts[name]
  if (part === undefined) throw new TypeError(`no such part: ${name}`)
  const isOurs = part.goPackage === '.'
  const found = isOurs || part.pinnedOnly ? undefined : findInstalled(name)
  if (found !== undefined) return { path: found, built: false }
  const directory = join(cacheDirectory(), `${name}-${isOurs ? sourceHash(name) : pinnedVersion(name)}`)
  const path = join(directory, name + suffix)
  if (isProgram(path)) return { path, built: false }
  if (spawnSync('go', ['version']).status !== 0) return { reason: `${name} is neither installed nor can it be built: there is no Go` }
  mkdirSync(directory, { recursive: true })
  return withLock(join(directory, 'lock'), () => (isProgram(path) ? { path, built: true } : build(name, part, path)))
}

function findInstalled(name) {
  const directories = [...(env.PATH ?? '').split(delimiter), env.KUBEBUILDER_ASSETS ?? '']
  return directories
    .filter((directory) => directory !== '')
    .map((directory) => join(directory, name + suffix))
    .find(isProgram)
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

function cacheDirectory() {
  return env.TAPROOT_PARTS_DIR || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'taproot', 'parts')
}

function moduleDirectory(name) {
  return join(import.meta.dirname, 'parts', name)
}

/** The version on the go.mod's one-line `require`; the indirect ones stand in a block. */
function pinnedVersion(name) {
  const version = /^require \S+ (v\S+)/m.exec(readFileSync(join(moduleDirectory(name), 'go.mod'), 'utf8'))?.[1]
  if (version === undefined) throw new Error(`tools/parts/${name}/go.mod pins no version`)
  return version
}

/** Programs of Kubernetes learn their version when they are linked; without it they say v0.0.0, which clients refuse. */
function kubernetesVersionFlags(name) {
  const version = pinnedVersion(name)
  const [, major, minor] = /^v(\d+)\.(\d+)/.exec(version) ?? []
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor }
  return [
    '-ldflags',
    Object.entries(values)
      .map(([key, value]) => `-X k8s.io/component-base/version.${key}=${value}`)
      .join(' '),
  ]
}

/** What our own program is built from: other source, other program. */
function sourceHash(name) {
  const directory = moduleDirectory(name)
  const hash = createHash('sha256')
  for (const file of readdirSync(directory).sort()) hash.update(`${file}\0`).update(readFileSync(join(directory, file)))
  return hash.digest('hex').slice(0, 16)
}

function build(name, { goPackage, ldflags }, path) {
  stdout.write(`building ${name} ${pinnedVersion(name)}, once ...\n`)
  const unfinished = `${path}.${pid}`
  const { status, stderr } = spawnSync('go', ['build', '-trimpath', ...(ldflags?.(name) ?? []), '-o', unfinished, goPackage], {
    cwd: moduleDirectory(name),
    env: { ...env, CGO_ENABLED: '0' },
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  })
  if (status !== 0) {
    rmSync(unfinished, { force: true })
    return { reason: `${name} could not be built: ${stderr.trim().split('\n').at(-1) ?? 'go failed'}` }
  }
  renameSync(unfinished, path)
  return { path, built: true }
}

/** Runs `work` while no other process holds the lock file; that of a process which is gone does not count. */
function withLock(file, work) {
  const deadline = Date.now() + lockPatienceMs
  while (!tryLock(file)) {
    if (Date.now() > deadline) return { reason: `another process has been building it for too long (${file})` }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lockPollMs)
  }
  try {
    return work()
  } finally {
    rmSync(file, { force: true })
  }
}

function tryLock(file) {
  try {
    writeFileSync(file, String(pid), { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
    removeIfAbandoned(file)
    return false
  }
}

function removeIfAbandoned(file) {
  try {
    const holder = Number(readFileSync(file, 'utf8'))
    if (holder > 0 && !isRunning(holder)) rmSync(file, { force: true })
  } catch (error) {
    // Its holder has let go of it between the two calls.
    if (error.code !== 'ENOENT') throw error
  }
}

function isRunning(processId) {
  try {
    process.kill(processId, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

/** One line per part, unless all were there already. A missing part is an error only with REQUIRE_ALL_PARTS=1. */
function main(names) {
  const results = names.map((name) => ({ name, ...ensurePart(name) }))
  if (results.every((result) => result.built === false)) return
  for (const { name, path, reason } of results) stdout.write(path === undefined ? `missing: ${reason}; its tests are skipped\n` : `${name}: ${path}\n`)
  if (env.REQUIRE_ALL_PARTS === '1' && results.some((result) => result.path === undefined)) process.exitCode = 1
}

if (argv[1] !== undefined && existsSync(argv[1]) && import.meta.url === pathToFileURL(argv[1]).href) main(argv.slice(2))
