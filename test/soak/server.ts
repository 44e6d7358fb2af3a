/**
 * The process under test: a whole server whose clock runs faster, so that a day's entries are trimmed within minutes. Forked by main.ts; argument: how many times faster. Questions come as messages.
 */
import type { Clock } from '../../src/base/runtime.ts'
import { idempotencyHourPrefix } from '../../src/engine/idempotency.ts'
import { outboxPrefix, outboxTimeMs } from '../../src/engine/log/outbox-keys.ts'
import { cascadePrefix } from '../../src/store/keys.ts'
import { fillHistory } from '../support/fill-history.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { answerQuestions, chosenSettings } from '../support/parts/asked-process.ts'
import { memoryInUse } from '../support/parts/memory-in-use.ts'
import type { KeysAnswer, Question, Started } from './protocol.ts'

const hourMs = 3_600_000
const speed = Number(process.argv[2] ?? '1')
const startedAt = Date.now()
const clock: Clock = { now: () => startedAt + (Date.now() - startedAt) * speed }

/** The number of keys of a range, and the first key. */
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
  const cascades = await countKeys(server, cascadePrefix)
  const records = await countKeys(server, 'r/')
  return {
    outbox: outbox.count,
    oldestOutboxHours: outbox.first === undefined ? 0 : (clock.now() - outboxTimeMs(outbox.first)) / hourMs,
    idempotency: idempotency.count,
    oldestIdempotencyHours: idempotencyHour === undefined ? 0 : clock.now() / hourMs - Number.parseInt(idempotencyHour, 16),
    cascades: cascades.count,
    records: records.count,
  }
}

async function answer(server: TestServer, question: Exclude<Question, { ask: 'stop' }>): Promise<unknown> {
  switch (question.ask) {
    case 'memory':
      // The harness keeps every line.
      server.logs.length = 0
      return await memoryInUse()
    case 'keys':
      return await keysOf(server)
    case 'sign-in-token':
      return await server.devIssuer.mintDevToken({ subject: question.subject, audience: server.config.baseUrl })
    case 'operator-token':
      return await server.operatorToken()
  }
}

const env = chosenSettings()
const server = await startTestServer({ clock, env, ...(env['TAPROOT_DATA_DIR'] === undefined ? {} : { dataDir: env['TAPROOT_DATA_DIR'] }) })
await fillHistory(server)
const { config } = server
const started: Started = { apiPort: config.api.port, opsPort: config.ops.port, baseUrl: config.baseUrl }
answerQuestions<Question>(started, { answer: (question) => answer(server, question), stop: () => server.stop() })
