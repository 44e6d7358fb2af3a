import { fromBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { countsKey, countsPrefix, decodeStates, monthDay } from '../../../src/contents/counts/tag-month.ts'
import { OutboxEventSchema } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { VulnerabilitiesChangedSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { StoreError, type Entry, type Store, type Write } from '../../../src/store/store.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { interceptTransactions, type Fault } from '../../support/fail-next.ts'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { freshName, startTestServer, type TestServer } from '../../support/test-server.ts'
import { makeImageWorld, pushPackages, type ImageWorld } from './image-world.ts'

const dayMs = 24 * 3_600_000
const outboxPrefix = 'x/outbox/'
const waiting = (): AbortSignal => AbortSignal.timeout(60_000)

/** Rewrites the records that a transaction changes, as another worker would. */
const rewritten: Fault = async (real, call) => {
  for (const { key } of call[0].writes) {
    const entry = await real.get(key, waiting())
    if (entry !== undefined) await real.transact({ guards: [], writes: [{ kind: 'put', key, value: entry.value }] }, waiting())
  }
  return real.transact(...call)
}

/** What happens to one transaction of the worker. After those that end the worker, no other transaction of it is sent. */
const faults: readonly { readonly name: string; readonly endsWorker: boolean; readonly fault: Fault }[] = [
  { name: 'is refused', endsWorker: true, fault: () => Promise.reject(new StoreError('unavailable', 'no store')) },
  {
    name: 'is the last one before a crash',
    endsWorker: true,
    fault: async (real, call) => {
      await real.transact(...call)
      throw new StoreError('indeterminate', 'no answer')
    },
  },
  { name: 'meets another change', endsWorker: false, fault: rewritten },
]

/** Returns the changes of vulnerabilities that events tell, of one repo. */
function changesIn(events: readonly Pick<Entry, 'value'>[], repo: string): { added: string[]; removed: string[] }[] {
  return events
    .map(({ value }) => fromBinary(OutboxEventSchema, value))
    .filter(({ type, subject }) => subject === repo && type.endsWith('.registry.vulnerabilities.changed.v1'))
    .map(({ body }) => fromBinary(VulnerabilitiesChangedSchema, body))
}

/** True if the job of the counts writes this. */
function isOfCounts(write: Write, repo: string): boolean {
  if (write.key.startsWith(countsPrefix)) return true
  return write.kind === 'put' && write.key.startsWith(outboxPrefix) && changesIn([write], repo).length > 0
}

describeOnStores('the event of changed vulnerabilities and the record of the day', (store) => {
  const clock = new TestClock()
  let server: TestServer
  let world: ImageWorld
  const ids: string[] = []
  beforeAll(async () => {
    // At noon, so that all is one day.
    clock.advance(dayMs - (clock.now() % dayMs) + dayMs / 2)
    server = await startTestServer({ store, clock, env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })
    world = await makeImageWorld(server)
    await pushPackages(world, 'latest', { musl: '1' })
    await importNext()
  })
  afterAll(() => server.stop())

  const realStore = (): Store => server.running.engine.store

  /** Imports one more advisory about the package of the image. */
  async function importNext(): Promise<void> {
    const id = freshName('CVE-2026').toUpperCase()
    const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '2' }] }] }]
    ids.push(id)
    ids.sort()
    await importDocuments(server, world.group, [osvDocument(id, { affected })])
  }

  /** Resolves with the ids in the record of the day. */
  async function recordedOrNot(): Promise<string[]> {
    // The worker looks for changes every two seconds.
    clock.advance(2_000)
    const { month } = monthDay(Math.floor(clock.now() / dayMs))
    const entry = await realStore().get(countsKey(month, { repo: trustedUid(world.repo), name: 'latest' }), waiting())
    const last = entry && decodeStates(entry.value).at(-1)?.state
    return last?.kind === 'known' ? [...(last.severities ?? new Map<string, number>()).keys()].sort() : []
  }

  /** Resolves with the ids that events added, each as often as they say so. */
  async function idsInEvents(): Promise<string[]> {
    const { entries } = await realStore().range({ prefix: outboxPrefix, limit: 10_000 }, waiting())
    const changes = changesIn(entries, world.repo)
    expect(changes.flatMap(({ removed }) => removed)).toEqual([])
    return changes.flatMap(({ added }) => added).sort()
  }

  /** Lets a fault happen to transaction `at` of the job, from 0. */
  function failAt(at: number, { fault, endsWorker }: (typeof faults)[number]): { readonly met: boolean; end(): void } {
    let [sent, met] = [0, false]
    const end = interceptTransactions(server, (real, call) => {
      if (!call[0].writes.some((write) => isOfCounts(write, world.repo))) return real.transact(...call)
      sent += 1
      if (sent <= at) return real.transact(...call)
      if (sent === at + 1) return fault(real, call).finally(() => (met = true))
      return endsWorker ? Promise.reject(new StoreError('unavailable', 'the worker ended')) : real.transact(...call)
    })
    return {
      get met() {
        return met
      },
      end,
    }
  }

  // docs/spec/events.md#changed-vulnerabilities
  test.each(faults)('are both there or both missing if a transaction $name', async (one) => {
    await expect.poll(recordedOrNot).toEqual(ids)
    for (let at = 0, met = true; met; at += 1) {
      const failing = failAt(at, one)
      try {
        await importNext()
        await expect.poll(async () => (failing.met && one.endsWorker) || (await recordedOrNot()).length === ids.length).toBe(true)
        // A worker that ended sends nothing any more, and what it sent is there or not.
        expect(await idsInEvents()).toEqual(await recordedOrNot())
        ;({ met } = failing)
      } finally {
        failing.end()
      }
      await expect.poll(recordedOrNot).toEqual(ids)
      expect(await idsInEvents()).toEqual(ids)
      // The first transaction has both.
      if (met) expect(at).toBe(0)
    }
  })
})
