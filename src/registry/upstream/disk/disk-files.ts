import { mkdir, open, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { UpstreamError, type UpstreamErrorKind } from '../upstream.ts'

/** Kinds of upstream error by system error code; all others are `unavailable`. */
const kinds: Readonly<Record<string, UpstreamErrorKind>> = {
  ENOSPC: 'exhausted',
  EDQUOT: 'exhausted',
  EFBIG: 'exhausted',
  EROFS: 'refused',
  EACCES: 'refused',
  EPERM: 'refused',
}

/** Returns the system's code of an error, such as `ENOENT`. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}

/** Converts an error of the file system into an UpstreamError. */
export function diskError(error: unknown): UpstreamError {
  if (error instanceof UpstreamError) return error
  const code = codeOf(error)
  const kind = kinds[code ?? ''] ?? 'unavailable'
  return new UpstreamError(kind, `the disk of the embedded upstream ${kind === 'exhausted' ? 'is full' : 'failed'}: ${code ?? 'unknown error'}`, error)
}

/** Resolves with the result of `work`, or with undefined if the file does not exist. */
export async function ifThere<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** Flushes the names in a directory to the disk. */
export async function syncDirectory(directory: string): Promise<void> {
  // Windows flushes names by itself, and cannot open directories.
  if (process.platform === 'win32') return
  const handle = await open(directory, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Creates a directory and its parents, and flushes them to the disk. */
export async function makeDirectory(directory: string): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = directory; made.length >= first.length; made = dirname(made)) await syncDirectory(dirname(made))
}

/** Writes a new file. Its bytes are on the disk when this resolves. If writing fails, removes the file. */
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

/** Removes a file if it was last changed at `beforeMs` (milliseconds since 1970) or earlier. Resolves with true if it was removed. */
export async function removeOlder(file: string, beforeMs: number): Promise<boolean> {
  const found = await ifThere(stat(file))
  if (found === undefined || found.mtimeMs > beforeMs) return false
  await rm(file, { force: true })
  return true
}
