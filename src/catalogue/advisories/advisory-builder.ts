import { createHash } from 'node:crypto'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { toBinary } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../base/uid.ts'
import type { AdvisoryFacet } from '../../cache/lists/advisory-source.ts'
import { AdvisorySchema, type Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { openForWriting, setMeta } from '../files/catalogue-file.ts'
import type { CatalogueWriter, PutOutcome, WriteTarget } from '../files/catalogue-writer.ts'
import { searchTextOf, termsOf } from './facts.ts'
import { writeIndex } from './advisory-index.ts'
import { advisoryTables, facets } from './advisory-tables.ts'
import { bytesOf } from './number-set.ts'

/** An advisory on its way into a catalogue. The builder sets its etag. */
export interface NewAdvisory {
  /** The last part of its uid: 16 hex digits. */
  readonly segment: string
  /** The package that the artifact is built from. */
  readonly origin: string
  readonly advisory: Advisory
}

/** Number of advisories after which the open transaction is committed: a rollback journal would grow with it. */
const advisoriesPerCommit = 5_000
/** Terms of facets with few values, remembered with their numbers. */
const rememberedTerms = 50_000

/** Writes a catalogue of advisories. One group at a time. */
export class AdvisoryBuilder implements CatalogueWriter<NewAdvisory> {
  readonly #database: DatabaseSync
  readonly #place: number
  readonly #group: Uid
  readonly #terms = new Map<string, number>()
  readonly #statements: Readonly<Record<keyof typeof sql, StatementSync>>
  #pending = 0

  /** Throws an error of SQLite if the file cannot be written, and TypeError without a group. */
  constructor({ path, group, isNew }: WriteTarget) {
    if (group === undefined) throw new TypeError('advisories belong to a group')
    this.#database = openForWriting(path, { tables: advisoryTables, isNew })
    this.#group = group
    this.#database.exec('CREATE TEMP TABLE seen (advisory INTEGER PRIMARY KEY)')
    this.#database.prepare('INSERT INTO place (uid) VALUES (?) ON CONFLICT DO NOTHING').run(group)
    this.#place = Number(this.#database.prepare('SELECT id FROM place WHERE uid = ?').get(group)?.['id'])
    const names = Object.keys(sql) as (keyof typeof sql)[] // a constant's keys
    this.#statements = Object.fromEntries(names.map((name) => [name, this.#database.prepare(sql[name])])) as Record<keyof typeof sql, StatementSync>
    this.#database.exec('BEGIN')
  }

  hasPut({ segment }: NewAdvisory): boolean {
    return this.#statements.seen.get(this.#place, segment) !== undefined
  }

  put({ segment, origin, advisory }: NewAdvisory): PutOutcome {
    const statements = this.#statements
    const body = toBinary(AdvisorySchema, advisory)
    const hash = createHash('sha256').update(origin).update('\0').update(body).digest().subarray(0, 16)
    const old = statements.find.get(this.#place, segment)
    if (old !== undefined) {
      const id = Number(old['id'])
      if (statements.see.run(id).changes === 0) return 'repeated'
      if (hash.equals(old['hash'] as Uint8Array)) return 'unchanged' // a BLOB column
      this.#write(id, { segment, origin, advisory, hash })
    } else {
      const id = Number(statements.next.get()?.['id'])
      statements.see.run(id)
      this.#write(id, { segment, origin, advisory, hash })
    }
    return old === undefined ? 'added' : 'changed'
  }

  removeOthers(): number {
    const others = this.#database.prepare('SELECT id FROM advisory WHERE place = ? AND id NOT IN (SELECT advisory FROM seen) LIMIT ?')
    for (let removed = 0; ;) {
      const rows = others.all(this.#place, advisoriesPerCommit)
      if (rows.length === 0) return removed
      for (const { id } of rows) {
        this.#statements.remove.run(Number(id))
      }
      removed += rows.length
      this.#commit()
    }
  }

  finish({ source, nowMs }: { readonly source: string; readonly nowMs: number }): void {
    const database = this.#database
    const { n } = database.prepare('SELECT count(*) AS n FROM seen').get() ?? {}
    database
      .prepare(
        `INSERT INTO source (group_uid, name, imported_ms, advisories) VALUES (?, ?, ?, ?)
         ON CONFLICT (group_uid, name) DO UPDATE SET imported_ms = excluded.imported_ms, advisories = excluded.advisories`,
      )
      .run(this.#group, source, nowMs, Number(n))
    writeIndex(database)
    setMeta(database, 'built_ms', String(nowMs))
    database.exec('COMMIT; PRAGMA analysis_limit = 1000; ANALYZE')
    database.close()
  }

  abandon(): void {
    this.#database.close()
  }

  #commit(): void {
    this.#pending = 0
    this.#database.exec('COMMIT; BEGIN')
  }

  #write(id: number, { segment, origin, advisory, hash }: NewAdvisory & { readonly hash: Uint8Array }): void {
    const { createTime, updateTime, deleteTime } = advisory
    const isListed = deleteTime === undefined
    advisory.uid = `${this.#group}/${segment}`
    advisory.etag = Buffer.from(hash).toString('hex')
    const body = toBinary(AdvisorySchema, advisory)
    const [createMs, updateMs] = [createTime, updateTime].map((time) => (time === undefined ? 0 : timestampMs(time)))
    const terms = Uint32Array.from(isListed ? termsOf(advisory, origin) : [], ([facet, value]) => this.#termOf(facet, value))
    const values = [segment, createMs ?? 0, updateMs ?? 0, isListed ? 1 : 0, hash, bytesOf(terms), origin, searchTextOf(advisory), body]
    this.#statements.write.run(id, this.#place, ...values)
    this.#pending += 1
    if (this.#pending >= advisoriesPerCommit) this.#commit()
  }

  #termOf(facet: AdvisoryFacet, value: string): number {
    const key = `${facets[facet]} ${value}`
    const known = this.#terms.get(key)
    if (known !== undefined) return known
    const { name, term } = this.#statements
    name.run(facets[facet], value)
    const id = Number(term.get(facets[facet], value)?.['id'])
    if (this.#terms.size >= rememberedTerms) this.#terms.clear()
    this.#terms.set(key, id)
    return id
  }
}

const sql = {
  find: 'SELECT id, hash FROM advisory WHERE place = ? AND segment = ?',
  seen: 'SELECT 1 FROM advisory a JOIN temp.seen s ON s.advisory = a.id WHERE a.place = ? AND a.segment = ?',
  next: 'SELECT coalesce(max(id), 0) + 1 AS id FROM advisory',
  see: 'INSERT INTO temp.seen (advisory) VALUES (?) ON CONFLICT DO NOTHING',
  write: `INSERT INTO advisory (id, place, segment, create_ms, update_ms, listed, hash, terms, origin, search, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET create_ms = excluded.create_ms, update_ms = excluded.update_ms, listed = excluded.listed, hash = excluded.hash,
      terms = excluded.terms, origin = excluded.origin, search = excluded.search, body = excluded.body`,
  remove: 'DELETE FROM advisory WHERE id = ?',
  name: 'INSERT INTO term (facet, value) VALUES (?, ?) ON CONFLICT DO NOTHING',
  term: 'SELECT id FROM term WHERE facet = ? AND value = ?',
} as const
