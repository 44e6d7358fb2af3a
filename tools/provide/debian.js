// Programs that a Debian package brings. Plain JavaScript for Node 20, no packages.
import { spawnSync } from 'node:child_process'
import { getuid, stdout } from 'node:process'
import { findInstalled } from './program.js'

/** Installs the package with apt, where this process is root and there is an apt, unless the program is there. Returns `{ path, built }` or `{ reason }`. */
export function provideByDebian(name, { debianPackage, program = name, directories = [] }) {
  const path = findInstalled(program, directories)
  if (path !== undefined) return { path, built: false }
  if (getuid?.() !== 0 || spawnSync('apt-get', ['--version']).status !== 0) {
    return { reason: `${name} is not installed, and there is no root with apt to install the package ${debianPackage}` }
  }
  stdout.write(`installing ${debianPackage} ...\n`)
  // The lists of a fresh machine may be empty or old: they are renewed only where it does not go without.
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
