import { randomBytes } from 'node:crypto'
import { link, open, readFile, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

/** Reads the file's content. Returns undefined if the file does not exist. Rejects with the file system's other errors. */
export async function readSecretFile(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path)
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined
    throw error
  }
}

/**
 * Creates a file that only its owner can read, atomically and durably: its content is on disk before the caller can use it. If several callers create it at
 * once, one of them succeeds. Returns the content of the file that was created. The folder must exist.
 */
export async function makeSecretFile(path: string, content: string): Promise<Buffer> {
  const fresh = `${path}.${randomBytes(6).toString('hex')}`
  try {
    await writeDurably(fresh, content)
    await link(fresh, path)
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error
  } finally {
    await rm(fresh, { force: true })
  }
  await syncDirectory(dirname(path))
  return await readFile(path)
}

async function writeDurably(path: string, content: string): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(content)
    await file.sync()
  } finally {
    await file.close()
  }
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
