/**
 * A process of its own for the durability tests. `sqlite-child.ts <path>` opens the store and prints `open` or the kind of the failure.
 * Then it commits r/0, r/1, ... in groups, until it is killed or a commit fails. It prints each name once it is acknowledged.
 */
import { writeSync } from 'node:fs'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { StoreError } from '../../src/store/store.ts'

const [path = ''] = process.argv.slice(2)
const print = (line: string): void => void writeSync(1, `${line}\n`)
const signal = new AbortController().signal
const ignore = (): void => {}

try {
  const store = createSqliteStore({ path, log: { debug: ignore, info: ignore, warn: ignore, error: ignore } })
  print('open')
  for (let round = 0; ; round++) {
    const names = Array.from({ length: 5 }, (_, index) => `r/${round * 5 + index}`)
    await Promise.all(
      names.map(async (key) => {
        await store.transact({ guards: [{ kind: 'absent', key }], writes: [{ kind: 'put', key, value: new Uint8Array(2000).fill(65) }] }, signal)
        print(key)
      }),
    )
  }
} catch (error) {
  print(error instanceof StoreError ? error.kind : String(error))
}
