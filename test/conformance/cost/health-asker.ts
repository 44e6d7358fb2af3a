/** Polls the health of a server from its own thread, so that the test itself does not delay it. Started by health.test.ts. */
import { Agent, request } from 'node:http'
import { parentPort, workerData } from 'node:worker_threads'

/** The results so far, sent after each answer. */
export interface Health {
  readonly answers: number
  /** Answers that were not 200, and failed requests. */
  readonly bad: number
  /** Wall-clock time in milliseconds. */
  readonly slowestMs: number
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 })
// The test that starts it passes the addresses.
const { port } = workerData as { readonly port: number }
let health: Health = { answers: 0, bad: 0, slowestMs: 0 }

function askOnce(): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const asked = request({ port, host: '127.0.0.1', path: '/healthz', agent }, (answer) => {
    answer.resume()
    answer.once('end', () => resolve(answer.statusCode === 200))
  })
  asked.once('error', () => resolve(false))
  asked.end()
  return promise
}

let isStopped = false
parentPort?.on('message', () => {
  isStopped = true
  agent.destroy()
  parentPort?.close()
})
while (!isStopped) {
  const startedMs = performance.now()
  const isWell = await askOnce()
  if (isStopped) break
  health = {
    answers: health.answers + 1,
    bad: health.bad + Number(!isWell),
    slowestMs: Math.max(health.slowestMs, performance.now() - startedMs),
  }
  parentPort?.postMessage(health)
  // A pause, so that polling is not itself a load.
  await new Promise((resolve) => setTimeout(resolve, 10))
}
