import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { kill, platform } from 'node:process'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'

const timeoutMs = 10_000

/**
 * Pauses a process, and resolves when each of its threads stands still. `kill` alone returns before that: on a busy machine some threads run on for a while.
 * Rejects if they do not stop within 10 s, or the process ends. `kill(pid, 'SIGCONT')` resumes it.
 */
export async function pauseProcess(pid: number | undefined): Promise<void> {
  if (pid === undefined) throw new Error('there is no process to pause')
  kill(pid, 'SIGSTOP')
  const deadline = performance.now() + timeoutMs
  while (!(await threadStates(pid)).every((state) => state.toUpperCase() === 'T')) {
    if (performance.now() > deadline) throw new Error(`process ${pid} goes on although it was paused`)
    await delay(2)
  }
}

/** One state letter each, as in ps(1); without /proc the state of the process. */
async function threadStates(pid: number): Promise<string[]> {
  if (platform !== 'linux') return [(await promisify(execFile)('ps', ['-o', 'state=', '-p', String(pid)])).stdout.trim().charAt(0)]
  const states: string[] = []
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const status = await readFile(`/proc/${pid}/task/${thread}/stat`, 'utf8').catch(() => undefined)
    // After the name, which is in parentheses and may contain some; a thread may have ended.
    if (status !== undefined) states.push(status.charAt(status.lastIndexOf(')') + 2))
  }
  return states
}
