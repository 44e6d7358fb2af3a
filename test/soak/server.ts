/**
 * The process under test: a whole server whose clock runs faster, so that a day's entries are trimmed within minutes. Forked by main.ts with --expose-gc;
 * argument: how many times faster. Questions come as messages.
 */
import type { Clock } from '../../src/core/runtime.ts'
import { idempotencyHourPrefix } from '../../src/resources/idempotency.ts'
import { outboxPrefix, outboxTimeMs } from '../../src/resources/outbox.ts'
import { sweepPrefix } from '../../src/store/keys.ts'
import { startTestServer, type TestServer } from '../harness/test-server.ts'
import type { KeysAnswer, MemoryAnswer, Question, Started } from './protocol.ts'

const hourMs = 3_600_000
const speed = Number(process.argv[2] ?? '1')
const startedAt = Date.now()
const clock: Clock = { now: () => startedAt + (Date.now() - startedAt) * speed }

/** The keys of a range, counted, and the first of them. */
async function countKeys({ running }: TestServer, prefix: string): Promise<{ count: number; first: string | undefined }> {
  const { store } = running.engine
  let count = 0
  let first: string | undefined
  let after: string | undefined
  for (;;) {
    const page = await store.range({ prefix, limit: 500, ...(after === undefined ? {} : { after }) }, AbortSignal.timeout(30_000))
    first ??= page.entries[0]?.key
    count += page.entries.length
    after = page.entries.at(-1)?.key
    if (!page.more || after === undefined) return { count, first }
  }
}

async function keysOf(server: TestServer): Promise<KeysAnswer> {
  const outbox = await countKeys(server, outboxPrefix)
  const idempotency = await countKeys(server, idempotencyHourPrefix)
  const idempotencyHour = idempotency.first?.slice(idempotencyHourPrefix.length).split('/')[0]
  const sweeps = await countKeys(server, sweepPrefix)
  const records = await countKeys(server, 'r/')
  return {
    outbox: outbox.count,
    oldestOutboxHours: outbox.first === undefined ? 0 : (clock.now() - outboxTimeMs(outbox.first)) / hourMs,
    idempotency: idempotency.count,
    oldestIdempotencyHours: idempotencyHour === undefined ? 0 : clock.now() / hourMs - Number.parseInt(idempotencyHour, 16),
    sweeps: sweeps.count,
    records: records.count,
  }
}

function memory(server: TestServer): MemoryAnswer {
  // The harness keeps every line.
  server.logs.length = 0
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  return { heap: heapUsed, external }
}

/** The embedded store keeps 32 MiB of recent commits: fills that, with commits of the usual sort, so that it does not look like growth. */
async function fillHistory({ running }: TestServer): Promise<void> {
  const value = new Uint8Array(500)
  const writes = Array.from({ length: 100 }, (_, index) => ({ kind: 'put', key: `x/soak/${String(index).padStart(60, '0')}`, value }) as const)
  for (let count = 0; count < 300; count += 1) await running.engine.store.transact({ guards: [], writes }, AbortSignal.timeout(30_000))
}

async function answer(server: TestServer, question: Question): Promise<unknown> {
  switch (question.ask) {
    case 'memory':
      return memory(server)
    case 'keys':
      return await keysOf(server)
    case 'sign-in-token':
      return await server.devIssuer.mintDevToken({ subject: question.subject, audience: server.config.baseUrl })
    case 'operator-token':
      return await server.operatorToken()
    case 'stop':
      await server.stop()
      process.disconnect?.()
      return undefined
  }
}

// What the parent set for it, and nothing else.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith('TAPROOT_'))) as Record<string, string>
const server = await startTestServer({ clock, env, ...(env['TAPROOT_DATA_DIR'] === undefined ? {} : { dataDir: env['TAPROOT_DATA_DIR'] }) })
if (server.config.store.kind === 'sqlite') await fillHistory(server)
// Whoever asked is gone.
process.on('disconnect', () => process.exit(0))
process.on('message', ({ id, question }: { id: number; question: Question }) => {
  const reply = (message: object): void => void (process.connected && process.send?.(message))
  answer(server, question).then(
    (value) => reply({ id, value }),
    (error: unknown) => reply({ id, error: String(error) }),
  )
})
const { config } = server
const started: Started = { apiPort: config.api.port, opsPort: config.ops.port, baseUrl: config.baseUrl }
process.send?.({ started })
