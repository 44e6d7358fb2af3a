// Finds programs of the machine and of the cache. Plain JavaScript for Node 20, without packages.
import { accessSync, constants, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'
import { env, platform } from 'node:process'

/** File name suffix of programs on this system. */
export const suffix = platform === 'win32' ? '.exe' : ''

/** Folders of programs for administrators, which the path may lack. */
const systemDirectories = platform === 'win32' ? [] : ['/usr/sbin', '/sbin']

/**
 * Returns the program with that name: on the path, among envtest's binaries, or in one of the `more` folders. Returns undefined if
 * it is absent.
 */
export function findInstalled(name, more = []) {
  const directories = [...(env.PATH ?? '').split(delimiter), env.KUBEBUILDER_ASSETS ?? '', ...systemDirectories, ...more]
  return directories
    .filter((directory) => directory !== '')
    .map((directory) => join(directory, name + suffix))
    .find(isProgram)
}

/** Returns true for an executable file. */
export function isProgram(path) {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/** Returns the folder of built programs, outside the checkout. */
export function cacheDirectory() {
  return env.TAPROOT_PARTS_DIR || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'taproot', 'parts')
}

/** Returns the folder that pins the source of a part. */
export function sourceDirectory(folder) {
  return join(import.meta.dirname, '..', 'parts', folder)
}
