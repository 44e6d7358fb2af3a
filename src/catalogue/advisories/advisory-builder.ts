import { hash as sha256 } from 'node:crypto'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { toBinary } from '@bufbuild/protobuf'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../base/uid.ts'
import { AdvisorySchema, type Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { openForWriting, setMeta } from '../../store/sqlite/catalogue-file.ts'
import type { CatalogueWriter, PutOutcome, WriteTarget } from '../files/catalogue-writer.ts'
import { ImportedRows } from '../files/imported-rows.ts'
import type { OsvFacts } from './osv-facts.ts'
import { searchTextOf, termsOf, type FactFacet } from './facts.ts'
import { writeIndex } from './advisory-index.ts'
import { advisoryTables, facets } from './advisory-tables.ts'
import { bytesOf } from '../files/number-set.ts'

/** An advisory on its way into a catalogue. The builder sets its etag. */
export interface NewAdvisory {
  /** The last part of its uid: 16 hex digits. */
  readonly segment: string
  /** The package that the artifact is built from. */
  readonly origin: string
  readonly advisory: Advisory
  /** What exports need besides; absent if nothing. */
  readonly osv?: OsvFacts
}

/** An advisory as the file has it. */
interface EncodedAdvisory extends Omit<NewAdvisory, 'osv'> {
  readonly hash: Uint8Array
  /** The OsvFacts as JSON, or empty. */
  readonly facts: string
  /** The Advisory with uid and etag, as protobuf bytes. */
  readonly body: Uint8Array
}

/** A lookup of an advisory, and what it found. */
interface AdvisoryLookup {
  readonly segment: string
  readonly row: ReturnType<StatementSync['get']>
}

/** Number of advisories that are removed in one transaction. */
const advisoriesPerCommit = 5_000
/** Terms of facets with few values, remembered with their numbers. */
const rememberedTerms = 50_000

/** Returns the fields that a builder sets, as protobuf bytes. */
function ownFields({ uid, etag }: Pick<Advisory, 'uid' | 'etag'>): Uint8Array {
  const { field } = AdvisorySchema
  const writer = new BinaryWriter()
  for (const [{ number }, value] of [
    [field.uid, uid],
    [field.etag, etag],
  ] as const)
    writer.tag(number, WireType.LengthDelimited).string(value)
  return writer.finish()
}

/** Writes a catalogue of advisories. One group at a time. */
export class AdvisoryBuilder implements CatalogueWriter<NewAdvisory> {
  readonly #database: DatabaseSync
  readonly #rows: ImportedRows
  readonly #place: number
  readonly #group: Uid
  #lastId: number
  /** The last lookup: `put` follows `hasPut`. */
  #lookup: AdvisoryLookup | undefined
  readonly #terms = new Map<string, number>()
  readonly #statements: Readonly<Record<keyof typeof sql, StatementSync>>

  /** Throws an error of SQLite if the file cannot be written, and TypeError without a group. */
  constructor({ path, group, isNew }: WriteTarget) {
    if (group === undefined) throw new TypeError('advisories belong to a group')
    this.#database = openForWriting(path, { tables: advisoryTables, isNew })
    this.#group = group
    this.#database.prepare('INSERT INTO place (uid) VALUES (?) ON CONFLICT DO NOTHING').run(group)
    this.#place = Number(this.#database.prepare('SELECT id FROM place WHERE uid = ?').get(group)?.['id'])
    this.#lastId = Number(this.#database.prepare('SELECT max(id) AS id FROM advisory').get()?.['id'] ?? 0)
    this.#rows = new ImportedRows(this.#database)
    const names = Object.keys(sql) as (keyof typeof sql)[] // a constant's keys
    this.#statements = Object.fromEntries(names.map((name) => [name, this.#database.prepare(sql[name])])) as Record<keyof typeof sql, StatementSync>
  }

  hasPut({ segment }: NewAdvisory): boolean {
    const found = this.#find(segment)
    return found !== undefined && this.#rows.hasPut(Number(found['id']))
  }

  put({ segment, origin, advisory, osv }: NewAdvisory): PutOutcome {
    const body = toBinary(AdvisorySchema, advisory)
    const facts = osv === undefined ? '' : JSON.stringify(osv)
    const hash = sha256('sha256', Buffer.concat([Buffer.from(`${origin}\0`), body, Buffer.from(facts)]), 'buffer').subarray(0, 16)
    const old = this.#find(segment)
    this.#lookup = undefined
    const id = old === undefined ? (this.#lastId += 1) : Number(old['id'])
    if (old === undefined) this.#rows.see(id)
    else {
      const outcome = this.#rows.outcomeOf({ id, hash: old['hash'] as Uint8Array }, hash) // a BLOB column
      if (outcome !== 'changed') return outcome
    }
    // In protobuf, the fields of one message may follow those of another.
    const own = ownFields({ uid: `${this.#group}/${segment}`, etag: hash.toString('hex') })
    this.#write(id, { segment, origin, advisory, hash, facts, body: Buffer.concat([body, own]) })
    return old === undefined ? 'added' : 'changed'
  }

  removeOthers(): number {
    this.#rows.makeTable()
    const others = this.#database.prepare('SELECT id FROM advisory WHERE place = ? AND id NOT IN (SELECT id FROM temp.seen) LIMIT ?')
    for (let removed = 0; ;) {
      const rows = others.all(this.#place, advisoriesPerCommit)
      if (rows.length === 0) return removed
      for (const { id } of rows) {
        this.#statements.remove.run(Number(id))
      }
      removed += rows.length
      this.#rows.commit()
    }
  }

  finish({ source, nowMs }: { readonly source: string; readonly nowMs: number }): void {
    const database = this.#database
    database
      .prepare(
        `INSERT INTO source (group_uid, name, imported_ms, advisories) VALUES (?, ?, ?, ?)
         ON CONFLICT (group_uid, name) DO UPDATE SET imported_ms = excluded.imported_ms, advisories = excluded.advisories`,
      )
      .run(this.#group, source, nowMs, this.#rows.count)
    writeIndex(database)
    setMeta(database, 'built_ms', String(nowMs))
    this.#rows.end()
    database.close()
  }

  abandon(): void {
    this.#database.close()
  }

  /** Returns the row of an advisory; undefined if there is none. */
  #find(segment: string): AdvisoryLookup['row'] {
    if (this.#lookup?.segment !== segment) this.#lookup = { segment, row: this.#statements.find.get(this.#place, segment) }
    return this.#lookup.row
  }

  #write(id: number, { segment, origin, advisory, hash, facts, body }: EncodedAdvisory): void {
    const { createTime, updateTime, deleteTime } = advisory
    const isListed = deleteTime === undefined
    const [createMs, updateMs] = [createTime, updateTime].map((time) => (time === undefined ? 0 : timestampMs(time)))
    const terms = Uint32Array.from(isListed ? termsOf(advisory, origin) : [], ([facet, value]) => this.#termOf(facet, value))
    const values = [segment, createMs ?? 0, updateMs ?? 0, isListed ? 1 : 0, hash, bytesOf(terms), origin, searchTextOf(advisory), facts || null, body]
    this.#statements.write.run(id, this.#place, ...values)
    this.#rows.written()
  }

  #termOf(facet: FactFacet, value: string): number {
    const key = `${facets[facet]} ${value}`
    const known = this.#terms.get(key)
    if (known !== undefined) return known
    const { name, term } = this.#statements
    const { changes, lastInsertRowid } = name.run(facets[facet], value)
    const id = Number(changes > 0 ? lastInsertRowid : term.get(facets[facet], value)?.['id'])
    if (this.#terms.size >= rememberedTerms) this.#terms.clear()
    this.#terms.set(key, id)
    return id
  }
}

const sql = {
  find: 'SELECT id, hash FROM advisory WHERE place = ? AND segment = ?',
  write: `INSERT INTO advisory (id, place, segment, create_ms, update_ms, listed, hash, terms, origin, search, facts, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET create_ms = excluded.create_ms, update_ms = excluded.update_ms, listed = excluded.listed, hash = excluded.hash,
      terms = excluded.terms, origin = excluded.origin, search = excluded.search, facts = excluded.facts, body = excluded.body`,
  remove: 'DELETE FROM advisory WHERE id = ?',
  name: 'INSERT INTO term (facet, value) VALUES (?, ?) ON CONFLICT DO NOTHING',
  term: 'SELECT id FROM term WHERE facet = ? AND value = ?',
} as const
