// Provides programs of Debian packages. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { getuid, stdout } from 'node:process'
import { findInstalled } from './program.js'

/**
 * Installs the package with apt if the program is missing. This needs root, and a system with apt. Returns `{ path, built }` or `{ reason
 * }`.
 */
export function provideByDebian(name, { debianPackage, program = name, directories = [] }) {
  const path = findInstalled(program, directories)
  if (path !== undefined) return { path, built: false }
  if (getuid?.() !== 0 || spawnSync('apt-get', ['--version']).status !== 0) {
    return { reason: `${name} is not installed, and installing the package ${debianPackage} needs root and apt` }
  }
  stdout.write(`installing ${debianPackage} ...\n`)
  // On a new machine, the package lists may be empty or outdated. They are updated only if the installation fails without that.
  if (!apt(['install', debianPackage]).ok) apt(['update'])
  const { ok, complaint } = apt(['install', debianPackage])
  const installed = ok ? findInstalled(program, directories) : undefined
  return installed === undefined ? { reason: `${name}: apt could not install ${debianPackage}: ${complaint}` } : { path: installed, built: true }
}

function apt(args) {
  const options = ['-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=600']
  const { status, stderr } = spawnSync('apt-get', [...options, ...args], {
    encoding: 'utf8',
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    maxBuffer: 64 * 1024 * 1024,
  })
  return { ok: status === 0, complaint: stderr?.trim().split('\n').at(-1) ?? 'apt-get failed' }
}
