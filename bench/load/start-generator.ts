import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Load, RoundCounts } from './load.ts'

/** A load generator in a separate process, with open connections. */
export interface GeneratorProcess {
  readonly pid: number
  /** Sends requests for this time. Resolves after the last response. */
  round(milliseconds: number): Promise<RoundCounts>
  close(): Promise<void>
}

type Answer = { readonly ready: true } | { readonly counts: RoundCounts } | { readonly error: string }

async function ask(child: ChildProcess, message: Load | number): Promise<Answer> {
  const failed = new AbortController()
  const exited = once(child, 'exit', { signal: failed.signal }).then(
    ([code]): Answer => ({ error: `the load generator ended (${String(code)})` }),
    (): Answer => ({ error: 'the load generator was stopped' }),
  )
  child.send(message)
  // a cast: the process sends one Answer per message
  const [answer] = (await Promise.race([once(child, 'message'), exited.then((ended) => [ended])])) as [Answer]
  failed.abort()
  if ('error' in answer) throw new Error(answer.error)
  return answer
}

/** Starts a generator. Resolves when its connections are open. */
export async function startGenerator(load: Load): Promise<GeneratorProcess> {
  const child = fork(join(import.meta.dirname, 'generator-process.ts'), { execArgv: ['--disable-warning=ExperimentalWarning'] })
  await ask(child, load)
  return {
    pid: child.pid ?? 0,
    async round(milliseconds) {
      const answer = await ask(child, milliseconds)
      if (!('counts' in answer)) throw new Error('the load generator sent an unexpected answer')
      return answer.counts
    },
    async close() {
      const exited = once(child, 'exit')
      child.disconnect()
      await exited
    },
  }
}
