// Provides programs that are built from Go modules. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { env, pid, stdout } from 'node:process'
import { withLock } from './lock.js'
import { cacheDirectory, isProgram, sourceDirectory, suffix } from './program.js'

/**
 * Builds `goPackage` in the module of `folder`, whose go.mod pins the version, into the cache, once. `.` is a program of this repository
 * in that folder. Returns `{ path, built }` or `{ reason }`.
 */
export function provideByGo(name, { goPackage, folder = name, kubernetesVersion = false }) {
  const version = goPackage === '.' ? sourceHash(folder) : pinnedVersion(folder)
  const directory = join(cacheDirectory(), `${name}-${version}`)
  const path = join(directory, name + suffix)
  if (isProgram(path)) return { path, built: false }
  if (spawnSync('go', ['version']).status !== 0) return { reason: `${name} is not installed, and Go to build it is missing` }
  mkdirSync(directory, { recursive: true })
  const flags = kubernetesVersion ? kubernetesVersionFlags(version) : []
  return withLock(join(directory, 'lock'), () => (isProgram(path) ? { path, built: true } : build(name, { goPackage, folder, version, flags, path })))
}

/** Returns the version in the one-line `require` of go.mod; indirect ones are in a block. */
function pinnedVersion(folder) {
  const version = /^require \S+ (v\S+)/m.exec(readFileSync(join(sourceDirectory(folder), 'go.mod'), 'utf8'))?.[1]
  if (version === undefined) throw new Error(`tools/parts/${folder}/go.mod pins no version`)
  return version
}

/** Returns linker flags with the version of a Kubernetes program. Without them, it reports v0.0.0, which clients refuse. */
function kubernetesVersionFlags(version) {
  const [, major, minor] = /^v(\d+)\.(\d+)/.exec(version) ?? []
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor }
  return [
    '-ldflags',
    Object.entries(values)
      .map(([key, value]) => `-X k8s.io/component-base/version.${key}=${value}`)
      .join(' '),
  ]
}

/** Returns a hash of the sources of a program of this repository. If they change, the program is built again. */
function sourceHash(folder) {
  const directory = sourceDirectory(folder)
  const hash = createHash('sha256')
  for (const file of readdirSync(directory).sort()) hash.update(`${file}\0`).update(readFileSync(join(directory, file)))
  return hash.digest('hex').slice(0, 16)
}

function build(name, { goPackage, folder, version, flags, path }) {
  stdout.write(`building ${name} ${version}, once ...\n`)
  const unfinished = `${path}.${pid}`
  const { status, stderr } = spawnSync('go', ['build', '-trimpath', ...flags, '-o', unfinished, goPackage], {
    cwd: sourceDirectory(folder),
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
