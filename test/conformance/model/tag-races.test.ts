import { fromBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { HistoryHeadSchema, HistoryRecordSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { historyHeadKey, historyPrefixOf, historyTimeMs } from '../../../src/registry/tags/tag-history.ts'
import type { Reply } from '../../support/api-clients.ts'
import { freshName } from '../../support/test-server.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { soon } from '../../store/store-harness.ts'
import { listAll, make, startReplicas, type Client, type Replicas } from './replicas.ts'
import { expectSoundStore } from './store-invariants.ts'
import { campaignLength } from '../../soak/factor.ts'

const digest = (seed: number): string => digestOf(Buffer.from(String(seed)))

/** Of each of the four that move the same tag. */
const moves = campaignLength({ short: 80, full: 250 })

describeOnStores('racing moves of a tag', (kind) => {
  let replicas: Replicas
  let operator: Client
  let group: string

  beforeAll(async () => {
    replicas = await startReplicas(kind, { keepsContent: false })
    operator = replicas.operator
    group = await make(operator, 'CreateGroup', { group: { name: freshName('root') } })
  })
  afterAll(() => replicas.stop())

  /** The raw history of a tag, deletions included as empty digests. */
  const historyOf = async (repo: string, name: string) => {
    const { entries } = await replicas.store.range({ prefix: historyPrefixOf({ repo, name }), limit: 10_000 }, soon())
    const head = await replicas.store.get(historyHeadKey({ repo, name }), soon())
    return {
      records: entries.map(({ key, value }) => ({ timeMs: historyTimeMs(key), ...fromBinary(HistoryRecordSchema, value) })),
      head: head === undefined ? undefined : fromBinary(HistoryHeadSchema, head.value),
    }
  }

  /** One record per change, numbered without a gap, each at least a millisecond after the one before, ending with what the tag is. */
  const expectSound = async (repo: string, name: string): Promise<number> => {
    const { records, head } = await historyOf(repo, name)
    expect(records.map(({ sequence }) => Number(sequence))).toEqual(records.map((_, index) => index + 1))
    for (const [index, record] of records.entries()) {
      const before = records[index - 1]
      if (before === undefined) continue
      expect(record.timeMs).toBeGreaterThan(before.timeMs)
      expect(record.digest, 'a record is a change').not.toBe(before.digest)
    }
    const last = records.at(-1)
    expect(head).toMatchObject({ digest: last?.digest, lastTimeMs: BigInt(last?.timeMs ?? -1), sequence: BigInt(records.length) })
    const [tag] = await listAll(operator, 'ListTags', { uidp: { childrenOf: repo }, name })
    expect(tag?.['digest'] ?? '').toBe(last?.digest)
    if (tag !== undefined) expect(Date.parse(String(tag['updateTime']))).toBe(last?.timeMs)
    return records.length
  }

  test(`two replicas that move one tag ${4 * moves} times record every move, and the last record is the tag's state`, async () => {
    const repo = await make(operator, 'CreateRepo', { parent: group, repo: { name: freshName('repo') } })
    let moved = 0
    const worker = async (id: number): Promise<void> => {
      for (let round = 0; round < moves; round++) {
        const reply = await operator.call('CreateTag', { parent: repo, tag: { name: 'latest', digest: digest(id * 1000 + round) } })
        expect([0, 10]).toContain(reply.code)
        if (reply.code === 0) moved += 1
      }
    }
    await Promise.all([1, 2, 3, 4].map(worker))
    // Every digest is another one: each move that succeeded is a change.
    expect(await expectSound(repo, 'latest')).toBe(moved)
    expect(moved).toBeGreaterThan(2 * moves)
  })

  test("tag moves that race with deletions leave a history that ends with the tag's state", async () => {
    for (let round = 0; round < 15; round++) {
      const repo = await make(operator, 'CreateRepo', { parent: group, repo: { name: freshName('repo') } })
      const first = await operator.call('CreateTag', { parent: repo, tag: { name: 'latest', digest: digest(0) } })
      const { uid } = first.body
      const calls: Promise<Reply>[] = []
      for (let call = 1; call <= 6; call++) {
        calls.push(operator.call('CreateTag', { parent: repo, tag: { name: 'latest', digest: digest(call) } }))
        if (call % 2 === 0) calls.push(operator.call('DeleteTag', { uid: String(uid) }))
        if (call === 5) calls.push(operator.call('RestoreTag', { repoUid: repo, tag: 'latest', digest: digest(0) }))
      }
      for (const reply of await Promise.all(calls)) expect([0, 5, 10], reply.message).toContain(reply.code)
      await expectSound(repo, 'latest')
    }
    await expectSoundStore(replicas.store)
  })
})
