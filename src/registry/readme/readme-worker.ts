import { parentPort } from 'node:worker_threads'
import { readmeError } from './readme-error.ts'

/** Messages of the thread about one readme: first its processor time at the start, in milliseconds, then the fault. */
export type ReadmeAnswer = { readonly beganAtMs: number } | { readonly error: string | undefined; readonly endedAtMs: number }

/** Processor time of this thread so far, in milliseconds. */
function spentMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

function answer(message: ReadmeAnswer): void {
  parentPort?.postMessage(message)
}

/** Runs in a separate thread. Receives the content of readmes from a ReadmeThread, one at a time. */
parentPort?.on('message', (content: string) => {
  answer({ beganAtMs: spentMs() })
  const error = readmeError(content)
  answer({ error, endedAtMs: spentMs() })
})
