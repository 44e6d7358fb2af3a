import { rootOf } from '../../src/base/uid.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { ownerRoleUid } from '../../src/engine/organisation-owners.ts'
import { ownersKey } from '../../src/store/keys.ts'
import type { Store, Write } from '../../src/store/store.ts'
import { DatasetGenerator, type Made, type Plan } from './generate.ts'

/** The plan of a dataset that was written. */
export interface WrittenPlan extends Plan {
  /** Total size of the records' stored values without keys, in bytes. */
  readonly recordBytes: number
}

/** Number of writes per transaction, and of concurrent transactions. */
const batchWrites = 120
const lanes = 8

/** Returns the writes with which the product would create this record, without the event. */
function writesOf({ kind, uid, record, createMs, etag }: Made): Write[] {
  const changes = new ChangeSet()
  changes.create(kind, { uid, record, facts: { etag, createMs, updateMs: createMs, managedBy: '' } })
  if ('roleUid' in record && record.roleUid === ownerRoleUid) changes.write({ kind: 'put', key: ownersKey(rootOf(uid)), value: Buffer.from(etag) })
  return changes.writes
}

/** Writes a dataset of `records` records into an empty store. */
export async function writeDataset(store: Store, records: number, onProgress: (written: number) => void): Promise<WrittenPlan> {
  const generator = new DatasetGenerator(records)
  const source = generator.records()
  const signal = new AbortController().signal
  let recordBytes = 0
  let written = 0
  const nextBatch = (): Write[] => {
    const batch: Write[] = []
    while (batch.length + 5 <= batchWrites) {
      const made = source.next()
      if (made.done === true) break
      for (const write of writesOf(made.value)) {
        if (write.kind === 'put' && write.key.startsWith('r/')) recordBytes += write.value.length
        batch.push(write)
      }
      if (++written % 50_000 === 0) onProgress(written)
    }
    return batch
  }
  const lane = async (): Promise<void> => {
    for (let batch = nextBatch(); batch.length > 0; batch = nextBatch()) await store.transact({ guards: [], writes: batch }, signal)
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  return { ...generator.plan, recordBytes }
}
