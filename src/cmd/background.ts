import type { Log } from '../core/log.ts'
import { idempotencyHour, idempotencyHourOf, idempotencyHourPrefix, idempotencyKey, idempotencyLifeMs } from '../resources/idempotency.ts'
import { outboxKey, outboxPrefix } from '../resources/outbox.ts'
import { sweepPrefix } from '../store/keys.ts'
import type { Store, Transaction, Write } from '../store/store.ts'
import type { Engine } from './engine.ts'

/** How often keys are looked after and old entries trimmed, in milliseconds. */
const maintainEveryMs = 10 * 60_000
/** Outbox entries are kept this long, in milliseconds (architecture 9). */
const outboxLifeMs = 72 * 3_600_000
const trimBatch = 50
/** How long a process that stops waits for its resignation, in milliseconds: where the store is gone its lease has to run out anyway. */
const resignPatienceMs = 1_000
/** By then every store has let go of a leadership that was given up, in milliseconds. */
const leaseLifeMs = 15_000

/** Waits until `signal` aborts, `ms` pass, or `wake` resolves. */
async function idle(ms: number, wake: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  const stop = (): void => resolve()
  const timer = setTimeout(resolve, ms)
  signal.addEventListener('abort', stop, { once: true })
  await Promise.race([promise, wake])
  clearTimeout(timer)
  signal.removeEventListener('abort', stop)
}

/** The writes that forget what was remembered under one hour's entry; a key that was used again later is that later hour's to forget. */
async function forget(store: Store, hourKey: string, signal: AbortSignal): Promise<Transaction> {
  const [hour = '', hash = ''] = hourKey.slice(idempotencyHourPrefix.length).split('/')
  const held = await store.get(idempotencyKey(hash), signal)
  const writes: Write[] = [{ kind: 'delete', key: hourKey }]
  if (held === undefined || idempotencyHourOf(held.value) !== hour) return { guards: [], writes }
  return { guards: [{ kind: 'unchanged', key: held.key, revision: held.revision }], writes: [...writes, { kind: 'delete', key: held.key }] }
}

/** Forgets idempotency keys whose hour is over. */
export async function trimIdempotency(store: Store, nowMs: number, signal: AbortSignal): Promise<void> {
  const end = `${idempotencyHourPrefix}${idempotencyHour(nowMs - idempotencyLifeMs - 3_600_000)}`
  for (;;) {
    const { entries } = await store.range({ prefix: idempotencyHourPrefix, limit: trimBatch }, signal)
    const old = entries.filter((entry) => entry.key < end)
    if (old.length === 0) return
    for (const entry of old) await store.transact(await forget(store, entry.key, signal), signal)
  }
}

/** Deletes outbox entries that are older than they are kept. */
async function trimOutbox(store: Store, nowMs: number, signal: AbortSignal): Promise<void> {
  const end = outboxKey(nowMs - outboxLifeMs, '')
  for (;;) {
    const { entries } = await store.range({ prefix: outboxPrefix, limit: trimBatch }, signal)
    const old = entries.filter((entry) => entry.key < end)
    if (old.length === 0) return
    await store.transact({ guards: [], writes: old.map(({ key }) => ({ kind: 'delete', key })) }, signal)
  }
}

/** What the one leader does: sweeps as soon as marks appear, trims now and then. Ends when leadership is lost; throws what went wrong. */
async function lead(engine: Engine, signal: AbortSignal): Promise<void> {
  const { store, replica, services } = engine
  let woken = Promise.withResolvers<void>()
  const forgetKeys = replica.onKey((key) => {
    if (key.startsWith(sweepPrefix)) woken.resolve()
  })
  // A reload brings marks that no watch told of.
  const forgetResets = replica.onReset(() => woken.resolve())
  try {
    let trimmedAt = -Infinity
    while (!signal.aborted) {
      woken = Promise.withResolvers<void>()
      await services.sweeper.finish(signal)
      const now = services.clock.now()
      if (now - trimmedAt >= maintainEveryMs) {
        await trimIdempotency(store, now, signal)
        await trimOutbox(store, now, signal)
        trimmedAt = now
      }
      await idle(maintainEveryMs, woken.promise, signal)
    }
  } finally {
    forgetKeys()
    forgetResets()
  }
}

/** Runs `work` again and again until `signal` aborts; a failure is logged and waited out. */
async function keepDoing(name: string, log: Log, loop: { work: () => Promise<void>; signal: AbortSignal }): Promise<void> {
  const { signal } = loop
  while (!signal.aborted) {
    try {
      await loop.work()
    } catch (error) {
      if (signal.aborted) return
      log.warn('background work failed and is tried again', { work: name, error: String(error) })
      await idle(1_000, new Promise(() => undefined), signal)
    }
  }
}

/** Starts what runs beside requests: key rotation on every replica, sweeping and trimming on the leader. Resolves when `signal` has ended all of it. */
export async function runBackground(engine: Engine, signal: AbortSignal): Promise<void> {
  const { store, replica, services, signingKeys, pageKeys } = engine
  const { log } = services
  let changed = Promise.withResolvers<void>()
  replica.onKey((key) => {
    if (key.startsWith('meta/')) changed.resolve()
  })
  // A reload brings keys that no watch told of.
  replica.onReset(() => changed.resolve())
  const keys = async (): Promise<void> => {
    changed = Promise.withResolvers<void>()
    await signingKeys.maintain(signal)
    await pageKeys.maintain(signal)
    await idle(maintainEveryMs, changed.promise, signal)
  }
  const leader = async (): Promise<void> => {
    const leadership = await store.elect('leader', signal)
    try {
      await lead(engine, AbortSignal.any([signal, leadership.lost]))
    } finally {
      const resigned = leadership.resign()
      // A store that is gone lets go only when the lease runs out: that is worth waiting for, but not once the process stops.
      await idle(leaseLifeMs, resigned, signal)
      if (signal.aborted) await idle(resignPatienceMs, resigned, new AbortController().signal)
    }
  }
  await Promise.all([keepDoing('keys', log, { work: keys, signal }), keepDoing('leader', log, { work: leader, signal })])
}
