// A lock file between processes. Plain JavaScript for Node 20, without packages.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { pid } from 'node:process'

const pollMs = 200
const timeoutMs = 30 * 60_000

/**
 * Runs `work` while this process holds the lock file. Ignores the lock of a process that has ended. Blocks. Returns `{ reason }` if it has
 * to wait too long.
 */
export function withLock(file, work) {
  const deadline = Date.now() + timeoutMs
  while (!tryLock(file)) {
    if (Date.now() > deadline) return { reason: `another process has been building it for too long (${file})` }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pollMs)
  }
  try {
    return work()
  } finally {
    rmSync(file, { force: true })
  }
}

function tryLock(file) {
  try {
    writeFileSync(file, String(pid), { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
    removeIfAbandoned(file)
    return false
  }
}

function removeIfAbandoned(file) {
  try {
    const holder = Number(readFileSync(file, 'utf8'))
    if (holder > 0 && !isRunning(holder)) rmSync(file, { force: true })
  } catch (error) {
    // The holder released the lock between the two calls.
    if (error.code !== 'ENOENT') throw error
  }
}

function isRunning(processId) {
  try {
    process.kill(processId, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}
