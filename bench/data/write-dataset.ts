import { rootOf } from '../../src/base/uid.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { ownerRoleUid } from '../../src/engine/grant-rules.ts'
import { ownersKey } from '../../src/store/keys.ts'
import type { Store, Write } from '../../src/store/store.ts'
import { DatasetGenerator, type Made, type Plan } from './generate.ts'

/** A dataset as it was written. */
export interface WrittenPlan extends Plan {
  /** Bytes of all records' stored values, without their keys. */
  readonly recordBytes: number
}

/** Writes of one transaction, and transactions under way. */
const batchWrites = 120
const lanes = 8

/** What the product's own change set would write for this record, but for guards and the event. */
function writesOf({ kind, uid, record, createMs, etag }: Made): Write[] {
  const changes = new ChangeSet()
  changes.create(kind, { uid, record, facts: { etag, createMs, updateMs: createMs, managedBy: '' } })
  if ('roleUid' in record && record.roleUid === ownerRoleUid) changes.write({ kind: 'put', key: ownersKey(rootOf(uid)), value: Buffer.from(etag) })
  return changes.writes
}

/** Writes a dataset of so many records into an empty store. */
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
