import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Child } from './child.ts'

async function program(script: string): Promise<Child> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-child-'))
  const child = new Child({ command: [process.execPath, '-e', script], cwd: directory, logFile: join(directory, 'log') })
  onTestFinished(async () => {
    await child.kill()
    await rm(directory, { recursive: true })
  })
  child.start()
  return child
}

/** Returns whether a process has ended without its parent having been informed. */
function isZombie(pid: number): boolean {
  return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
}

const forever = 'setInterval(() => undefined, 1000)'

test('a program that the test killed does not count as died', async () => {
  const child = await program(forever)
  await child.kill()
  expect(child.died).toBe(false)
})

test.each([
  ['an exception', 'throw new Error("x")'],
  ['an exit with code 0', ''],
  ['a signal', 'process.kill(process.pid, "SIGTERM")'],
])('a program that ended by %s counts as died, also after it was restarted', async (_, script) => {
  const child = await program(script)
  await vi.waitUntil(() => !child.running)
  child.start({ command: [process.execPath, '-e', forever] })
  expect(child.running).toBe(true)
  expect(child.died).toBe(true)
})

test('a program that ended by itself just when it was to be killed counts as died', async () => {
  const child = await program('process.exit(1)')
  const { pid = 0 } = child
  // The process ended, but this process has not been informed, because no callback runs in between.
  while (!isZombie(pid));
  await child.kill()
  expect(child.died).toBe(true)
})
