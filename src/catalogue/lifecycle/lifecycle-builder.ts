import { createHash } from 'node:crypto'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { LifecycleCycle, LifecycleProduct } from '../../cache/lists/lifecycle-source.ts'
import { openForWriting, setMeta } from '../../store/sqlite/catalogue-file.ts'
import type { CatalogueWriter, PutOutcome, WriteTarget } from '../files/catalogue-writer.ts'
import { ImportedRows } from '../files/imported-rows.ts'
import { lifecycleTables } from './lifecycle-tables.ts'

/** A cycle of a product on its way into a catalogue. */
export interface NewLifecycle {
  /** The name of the product. */
  readonly product: string
  /** What the source says about the product; undefined if it says nothing. */
  readonly facts: LifecycleProduct | undefined
  readonly cycle: LifecycleCycle
}

/** Writes a catalogue of life cycles. */
export class LifecycleBuilder implements CatalogueWriter<NewLifecycle> {
  readonly #database: DatabaseSync
  readonly #rows: ImportedRows
  readonly #statements: Readonly<Record<keyof typeof sql, StatementSync>>
  /** The products whose facts this import wrote. */
  readonly #products = new Set<string>()

  /** Throws an error of SQLite if the file cannot be written. */
  constructor({ path, isNew }: Pick<WriteTarget, 'path' | 'isNew'>) {
    this.#database = openForWriting(path, { tables: lifecycleTables, isNew })
    this.#rows = new ImportedRows(this.#database)
    const names = Object.keys(sql) as (keyof typeof sql)[] // a constant's keys
    this.#statements = Object.fromEntries(names.map((name) => [name, this.#database.prepare(sql[name])])) as Record<keyof typeof sql, StatementSync>
  }

  hasPut({ product, cycle }: NewLifecycle): boolean {
    const found = this.#statements.find.get(product, cycle.cycle)
    return found !== undefined && this.#rows.hasPut(Number(found['id']))
  }

  put({ product, facts, cycle }: NewLifecycle): PutOutcome {
    const body = JSON.stringify(cycle)
    const hash = createHash('sha256')
      .update(JSON.stringify([facts ?? null, body]))
      .digest()
      .subarray(0, 16)
    const old = this.#statements.find.get(product, cycle.cycle)
    if (old === undefined) this.#rows.see(Number(this.#statements.insert.run(product, cycle.cycle, hash, body).lastInsertRowid))
    else {
      const id = Number(old['id'])
      const outcome = this.#rows.outcomeOf({ id, hash: old['hash'] as Uint8Array }, hash) // a BLOB column
      if (outcome !== 'changed') return outcome
      this.#statements.update.run(hash, body, id)
    }
    this.#describe(product, facts)
    this.#rows.written()
    return old === undefined ? 'added' : 'changed'
  }

  removeOthers(): number {
    this.#rows.makeTable()
    return Number(this.#database.prepare('DELETE FROM cycle WHERE id NOT IN (SELECT id FROM temp.seen)').run().changes)
  }

  finish({ source, nowMs }: { readonly source: string; readonly nowMs: number }): void {
    this.#statements.note.run(source, nowMs, this.#rows.count)
    this.#database.exec(`
      DELETE FROM product WHERE name NOT IN (SELECT product FROM cycle);
      DELETE FROM key WHERE product NOT IN (SELECT name FROM product);
    `)
    setMeta(this.#database, 'built_ms', String(nowMs))
    this.#rows.end()
    this.#database.close()
  }

  abandon(): void {
    this.#database.close()
  }

  /** Writes what is known about a product. A source that says nothing about it changes nothing. */
  #describe(product: string, facts: LifecycleProduct | undefined): void {
    if (this.#products.has(product)) return
    this.#products.add(product)
    const { describe, introduce, unkey, key } = this.#statements
    if (facts === undefined) introduce.run(product, product)
    else {
      describe.run(product, facts.label, facts.category)
      unkey.run(product)
      for (const alias of facts.aliases) key.run(alias.toLowerCase(), 1, product)
      for (const purl of facts.purls) key.run(purl, 2, product)
    }
    key.run(product.toLowerCase(), 0, product)
  }
}

const sql = {
  find: 'SELECT id, hash FROM cycle WHERE product = ? AND cycle = ?',
  insert: 'INSERT INTO cycle (product, cycle, hash, body) VALUES (?, ?, ?, ?)',
  update: 'UPDATE cycle SET hash = ?, body = ? WHERE id = ?',
  introduce: "INSERT INTO product (name, label, category) VALUES (?, ?, '') ON CONFLICT DO NOTHING",
  describe:
    'INSERT INTO product (name, label, category) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET label = excluded.label, category = excluded.category',
  key: 'INSERT INTO key (key, rank, product) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
  unkey: 'DELETE FROM key WHERE product = ?',
  note: `INSERT INTO source (name, imported_ms, cycles) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET imported_ms = excluded.imported_ms, cycles = excluded.cycles`,
} as const
