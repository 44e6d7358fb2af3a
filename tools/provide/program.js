// What a program is, and where those of the machine and of our cache are. Plain JavaScript for Node 20, no packages.
import { accessSync, constants, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'
import { env, platform } from 'node:process'

/** How names of programs end here. */
export const suffix = platform === 'win32' ? '.exe' : ''

/** Administrators' programs are there, also where the path leaves them out. */
const systemDirectories = platform === 'win32' ? [] : ['/usr/sbin', '/sbin']

/** The program of that name on the path, among envtest's binaries, or in one of the `more` directories; undefined if absent. */
export function findInstalled(name, more = []) {
  const directories = [...(env.PATH ?? '').split(delimiter), env.KUBEBUILDER_ASSETS ?? '', ...systemDirectories, ...more]
  return directories
    .filter((directory) => directory !== '')
    .map((directory) => join(directory, name + suffix))
    .find(isProgram)
}

/** True for a file that may be run. */
export function isProgram(path) {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/** Where what was built is kept, outside the checkout. */
export function cacheDirectory() {
  return env.TAPROOT_PARTS_DIR || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'taproot', 'parts')
}

/** The folder that pins a part's source. */
export function sourceDirectory(folder) {
  return join(import.meta.dirname, '..', 'parts', folder)
}
