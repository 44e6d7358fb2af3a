import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { makeDevHome, type DevHome } from './harness/dev-home.ts'

const checkout = resolve(import.meta.dirname, '../../..')

/** Runs `npm start` like a person, in its own process group. */
function npmStart(home: DevHome): ChildProcess {
  const env = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', ...home.env, TAPROOT_DATA_DIR: join(home.cwd, 'data') }
  const child = spawn('npm', ['start'], { cwd: checkout, env, stdio: 'ignore', detached: true })
  onTestFinished(() => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
    } catch (error) {
      // The whole group has ended, as the test expects.
      if (!(error instanceof Error) || !('code' in error) || error.code !== 'ESRCH') throw error
    }
  })
  return child
}

async function answers(home: DevHome): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${home.opsPort}/readyz`)).ok
  } catch {
    return false
  }
}

async function until(condition: () => Promise<boolean>, withinMs: number): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('not in time')
    await delay(50)
  }
}

test.each(['SIGTERM', 'SIGKILL'] as const)('%s to the npm process alone leaves no server behind, and the next npm start runs', async (signal) => {
  const home = await makeDevHome()
  const first = npmStart(home)
  await until(() => answers(home), 60_000)
  const ended = once(first, 'exit')
  first.kill(signal)
  await ended
  const second = npmStart(home)
  const secondEnded = once(second, 'exit')
  await until(async () => !(await answers(home)), 10_000)
  await until(() => answers(home), 60_000)
  second.kill('SIGTERM')
  await secondEnded
  await until(async () => !(await answers(home)), 10_000)
  expect(await answers(home)).toBe(false)
})
