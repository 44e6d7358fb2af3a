// Runs programs of the release. Plain JavaScript for Node 20, without packages.
import { spawnSync } from 'node:child_process'
import { ensurePart } from '../parts.js'

/** Runs a program and returns its output. Throws an error with its error output if it fails. */
export function run(program, args, options = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', maxBuffer: 256 * 1024 * 1024, ...options })
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed:\n${error?.message ?? `${stdout}${stderr}`}`)
  return stdout.trim()
}

/** Returns the path of a part. Throws if this machine can't provide it. */
export function part(name) {
  const found = ensurePart(name)
  if ('reason' in found) throw new Error(found.reason)
  return found.path
}
