import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * Below the ports that systems give to outgoing connections (Linux from 32768 on, others from 49152 on).
 * So a connection of another test can't take a port between the check that it is free and the start of its server.
 */
const range = { first: 15_000, end: 32_000 }
const claims = join(tmpdir(), 'taproot-test-ports')

/** `count` distinct unused TCP ports of 127.0.0.1, reserved for this process until its end. */
export async function freePorts(count: number): Promise<number[]> {
  mkdirSync(claims, { recursive: true })
  const ports: number[] = []
  while (ports.length < count) {
    const port = randomInt(range.first, range.end)
    if (claim(port) && (await isFree(port))) ports.push(port)
  }
  return ports
}

/** True if no other running process has claimed the port. */
function claim(port: number): boolean {
  const file = join(claims, String(port))
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    // A claim of an ended process is removed.
    if (!isRunning(holderOf(file))) rmSync(file, { force: true })
    return false
  }
}

function holderOf(file: string): number {
  try {
    return Number(readFileSync(file, 'utf8'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0
    throw error
  }
}

function isRunning(pid: number): boolean {
  try {
    return pid === 0 || process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening')
  } catch (error) {
    if (['EADDRINUSE', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
    throw error
  }
  await once(server.close(), 'close')
  return true
}
