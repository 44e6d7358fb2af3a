import { parentPort } from 'node:worker_threads'
import { readmeError } from './readme-error.ts'

/** What the thread answers for one readme: the processor time at which it begins, in milliseconds, then the fault. */
export type ReadmeAnswer = { readonly beganAtMs: number } | { readonly error: string | undefined; readonly endedAtMs: number }

/** Processor time of this thread so far, in milliseconds. */
function spentMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

function answer(message: ReadmeAnswer): void {
  parentPort?.postMessage(message)
}

/** A thread of its own for readmes: it gets their content, one at a time, from a ReadmeThread. */
parentPort?.on('message', (content: string) => {
  answer({ beganAtMs: spentMs() })
  const error = readmeError(content)
  answer({ error, endedAtMs: spentMs() })
})
