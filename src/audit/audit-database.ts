import { createHash } from 'node:crypto'
import { closeSync, openSync, rmSync } from 'node:fs'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import type { AuditEvent } from '../base/audit-line.ts'
import type { AuditPage, AuditPlace, AuditQuery } from '../engine/audit-query.ts'
import { isUid, lineage } from '../base/uid.ts'

/** Version of the schema below. A file of another version is made again. */
const schemaVersion = 1

/** `postings` has one row for each event and each of its terms, so a question reads the events of one term in order. */
const schema = `
  CREATE TABLE events (time INTEGER NOT NULL, id BLOB NOT NULL, body TEXT NOT NULL, PRIMARY KEY (time, id)) WITHOUT ROWID;
  CREATE TABLE postings (term INTEGER NOT NULL, time INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (term, time, id)) WITHOUT ROWID;
  CREATE TABLE segments (name TEXT PRIMARY KEY) WITHOUT ROWID;
  PRAGMA user_version = ${schemaVersion};
`

/** Rows that one question looks at. After so many it answers what it found, and where to go on. */
const maxLooked = 5_000
/** Rows of one statement. */
const maxStep = 1_000
/** Terms are compared up to this number of events. */
const maxCounted = 2_000
/** Up to this number of groups, each is read by itself. */
const fewGroups = 16
/** Up to this number of groups, the database tests them. Above it, only the events that it finds are tested. */
const maxTestedGroups = 256
/** Events that are removed at once. In an index of a million events, each takes about a millisecond, and questions wait. */
const removedAtOnce = 40

/** The fields by which events are found, and the texts of an event for each. A term is the hash of both. */
const fields = {
  group: ({ group, root }: AuditEvent) => {
    const place = group ?? root
    return place !== undefined && isUid(place) ? [...lineage(place)] : []
  },
  actor: ({ identity }: AuditEvent) => [identity],
  resource: ({ subject }: AuditEvent) => [subject],
  capability: ({ capability }: AuditEvent) => capability?.split(',') ?? [],
  outcome: ({ outcome }: AuditEvent) => [outcome],
  method: ({ method }: AuditEvent) => [method],
} as const satisfies Record<string, (event: AuditEvent) => readonly (string | undefined)[]>

type FieldName = keyof typeof fields
const fieldNames = Object.keys(fields) as FieldName[]
const exactFields = ['actor', 'resource', 'capability', 'outcome', 'method'] as const satisfies readonly FieldName[]

/** Returns 48 bits of a hash. Two texts can share a term: each event that is found by terms is tested again. */
function termOf(field: FieldName, text: string): number {
  return createHash('sha256').update(`${field} ${text}`).digest().readUIntBE(0, 6)
}

function termsOf(event: AuditEvent): Set<number> {
  const terms = new Set<number>()
  for (const field of fieldNames) for (const text of fields[field](event)) if (text !== undefined) terms.add(termOf(field, text))
  return terms
}

/** A question, with its groups as a set. */
interface Question extends Omit<AuditQuery, 'groups'> {
  readonly groups: ReadonlySet<string> | undefined
}

function matches(event: AuditEvent, query: Question): boolean {
  const { groups } = query
  if (groups !== undefined && !fields.group(event).some((group) => groups.has(group))) return false
  return exactFields.every((field) => query[field] === undefined || (fields[field](event) as readonly (string | undefined)[]).includes(query[field]))
}

/** An event and its place. */
interface Hit {
  readonly place: AuditPlace
  readonly event: AuditEvent
}

/** What one scan found. Behind `reached` there may be more; undefined: nothing is left. */
interface Scanned {
  readonly hits: readonly Hit[]
  readonly reached: AuditPlace | undefined
}

/** A scan reads the events of one term, or all, and tests further terms. */
interface Scan {
  readonly term: number | undefined
  /** An event needs one term of each set. */
  readonly tested: readonly (readonly number[])[]
  /** Hits to find, and rows to look at, at most. */
  readonly wanted: number
  readonly looked: number
}

/** Milliseconds since 1970 that no event reaches. */
const endOfTimeMs = 2 ** 52

/** The index of audit events: an SQLite file. Synchronous. It belongs to one thread of one process. */
export class AuditDatabase {
  readonly #database: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()

  private constructor(database: DatabaseSync) {
    this.#database = database
  }

  /** Opens the file, or makes it (mode 0600). Unless `isDurable`, the loss of power can cost the last events. A file that is damaged, or of another version, is replaced by an empty one. Throws the driver's errors. */
  static open(path: string, isDurable: boolean): AuditDatabase {
    try {
      const database = prepared(path, isDurable)
      if (database !== undefined) return new AuditDatabase(database)
    } catch (error) {
      if (!isDamage(error)) throw error
    }
    for (const file of [path, `${path}-wal`, `${path}-shm`]) rmSync(file, { force: true })
    const database = prepared(path, isDurable)
    if (database === undefined) throw new Error('a new index of audit events has another version')
    return new AuditDatabase(database)
  }

  /** Adds the events of JSON lines. Those that are there are left as they are. Returns how many are new. Lines that are no event are ignored. */
  insert(lines: readonly string[]): number {
    let added = 0
    this.#atomically(() => {
      for (const text of lines) if (this.#insertOne(text)) added += 1
    })
    return added
  }

  /** Returns a page of events. Reads at most a bounded number of rows. */
  read(query: AuditQuery): AuditPage {
    const wanted = query.skip + query.limit + 1
    const question = { ...query, groups: query.groups === undefined ? undefined : new Set(query.groups) }
    const scans = this.#scansOf(query, wanted).map((scan) => this.#scan(question, scan))
    const sign = query.newestFirst ? -1 : 1
    const horizon = scans
      .flatMap(({ reached }) => (reached === undefined ? [] : [reached]))
      .toSorted((one, other) => sign * comparePlaces(one, other))
      .at(0)
    const hits = scans
      .flatMap((scan) => scan.hits)
      .filter(({ place }) => horizon === undefined || sign * comparePlaces(place, horizon) <= 0)
      .toSorted((one, other) => sign * comparePlaces(one.place, other.place))
    const page = hits.slice(query.skip, query.skip + query.limit)
    const events = page.map(({ event }) => event)
    const last = page.at(-1)
    if (hits.length >= wanted && last !== undefined) return { events, next: { after: last.place, skip: 0 } }
    return { events, next: horizon === undefined ? undefined : { after: horizon, skip: Math.max(0, query.skip - hits.length) } }
  }

  /** Removes some of the events that are older than `timeMs`, or the oldest ones while the file has more than `maxBytes` in use. Returns true if there may be more. */
  expire({ timeMs, maxBytes }: { readonly timeMs: number; readonly maxBytes: number }): boolean {
    const isFull = this.#usedBytes() > maxBytes
    const rows = this.#prepare('SELECT time, id, body FROM events WHERE time < ? ORDER BY time, id LIMIT ?').all(isFull ? endOfTimeMs : timeMs, removedAtOnce)
    this.#atomically(() => {
      for (const { time, id, body } of rows) {
        for (const term of termsOf(JSON.parse(String(body)) as AuditEvent))
          this.#prepare('DELETE FROM postings WHERE term = ? AND time = ? AND id = ?').run(term, time ?? 0, id ?? '')
        this.#prepare('DELETE FROM events WHERE time = ? AND id = ?').run(time ?? 0, id ?? '')
      }
    })
    return rows.length === removedAtOnce
  }

  /** Returns the names of the segments that are in the index. */
  segments(): string[] {
    return this.#prepare('SELECT name FROM segments')
      .all()
      .map(({ name }) => String(name))
  }

  /** Notes that all events of a segment are in the index. */
  addSegment(name: string): void {
    this.#prepare('INSERT OR IGNORE INTO segments VALUES (?)').run(name)
  }

  /** Forgets segments with a name before `name`. */
  forgetSegments(name: string): void {
    this.#prepare('DELETE FROM segments WHERE name < ?').run(name)
  }

  /** Closes the file. */
  close(): void {
    if (this.#database.isOpen) this.#database.close()
  }

  #insertOne(text: string): boolean {
    const event = parsedEvent(text)
    if (event === undefined) return false
    const [time, id] = [Date.parse(event.time), Buffer.from(event.id.replaceAll('-', ''), 'hex')]
    if (!Number.isFinite(time) || id.length !== 16) return false
    if (this.#prepare('INSERT OR IGNORE INTO events VALUES (?, ?, ?)').run(time, id, text).changes === 0) return false
    for (const term of termsOf(event)) this.#prepare('INSERT OR IGNORE INTO postings VALUES (?, ?, ?)').run(term, time, id)
    return true
  }

  /** Chooses what to read: the events of the rarest term, or those of each group. */
  #scansOf(query: AuditQuery, wanted: number): Scan[] {
    const terms = exactFields.flatMap((field) => (query[field] === undefined ? [] : [termOf(field, query[field])]))
    const groups = query.groups?.map((group) => termOf('group', group))
    const counted = terms.map((term) => ({ term, count: this.#count(term, query) }))
    const rarest = counted.toSorted((one, other) => one.count - other.count).at(0)
    const tested = (but: number | undefined): number[][] => terms.filter((term) => term !== but).map((term) => [term])
    const byGroup = groups !== undefined && groups.length <= fewGroups ? groups.reduce((sum, term) => sum + this.#count(term, query), 0) : Infinity
    if (groups !== undefined && byGroup <= (rarest?.count ?? maxCounted * fewGroups)) {
      const looked = Math.ceil(maxLooked / Math.max(1, groups.length))
      return groups.map((term) => ({ term, tested: tested(undefined), wanted, looked }))
    }
    const inGroups = groups === undefined || groups.length > maxTestedGroups ? [] : [groups]
    return [{ term: rarest?.term, tested: [...tested(rarest?.term), ...inGroups], wanted, looked: maxLooked }]
  }

  #count(term: number, { startMs = 0, endMs = endOfTimeMs }: AuditQuery): number {
    const text = 'SELECT count(*) AS count FROM (SELECT 1 FROM postings WHERE term = ? AND time >= ? AND time < ? LIMIT ?)'
    return Number(this.#prepare(text).get(term, startMs, endMs, maxCounted)?.['count'])
  }

  #scan(query: Question, scan: Scan): Scanned {
    const statement = this.#prepare(scanText(scan, query.newestFirst))
    const { startMs = 0, endMs = endOfTimeMs } = query
    let from = query.after ?? { timeMs: query.newestFirst ? endMs : startMs, id: '' }
    const hits: Hit[] = []
    for (let looked = 0; looked < scan.looked;) {
      const step = Math.min(maxStep, scan.looked - looked, scan.tested.length === 0 ? scan.wanted - hits.length : maxStep)
      const bound = query.newestFirst ? startMs : endMs
      const terms = scan.term === undefined ? [] : [scan.term]
      const rows = statement.all(...scan.tested.flat(), ...terms, from.timeMs, Buffer.from(from.id, 'hex'), bound, step)
      for (const { time, id, body } of rows) {
        from = { timeMs: Number(time), id: Buffer.from(id as Uint8Array).toString('hex') } // as the schema says
        if (body === null) continue
        const event = JSON.parse(String(body)) as AuditEvent // only insert writes there
        if (!matches(event, query)) continue
        hits.push({ place: from, event })
        if (hits.length === scan.wanted) return { hits, reached: from }
      }
      looked += rows.length
      if (rows.length < step) return { hits, reached: undefined }
    }
    return { hits, reached: from }
  }

  #usedBytes(): number {
    const [pages = 0, free = 0, size = 0] = ['page_count', 'freelist_count', 'page_size'].map((name) => Number(this.#prepare(`PRAGMA ${name}`).get()?.[name]))
    return (pages - free) * size
  }

  #atomically(work: () => void): void {
    this.#database.exec('BEGIN IMMEDIATE')
    try {
      work()
      this.#database.exec('COMMIT')
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      throw error
    }
  }

  #prepare(text: string): StatementSync {
    let statement = this.#statements.get(text)
    if (statement === undefined) {
      // Scans of many groups have texts of their own.
      if (this.#statements.size > 100) this.#statements.clear()
      statement = this.#database.prepare(text)
      this.#statements.set(text, statement)
    }
    return statement
  }
}

/** Returns the statement of a scan. Its parameters: the tested terms, the term, time and id to begin after, the bound of time, and the number of rows. */
function scanText({ term, tested }: Scan, newestFirst: boolean): string {
  const tests = tested.map((set) => `EXISTS (SELECT 1 FROM postings p WHERE p.term IN (${set.map(() => '?').join()}) AND p.time = d.time AND p.id = d.id)`)
  const body = term === undefined ? 'd.body' : '(SELECT body FROM events e WHERE e.time = d.time AND e.id = d.id)'
  const shown = tests.length === 0 ? body : `CASE WHEN ${tests.join(' AND ')} THEN ${body} END`
  const source = term === undefined ? 'events d WHERE' : 'postings d WHERE d.term = ? AND'
  const range = newestFirst ? '(d.time, d.id) < (?, ?) AND d.time >= ?' : '(d.time, d.id) > (?, ?) AND d.time < ?'
  const order = newestFirst ? 'DESC' : 'ASC'
  return `SELECT d.time AS time, d.id AS id, ${shown} AS body FROM ${source} ${range} ORDER BY d.time ${order}, d.id ${order} LIMIT ?`
}

function comparePlaces(one: AuditPlace, other: AuditPlace): number {
  return one.timeMs - other.timeMs || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0)
}

function parsedEvent(text: string): AuditEvent | undefined {
  try {
    const parsed: unknown = JSON.parse(text)
    const isEvent = typeof parsed === 'object' && parsed !== null && 'id' in parsed && 'time' in parsed && typeof parsed.id === 'string'
    return isEvent ? (parsed as AuditEvent) : undefined // written by this program
  } catch {
    return undefined
  }
}

/** Opens the file and makes the schema. Returns undefined for a file of another version. */
function prepared(path: string, isDurable: boolean): DatabaseSync | undefined {
  closeSync(openSync(path, 'a', 0o600))
  const database = new DatabaseSync(path)
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA cache_size = -65536')
    database.exec(`PRAGMA synchronous = ${isDurable ? 'FULL' : 'NORMAL'}`)
    const version = Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
    if (version === schemaVersion) return database
    if (version === 0) {
      database.exec(`BEGIN IMMEDIATE; ${schema} COMMIT`)
      return database
    }
  } catch (error) {
    database.close()
    throw error
  }
  database.close()
  return undefined
}

/** True for SQLITE_CORRUPT and SQLITE_NOTADB. */
function isDamage(error: unknown): boolean {
  const code = error instanceof Error && 'errcode' in error ? Number(error.errcode) & 0xff : 0
  return code === 11 || code === 26
}
