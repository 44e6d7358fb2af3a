import { create, toBinary } from '@bufbuild/protobuf'
import type { Digest } from '../../src/base/digest.ts'
import type { Log } from '../../src/base/log.ts'
import { HistoryHeadSchema } from '../../src/gen/taproot/store/v1/registry_pb.ts'
import { historyHeadKey, historyWrites } from '../../src/registry/tags/tag-history.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { Write } from '../../src/store/store.ts'

const quiet: Log = { debug() {}, info() {}, warn: console.warn, error: console.error }
/** Number of writes per transaction, and of concurrent transactions. */
const batchWrites = 120
const lanes = 8
const startMs = Date.UTC(2020, 0, 1)
const everyMs = 60_000

/** A tag, and its number of moves. */
export interface Moves {
  readonly repo: string
  readonly name: string
  readonly count: number
}

/** Returns the time of a tag's move number `at`, in milliseconds since 1970. */
export function moveTimeMs(at: number): number {
  return startMs + at * everyMs
}

function recordOf({ repo, name }: Moves, at: number): Write[] {
  // The digest is as long as a real one.
  const digest = `sha256:${at.toString(16).padStart(64, '0')}` as Digest
  return historyWrites({ repo, name }, { timeMs: moveTimeMs(at), digest, sequence: BigInt(at + 1) })
}

function headOf({ repo, name, count }: Moves): Write {
  const head = create(HistoryHeadSchema, { lastTimeMs: BigInt(moveTimeMs(count - 1)), sequence: BigInt(count) })
  return { kind: 'put', key: historyHeadKey({ repo, name }), value: toBinary(HistoryHeadSchema, head) }
}

/** Writes the keys of this many moves directly into the store. */
export async function writeMoves(endpoint: string, moves: Moves, onProgress: (written: number) => void): Promise<void> {
  const store = createEtcdStore({ endpoints: [endpoint], log: quiet })
  const { signal } = new AbortController()
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < moves.count) {
      const [first, last] = [next, Math.min(next + batchWrites, moves.count)]
      next = last
      const writes = Array.from({ length: last - first }, (_, at) => recordOf(moves, first + at)).flat()
      await store.transact({ guards: [], writes }, signal)
      if (first % (batchWrites * 500) === 0) onProgress(first)
    }
  }
  try {
    await store.transact({ guards: [], writes: [headOf(moves)] }, signal)
    await Promise.all(Array.from({ length: lanes }, lane))
  } finally {
    await store.close()
  }
}
