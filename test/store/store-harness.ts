import { setTimeout as delay } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import type { Log } from '../../src/base/log.ts'
import type { ChangeBatch, Committed, Conflict, Revision, Store, StoreErrorKind, Write } from '../../src/store/store.ts'
import { StoreError } from '../../src/store/store.ts'

/** An empty key space of a real store for the contract suite. */
export interface StoreUnderTest {
  readonly store: Store
  /** The view of another process of the same store; the same object if only one process may open the store. */
  peer(): Store
  /** Closes `store` and opens it again. */
  reopen(): Promise<Store>
  /** Discards all revisions before the newest commit. */
  forgetHistory(): Promise<void>
}

/** Maximum wait of a test, in milliseconds. */
export const timeoutMs = 60_000

/** A signal that ends hanging calls of the test. */
export function soon(): AbortSignal {
  return AbortSignal.timeout(timeoutMs)
}

/** Discards the warnings and errors that injected faults cause. */
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

/** Returns the revision of a commit; throws on a conflict. */
export function committed(outcome: Committed | Conflict): Revision {
  if (!outcome.committed) throw new Error('the transaction conflicted')
  return outcome.revision
}

/** The kind of StoreError that `work` fails with; throws if it fails otherwise or succeeds. */
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

/** The changes that a running watch has delivered. */
export interface WatchRecord {
  readonly batches: ChangeBatch[]
  /** Rejects with the error that ended the watch. */
  readonly ended: Promise<never>
  /** `key=value@revision` for each change, a deletion without `=value`. */
  lines(): string[]
  /** Resolves after a batch of at least `revision`; rejects when the watch ends. */
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
