import { mkdir, open, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { UpstreamError, type UpstreamErrorKind } from '../upstream.ts'

/** What an error of the system means for the upstream; every other is `unavailable`. */
const kinds: Readonly<Record<string, UpstreamErrorKind>> = {
  ENOSPC: 'exhausted',
  EDQUOT: 'exhausted',
  EFBIG: 'exhausted',
  EROFS: 'refused',
  EACCES: 'refused',
  EPERM: 'refused',
}

/** The system's code of an error, as in `ENOENT`. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}

/** An error of the file system as the port has it. */
export function diskError(error: unknown): UpstreamError {
  if (error instanceof UpstreamError) return error
  const code = codeOf(error)
  return new UpstreamError(kinds[code ?? ''] ?? 'unavailable', `the disk of the embedded upstream: ${code ?? 'unknown error'}`, error)
}

/** What `work` resolves with, or undefined where the file is not there. */
export async function ifThere<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** Makes the names in a directory last. */
export async function syncDirectory(directory: string): Promise<void> {
  // Windows keeps them without being asked, and opens no directories.
  if (process.platform === 'win32') return
  const handle = await open(directory, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Makes a directory and those above it, durably. */
export async function makeDirectory(directory: string): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = directory; made.length >= first.length; made = dirname(made)) await syncDirectory(dirname(made))
}

/** Writes a new file, whose bytes are on the disk when this resolves. A file that could not be written is removed. */
export async function writeFlushed(path: string, parts: readonly Uint8Array[]): Promise<void> {
  try {
    const handle = await open(path, 'wx', 0o600)
    try {
      for (const part of parts) await handle.appendFile(part)
      await handle.sync()
    } finally {
      await handle.close()
    }
  } catch (error) {
    await rm(path, { force: true })
    throw error
  }
}

/** Removes a file that was last changed at `beforeMs` or earlier; true where it did. */
export async function removeOlder(file: string, beforeMs: number): Promise<boolean> {
  const found = await ifThere(stat(file))
  if (found === undefined || found.mtimeMs > beforeMs) return false
  await rm(file, { force: true })
  return true
}
