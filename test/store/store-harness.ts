import { setTimeout as delay } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import type { Log } from '../../src/base/log.ts'
import type { ChangeBatch, Committed, Conflict, Revision, Store, StoreErrorKind, Write } from '../../src/store/store.ts'
import { StoreError } from '../../src/store/store.ts'

/** One empty key space of a real store, as the contract suite sees it. */
export interface StoreUnderTest {
  readonly store: Store
  /** Another process's view of the same store; the same one where only one process may have it. */
  peer(): Store
  /** Closes `store` and opens it again. */
  reopen(): Promise<Store>
  /** Makes everything before the newest commit unreadable. */
  forgetHistory(): Promise<void>
}

/** How long a test waits for what must happen. */
export const timeoutMs = 15_000

/** A signal that fails the test's calls when they hang. */
export function soon(): AbortSignal {
  return AbortSignal.timeout(timeoutMs)
}

/** Warnings and errors of adapters are expected where faults are made. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} }

/** `text` as bytes. */
export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

/** Bytes as text; undefined stays. */
export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined ? undefined : new TextDecoder().decode(value)
}

/** A write of `value` to `key`. */
export function put(key: string, value: string | Uint8Array = ''): Write {
  return { kind: 'put', key, value: typeof value === 'string' ? bytes(value) : value }
}

/** The removal of `key`. */
export function remove(key: string): Write {
  return { kind: 'delete', key }
}

/** Commits `writes` without guards and returns the revision. */
export async function commit(store: Store, ...writes: Write[]): Promise<Revision> {
  return committed(await store.transact({ guards: [], writes }, soon()))
}

/** The revision of an outcome that must be a commit. */
export function committed(outcome: Committed | Conflict): Revision {
  if (!outcome.committed) throw new Error('the transaction conflicted')
  return outcome.revision
}

/** The kind of StoreError that `work` fails with; throws where it does not fail so. */
export async function failureOf(work: Promise<unknown>): Promise<StoreErrorKind> {
  try {
    await work
  } catch (error) {
    if (error instanceof StoreError) return error.kind
    throw error
  }
  throw new Error('it did not fail')
}

/** Polls `condition` until it holds; throws after `timeoutMs`. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('the condition did not come to hold')
    await delay(10)
  }
}

/** What a running watch has delivered so far. */
export interface WatchRecord {
  readonly batches: ChangeBatch[]
  /** Rejects with what the watch ended by. */
  readonly ended: Promise<never>
  /** `key=value@revision` for each change, a deletion without `=value`. */
  lines(): string[]
  /** Resolves when a batch of at least `revision` came; rejects when the watch ends. */
  reached(revision: Revision): Promise<void>
}

/** Starts a watch that ends with the test, and records it. */
export function record(store: Store, prefixes: readonly string[], after: Revision, signal?: AbortSignal): WatchRecord {
  const stop = new AbortController()
  onTestFinished(() => stop.abort())
  const batches: ChangeBatch[] = []
  const ended = follow(store.watch(prefixes, after, signal ?? stop.signal), batches)
  let failed = false
  ended.catch(() => (failed = true))
  return {
    batches,
    ended,
    lines: () =>
      batches.flatMap((batch) => batch.changes.map(({ key, value, revision }) => `${key}${value === undefined ? '' : `=${text(value)}`}@${revision}`)),
    reached: async (revision) => {
      await until(() => failed || (batches.at(-1)?.revision ?? 0) >= revision)
      if (failed) await ended
    },
  }
}

async function follow(watch: AsyncIterable<ChangeBatch>, batches: ChangeBatch[]): Promise<never> {
  for await (const batch of watch) batches.push(batch)
  throw new Error('the watch ended without an error')
}
