import { setImmediate as turn } from 'node:timers/promises'
import { randomBytes } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { SetGroupLimitsRequestSchema, type Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { commit } from '../../src/engine/commit.ts'
import { groupKind } from '../../src/iam/records/groups.ts'
import { setGroupLimits } from '../../src/iam/records/organisation-verbs.ts'
import { Lanes } from '../../src/engine/quota/lane.ts'
import { recordOfBytes } from '../../src/cache/records/record-factory.ts'
import { slowness } from '../budgets.ts'
import { cpuTimeMs } from '../support/cpu-time.ts'
import { belowPrefix, parseRecordKey, recordKey, watchedPrefixes } from '../../src/store/keys.ts'
import { StoreError, storeRevision, type Change, type ChangeBatch, type Store, type Transaction } from '../../src/store/store.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { picker } from '../cache/records.ts'
import { group, laggingStore, proven, startProcess, twoStores, withOwn, type Process } from './quota-world.ts'

/** A random case: the limit, the pending creates of each process, the delays of the watches, and the actions. */
interface Shape {
  readonly limit: number
  readonly share: number
  /** Delay in turns of the event loop, for each process. */
  readonly lag: readonly [number, number]
  readonly seed: number
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  limit: fc.integer({ min: 4, max: 90 }),
  share: fc.integer({ min: 1, max: 8 }),
  lag: fc.tuple(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 0, max: 3 })),
  seed: fc.integer(),
})

describe('the pending creates of a process, by limit', () => {
  const [revision, next] = [storeRevision(7), storeRevision(8)]

  test('the pending creates of a process, by limit are forgotten once none is pending', () => {
    const lanes = new Lanes()
    const land = lanes.of('landed').start(1)
    const settle = lanes.of('unknown').start(1)
    lanes.of('idle')
    land(next, revision)
    settle('unknown', revision)
    lanes.tidy(['landed', 'unknown', 'idle'], revision)
    expect([lanes.find('landed')?.flying(revision), lanes.find('unknown')?.flying(revision), lanes.size]).toEqual([1, 1, 2])
    // Later calls check these too, one at a time.
    for (let look = 0; look < 3; look++) lanes.tidy([], next)
    expect([lanes.find('unknown')?.flying(next), lanes.size]).toEqual([1, 1])
    lanes.find('unknown')?.settleUnknown()?.()
    lanes.tidy([], next)
    expect(lanes.size).toBe(0)
  })

  test('the pending creates of a process, by limit cost a create the same, however many limits there are', () => {
    const lanes = new Lanes()
    const before = cpuTimeMs()
    for (let at = 0; at < 40_000; at++) {
      lanes.of(`key-${at}`).start(1)('unknown', revision)
      lanes.tidy([`key-${at}`], revision)
    }
    const spentMs = cpuTimeMs() - before
    expect(lanes.size).toBe(40_000)
    // Checking all of them each time would take some seconds.
    expect(spentMs).toBeLessThan(1_200 * slowness())
  })
})

/** Creates one more group in the organisation, like any change. */
function makeOne({ services, context }: Process, root: Uid): Promise<undefined> {
  return commit(services, context, () => {
    const changes = new ChangeSet()
    changes.guard({ kind: 'exists', key: recordKey('Group', root) })
    group(changes, trustedUid(`${root}/${randomBytes(8).toString('hex')}`))
    return { changes: proven(changes), result: undefined }
  })
}

function removeOne({ services, context }: Process, root: Uid): Promise<undefined> {
  return commit(services, context, ({ tables }) => {
    const changes = new ChangeSet()
    const [record] = tables.table('Group').matching('parent', root)
    if (record !== undefined) changes.remove(groupKind, record)
    return { changes: proven(changes), result: undefined }
  })
}

async function setLimit({ services, context }: Process, root: Uid, groups: number): Promise<void> {
  await setGroupLimits(services, context, create(SetGroupLimitsRequestSchema, { uid: root, resourceLimits: { groups } }))
}

/** Follows the store itself: the number of groups, the limit, and each commit that exceeded it. */
class Observer {
  count = 0
  limit = Number.POSITIVE_INFINITY
  revision = 0
  readonly breaches: string[] = []
  readonly #root: Uid
  readonly #there = new Set<string>()

  constructor(root: Uid) {
    this.#root = root
  }

  see({ changes, revision: upTo }: ChangeBatch): void {
    const byRevision = Map.groupBy(changes, ({ revision }) => revision)
    for (const [revision, commits] of byRevision) this.#commit(revision, commits)
    this.revision = upTo
  }

  #commit(revision: number, changes: readonly Change[]): void {
    const before = this.#there.size
    for (const { key, value } of changes) {
      if (!key.startsWith(recordKey('Group', this.#root))) continue
      if (value === undefined) this.#there.delete(key)
      else this.#there.add(key)
      const { uid } = parseRecordKey(key)
      if (uid !== this.#root || value === undefined) continue
      const { message } = recordOfBytes(groupKind.index, { uid, bytes: value, revision: revision as never })
      this.limit = (message as unknown as Group).resourceLimits['groups'] ?? Number.POSITIVE_INFINITY
    }
    this.count = this.#there.size
    if (this.count > before && this.count > this.limit) this.breaches.push(`${revision}: ${this.count} of ${this.limit}`)
  }
}

/** Returns the reason of a refused create. */
async function refusal(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work
    return undefined
  } catch (error) {
    if (error instanceof DomainError) return error.reason
    throw error
  }
}

/** Runs the case over two processes. Returns the observations of the store. */
async function play(stores: readonly [Store, Store], shape: Shape): Promise<{ observer: Observer; refusals: Set<string | undefined> }> {
  const root = trustedUid(randomBytes(20).toString('hex'))
  const pick = picker(shape.seed)
  const changes = new ChangeSet()
  group(changes, root)
  const outcome = await stores[0].transact(changes, AbortSignal.timeout(60_000))
  if (!outcome.committed) throw new Error('the organisation was not made')
  const observer = new Observer(root)
  const end = new AbortController()
  const revisionBefore = (outcome.revision - 1) as typeof outcome.revision
  const watching = (async () => {
    for await (const batch of stores[0].watch(watchedPrefixes, revisionBefore, end.signal)) observer.see(batch)
  })()
  const started = await Promise.all(
    stores.map((store, at) => startProcess(laggingStore(store, shape.lag[at] ?? 0, pick), { share: shape.share, processes: stores.length })),
  )
  const [first, second] = started as [Process, Process] // one for each store
  const at = (): Process => (pick(2) === 0 ? first : second)
  await setLimit(at(), root, shape.limit)
  const refusals = new Set<string | undefined>()
  const client = async (): Promise<void> => {
    for (let step = 0; step < 14; step++) {
      const what = pick(20)
      if (what === 0) await refusal(setLimit(at(), root, Math.max(1, shape.limit - pick(10) + 3)))
      else if (what < 4) refusals.add(await refusal(removeOne(at(), root)))
      else refusals.add(await refusal(makeOne(at(), root)))
    }
  }
  await Promise.all(Array.from({ length: 16 }, client))
  // Whatever happened before, finally as many fit as the limit allows.
  await setLimit(at(), root, shape.limit)
  for (let last: string | undefined; last === undefined;) {
    last = await refusal(makeOne(at(), root))
    refusals.add(last)
  }
  const revision = await stores[0].revision(AbortSignal.timeout(60_000))
  while (observer.revision < revision) await turn()
  end.abort(new Error('over'))
  await watching.catch(() => undefined)
  for (const process of started) await process.close()
  return { observer, refusals }
}

describeOnStores('limits over two processes', (kind) => {
  const stores = twoStores(kind)

  test('limits over two processes are never exceeded, whatever is delayed, lost, deleted or set in between, and can be reached', async () => {
    const property = fc.asyncProperty(shapes, async (shape) => {
      const { observer, refusals } = await play(stores(), shape)
      expect(observer.breaches).toEqual([])
      expect(observer.count).toBeGreaterThanOrEqual(observer.limit)
      expect([...refusals].filter((reason) => reason !== undefined && reason !== 'ABORTED')).toEqual(['QUOTA_EXCEEDED'])
    })
    await fc.assert(property, { numRuns: 5, endOnFailure: true })
  })

  test('limits over two processes allow a process with a stalled watch its share of pending creates, and no more', async () => {
    const [store] = stores()
    const root = trustedUid(randomBytes(20).toString('hex'))
    const changes = new ChangeSet()
    group(changes, root)
    await store.transact(changes, AbortSignal.timeout(60_000))
    let gate = Promise.withResolvers<void>()
    gate.resolve()
    const watch: Store['watch'] = async function* (...call) {
      for await (const batch of store.watch(...call)) {
        await gate.promise
        yield batch
      }
      throw new StoreError('unavailable', 'the watch ended')
    }
    const process = await startProcess(withOwn(store, { watch }), { share: 3, processes: 1 })
    onTestFinished(() => process.close())
    await setLimit(process, root, 1_000)
    const stored = async (): Promise<number> => {
      const { entries } = await store.range({ prefix: belowPrefix('Group', root), limit: 100 }, AbortSignal.timeout(60_000))
      return entries.length
    }
    gate = Promise.withResolvers()
    const creates = Array.from({ length: 10 }, () => makeOne(process, root))
    while ((await stored()) < 3) await turn()
    for (let look = 0; look < 50; look++) expect(await stored()).toBe(3)
    gate.resolve()
    await Promise.all(creates)
    expect(await stored()).toBe(10)
  })

  test.each([
    { title: 'are fenced off before others take their place', fences: true, expected: 5 },
    { title: 'exceed the limit if the fence does nothing', fences: false, expected: 7 },
  ])('count for creates whose caller is gone, which $title', async ({ fences, expected }) => {
    const [store] = stores()
    const root = trustedUid(randomBytes(20).toString('hex'))
    const changes = new ChangeSet()
    group(changes, root)
    await store.transact(changes, AbortSignal.timeout(60_000))
    const late: Transaction[] = []
    const fence: Store['fence'] = async (signal) => {
      if (fences) late.length = 0
      await store.fence(signal)
    }
    const transact: Store['transact'] = async (...call) => {
      // A write that only marks the limit as almost reached may be lost, too.
      if (call[0].writes.every(({ key }) => key.startsWith('i/quota/')) && late.length > 0) throw new StoreError('indeterminate', 'no answer')
      return store.transact(...call)
    }
    const process = await startProcess(withOwn(store, { fence, transact }), { share: 2, processes: 1 })
    onTestFinished(() => process.close())
    // The root group counts, too.
    await setLimit(process, root, 6)
    const lose = (): void => {
      const admission = process.services.quotas.begin(process.context.signal)
      const lost = new ChangeSet()
      group(lost, trustedUid(`${root}/${randomBytes(8).toString('hex')}`))
      expect(admission.admit(lost, false)).toBeUndefined()
      late.push({ guards: lost.guards, writes: lost.writes })
      admission.end()
    }
    for (let round = 0; round < 2; round++) {
      lose()
      lose()
      await makeOne(process, root)
    }
    await makeOne(process, root)
    for (const transaction of late.splice(0)) await store.transact(transaction, AbortSignal.timeout(60_000))
    while ((await refusal(makeOne(process, root))) !== 'QUOTA_EXCEEDED');
    const { entries } = await store.range({ prefix: belowPrefix('Group', root), limit: 100 }, AbortSignal.timeout(60_000))
    expect(entries).toHaveLength(expected)
  })

  test.each([
    // Two processes may have one pending create each.
    { title: 'was almost reached and then reached', before: 4, meanwhile: () => Promise.resolve() },
    { title: 'was set', before: undefined, meanwhile: (process: Process, root: Uid) => setLimit(process, root, 4) },
    { title: 'was lowered', before: 100, meanwhile: (process: Process, root: Uid) => setLimit(process, root, 4) },
  ])('limits over two processes refuse a create that was planned before the limit $title', async ({ before, meanwhile }) => {
    const [store, peer] = stores()
    const root = trustedUid(randomBytes(20).toString('hex'))
    const changes = new ChangeSet()
    group(changes, root)
    await store.transact(changes, AbortSignal.timeout(60_000))
    const [sent, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    let isHeld = false
    const transact: Store['transact'] = async (...call) => {
      if (isHeld) {
        sent.resolve()
        await gate.promise
      }
      return store.transact(...call)
    }
    const late = await startProcess(withOwn(store, { transact }), { share: 1, processes: 2 })
    const other = await startProcess(peer, { share: 1, processes: 2 })
    onTestFinished(() => Promise.all([late.close(), other.close()]).then(() => undefined))
    if (before !== undefined) await setLimit(late, root, before)
    isHeld = true
    const outcome = refusal(makeOne(late, root))
    await sent.promise
    await meanwhile(other, root)
    while ((await refusal(makeOne(other, root))) === undefined);
    isHeld = false
    gate.resolve()
    expect(await outcome).toBe('QUOTA_EXCEEDED')
    const { entries } = await store.range({ prefix: belowPrefix('Group', root), limit: 100 }, AbortSignal.timeout(60_000))
    // The root group counts, too.
    expect(entries).toHaveLength(3)
  })
})
