import { setImmediate as turn } from 'node:timers/promises'
import { randomBytes } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { commit } from '../../src/engine/commit.ts'
import { RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { groupKind } from '../../src/iam/records/groups.ts'
import { roleBindingKind } from '../../src/iam/records/role-bindings.ts'
import { builtInRoleRecords } from '../../src/iam/records/roles.ts'
import { recordBytesLimit, recordUse } from '../../src/engine/quota/limits.ts'
import { recordKey, cascadeKey } from '../../src/store/keys.ts'
import { StoreError, type Store } from '../../src/store/store.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { picker } from '../cache/records.ts'
import { facts, group, laggingStore, proven, startProcess, twoStores, type Process } from './quota-world.ts'

/** Creates a group with `bindings` role bindings, which are deleted with it. */
async function makeBound(process: Process, root: Uid, bindings: number): Promise<void> {
  const uid = trustedUid(`${root}/${randomBytes(8).toString('hex')}`)
  await commit(process.services, process.context, () => {
    const changes = new ChangeSet()
    changes.guard({ kind: 'exists', key: recordKey('Group', root) })
    group(changes, uid)
    return { changes: proven(changes), result: undefined }
  })
  for (let left = bindings; left > 0; left -= 25) {
    await commit(process.services, process.context, () => {
      const changes = new ChangeSet()
      changes.guard({ kind: 'exists', key: recordKey('Group', uid) })
      for (let made = 0; made < Math.min(left, 25); made++) bind(changes, uid)
      return { changes: proven(changes), result: undefined }
    })
  }
}

const builtInRole = builtInRoleRecords[0]?.uid ?? ''

function bind(changes: ChangeSet, groupUid: Uid): void {
  const draft = create(RoleBindingSchema, { identityUid: randomBytes(20).toString('hex'), roleUid: builtInRole })
  const uid = trustedUid(`${groupUid}/${randomBytes(8).toString('hex')}`)
  changes.create(roleBindingKind, { uid, record: draft, facts: { ...facts, etag: 'e' } })
  // Their uids are random: the batch has no room for both guards.
  changes.unguard(recordKey('RoleBinding', uid))
}

/** Removes a group with bindings: they are not counted from then on, and a sweep deletes them. */
function removeBound({ services, context }: Process, root: Uid): Promise<undefined> {
  return commit(services, context, ({ tables }) => {
    const changes = new ChangeSet()
    const [record] = tables.table('Group').matching('parent', root)
    if (record !== undefined) {
      changes.remove(groupKind, record)
      changes.write({ kind: 'put', key: cascadeKey(record.uid), value: Buffer.from('Group') })
    }
    return { changes: proven(changes), result: undefined }
  })
}

/** Returns the counts of the organisation in the snapshot of one process. */
function usesOf({ services }: Process, root: Uid): Record<string, number> {
  const limits = ['groups', 'role_bindings', recordBytesLimit]
  return Object.fromEntries(limits.map((limit) => [limit, recordUse(services.cache.tables, root, limit)]))
}

/** Returns the counts in the store itself, when no sweep is pending. */
async function storedUses(store: Store, root: Uid): Promise<Record<string, number>> {
  const stored = async (kind: string): Promise<number[]> => {
    const lengths: number[] = []
    for (let after: string | undefined; ;) {
      const page = await store.range({ prefix: recordKey(kind, root), limit: 500, ...(after === undefined ? {} : { after }) }, AbortSignal.timeout(60_000))
      lengths.push(...page.entries.map(({ value }) => value.length))
      after = page.entries.at(-1)?.key
      if (!page.more || after === undefined) return lengths
    }
  }
  const [groups, bindings] = [await stored('Group'), await stored('RoleBinding')]
  const bytes = [...groups, ...bindings].reduce((sum, length) => sum + length, 0)
  return { groups: groups.length, role_bindings: bindings.length, [recordBytesLimit]: bytes }
}

/** Runs pending sweeps as far as the store answers. Returns whether there may be more. */
async function cascade({ services }: Process, signal: AbortSignal): Promise<boolean> {
  try {
    return await services.cascader.finish(signal)
  } catch (error) {
    if (error instanceof StoreError && error.kind === 'indeterminate') return true
    throw error
  }
}

describeOnStores('usage counts over two processes', (kind) => {
  const stores = twoStores(kind)

  test('usage counts over two processes equal the stored records, at each process and after a reload, also during deletions that take several steps', async () => {
    const property = fc.asyncProperty(fc.integer(), async (seed) => {
      const pick = picker(seed)
      const [store, other] = stores()
      const root = trustedUid(randomBytes(20).toString('hex'))
      const changes = new ChangeSet()
      group(changes, root)
      await store.transact(changes, AbortSignal.timeout(60_000))
      const started = await Promise.all([store, other].map((own) => startProcess(laggingStore(own, pick(8), pick), { share: 64, processes: 2 })))
      const at = (): Process => started[pick(2)] as Process // one of two
      for (const count of [49, 50, 51, 52, 120]) await makeBound(at(), root, count)
      const live: Record<string, number>[] = []
      for (let step = 0; step < 4; step++) {
        await removeBound(at(), root)
        const signal = AbortSignal.timeout(60_000)
        if (pick(2) === 0) await cascade(at(), signal)
        for (const { services } of started) await services.cache.barrier(signal)
        const fresh = await startProcess(store, { share: 64, processes: 2 })
        live.splice(0, live.length, ...[...started, fresh].map((process) => usesOf(process, root)))
        await fresh.close()
        expect(live).toEqual([live[2], live[2], live[2]])
      }
      const signal = AbortSignal.timeout(60_000)
      while (await cascade(at(), signal)) await turn()
      for (const { services } of started) await services.cache.barrier(signal)
      const truth = await storedUses(store, root)
      expect(started.map((process) => usesOf(process, root))).toEqual([truth, truth])
      expect(truth['groups']).toBe(2)
      for (const process of started) await process.close()
    })
    await fc.assert(property, { numRuns: 3, endOnFailure: true })
  })
})
