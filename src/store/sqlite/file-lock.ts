import { DatabaseSync } from 'node:sqlite'

/** SQLite's code for a file that another connection has locked. */
const busy = 5

/**
 * Locks a file for this process, and creates it if it does not exist. Returns a function that releases the lock; undefined if another process has it. The
 * operating system releases the lock of a process that was killed. Throws an error of SQLite if the file cannot be written.
 */
export function lockFile(path: string): (() => void) | undefined {
  const lock = new DatabaseSync(path)
  try {
    lock.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    lock.close()
    if (error instanceof Error && 'errcode' in error && error.errcode === busy) return undefined
    throw error
  }
  return () => lock.close()
}
