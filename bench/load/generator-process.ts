/** A load generator in a separate process. The first message to it is a Load; each further one is the length of a round in milliseconds. */
import { createEtcdGenerator, createSqliteGenerator } from './bare-store-generators.ts'
import { createGrpcGenerator } from './grpc-generator.ts'
import { Histogram } from './histogram.ts'
import { createHttpGenerator } from './http-generator.ts'
import type { Generator, Load, RoundCounts } from './load.ts'
import { createPostGenerator } from './post-generator.ts'
import { createPushGenerator } from './push-generator.ts'
import { createSignGenerator } from './sign-generator.ts'

let generator: Generator | undefined

async function create(load: Load): Promise<Generator> {
  switch (load.kind) {
    case 'http':
      return createHttpGenerator(load)
    case 'grpc':
      return createGrpcGenerator(load)
    case 'etcd':
      return createEtcdGenerator(load)
    case 'sqlite':
      return createSqliteGenerator(load)
    case 'push':
      return createPushGenerator(load)
    case 'post':
      return createPostGenerator(load)
    case 'sign':
      return createSignGenerator(load)
  }
}

async function round(milliseconds: number): Promise<RoundCounts> {
  if (generator === undefined) throw new Error('the first message must be a load')
  const latencies = new Map<string, Histogram>()
  let requests = 0
  let errors = 0
  let bodyBytes = 0
  let firstError: string | undefined
  await generator.prepare?.()
  const cpu = process.cpuUsage()
  const start = performance.now()
  await generator.round(milliseconds, {
    answered(requestClass, taken, bytes) {
      requests++
      bodyBytes += bytes
      let histogram = latencies.get(requestClass)
      if (histogram === undefined) latencies.set(requestClass, (histogram = new Histogram()))
      histogram.add(taken)
    },
    failed(what) {
      errors++
      firstError ??= what
    },
  })
  const seconds = (performance.now() - start) / 1000
  const { user, system } = process.cpuUsage(cpu)
  const counts = Object.fromEntries([...latencies].map(([name, histogram]) => [name, histogram.counts]))
  return { requests, errors, firstError, seconds, latencies: counts, cpuMicros: user + system, bodyBytes }
}

async function handle(message: Load | number): Promise<unknown> {
  if (typeof message === 'number') return { counts: await round(message) }
  generator = await create(message)
  return { ready: true }
}

process.on('message', (message: Load | number) => {
  handle(message).then(
    (answer) => process.send?.(answer),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
process.on('disconnect', () => {
  generator?.close()
  process.exit()
})
