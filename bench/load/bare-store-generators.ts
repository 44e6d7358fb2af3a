import { randomBytes } from 'node:crypto'
import { DatabaseSync } from 'node:sqlite'
import { Etcd3 } from 'etcd3'
import type { EtcdLoad, Generator, SqliteLoad, TransactionShape } from './load.ts'

/** Returns the keys of one transaction. Fresh keys end with digits that no other key has, and have the same length. */
function keysOf(shape: TransactionShape): string[] {
  const unique = randomBytes(8).toString('hex')
  return shape.puts.map(({ key, fresh }) => (fresh ? key.slice(0, -unique.length) + unique : key))
}

/** Creates a generator that runs `connections` concurrent etcd transactions on one client. */
export function createEtcdGenerator(load: EtcdLoad): Generator {
  const { shape } = load
  const client = new Etcd3({ hosts: load.endpoint })
  const values = shape.puts.map(({ valueBytes }) => randomBytes(valueBytes))
  const transact = async (): Promise<boolean> => {
    const keys = keysOf(shape)
    // The transactions of etcd3 have a `then` method but are no promises. So they are chained, and not awaited before `commit`.
    const transaction = client.if(shape.existing, 'Create', '>', 0)
    for (const [at, key] of keys.entries()) if (shape.puts[at]?.guarded) transaction.and(key, 'Create', '==', 0)
    const puts = keys.map((key, at) => client.put(key).value(values[at] ?? ''))
    return (await transaction.then(...puts).commit()).succeeded
  }
  return {
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      const lane = async (): Promise<void> => {
        for (let start = performance.now(); start < deadline;) {
          const committed = await transact()
          const now = performance.now()
          if (committed) tally.answered('', now - start, 0)
          else tally.failed('a guard of the transaction failed')
          start = now
        }
      }
      await Promise.all(Array.from({ length: load.connections }, lane))
    },
    close: () => client.close(),
  }
}

/** Creates a generator that runs one SQLite transaction after the other, with the pragmas of the embedded store. */
export function createSqliteGenerator(load: SqliteLoad): Generator {
  const { shape } = load
  const database = new DatabaseSync(load.path)
  database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL')
  database.exec('CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID')
  const find = database.prepare('SELECT revision FROM kv WHERE key = ?')
  const put = database.prepare('INSERT INTO kv VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision')
  const values = shape.puts.map(({ valueBytes }) => randomBytes(valueBytes))
  put.run(shape.existing, Buffer.alloc(0), 0)
  let revision = 0
  const transact = (): void => {
    const keys = keysOf(shape)
    revision++
    database.exec('BEGIN IMMEDIATE')
    for (const [at, key] of keys.entries()) if (shape.puts[at]?.guarded && find.get(key) !== undefined) throw new Error('a key that must be new exists already')
    if (find.get(shape.existing) === undefined) throw new Error('a key that must exist is missing')
    for (const [at, key] of keys.entries()) put.run(key, values[at] ?? null, revision)
    database.exec('COMMIT')
  }
  return {
    async round(milliseconds, tally) {
      const deadline = performance.now() + milliseconds
      for (let start = performance.now(); start < deadline;) {
        transact()
        const now = performance.now()
        tally.answered('', now - start, 0)
        start = now
      }
    },
    close: () => database.close(),
  }
}
