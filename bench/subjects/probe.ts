/**
 * Loaded into a server before its own code (`--import`). Answers questions about the process over its message channel, which does not keep
 * the process alive. `memory` runs the garbage collector first; `profile` and `profiled` start and end a processor profile.
 */
import { Session } from 'node:inspector/promises'

const session = new Session()

async function answer(question: string): Promise<unknown> {
  if (question === 'memory') {
    // `gc` exists, because the server is started with --expose-gc.
    for (let run = 0; run < 3; run++) globalThis.gc?.()
    return process.memoryUsage()
  }
  if (question === 'profile') {
    session.connect()
    await session.post('Profiler.enable')
    await session.post('Profiler.setSamplingInterval', { interval: 200 })
    await session.post('Profiler.start')
    return true
  }
  const { profile } = await session.post('Profiler.stop')
  session.disconnect()
  return profile
}

process.on('message', (question: string) => {
  answer(question).then(
    (value) => process.send?.({ value }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
// If the benchmark is killed, the server ends too.
process.on('disconnect', () => process.exit())
process.channel?.unref()
