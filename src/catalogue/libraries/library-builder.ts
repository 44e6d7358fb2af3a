import { createHash } from 'node:crypto'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { create, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { ArtifactSchema, Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { openForWriting, setMeta } from '../../store/sqlite/catalogue-file.ts'
import type { CatalogueWriter, PutOutcome, WriteTarget } from '../files/catalogue-writer.ts'
import { ImportedRows } from '../files/imported-rows.ts'
import { cudaVersionsIn, isRemediated, prefixes } from './artifact-facts.ts'
import { writeIndex } from './library-index.ts'
import { libraryTables } from './library-tables.ts'
import type { RankedVersion } from '../../base/versions/version-order.ts'
import { versionOrders, type KnownEcosystem } from './version-orders.ts'

/** A version on its way into a catalogue. Times are in milliseconds since 1970; undefined if the source does not say them. */
export interface NewVersion {
  readonly version: string
  readonly createMs: number | undefined
  readonly updateMs: number | undefined
  readonly sizeBytes: number
  /** Empty if the source says nothing about this version. */
  readonly description: string
  /** True for a version that its authors withdrew. It is never the latest one. */
  readonly withdrawn: boolean
}

/** An artifact on its way into a catalogue, with all of its versions. */
export interface NewArtifact {
  readonly ecosystem: KnownEcosystem
  /** In printable ASCII. */
  readonly name: string
  readonly description: string
  /** The version that the source calls the latest; undefined if it names none. */
  readonly latest: string | undefined
  /** The time of the last change if the source says it of the artifact alone. */
  readonly updateMs: number | undefined
  /** CUDA versions that the source states of the artifact. */
  readonly cuda: readonly string[]
  /** Each version once. */
  readonly versions: readonly NewVersion[]
}

/** Number of artifacts that are removed in one transaction. */
const artifactsPerCommit = 5_000

/** Returns the version to call the latest: that of the source, else the newest final one, else the newest. Withdrawn ones count last. */
function latestOf({ latest, versions }: NewArtifact, ranked: readonly RankedVersion[]): string {
  const withdrawn = new Set(versions.filter((version) => version.withdrawn).map(({ version }) => version))
  if (latest !== undefined && ranked.some(({ version }) => version === latest)) return latest
  const found =
    ranked.findLast(({ version, isFinal }) => isFinal && !withdrawn.has(version)) ?? ranked.findLast(({ version }) => !withdrawn.has(version)) ?? ranked.at(-1)
  return found?.version ?? ''
}

/** What lists need of an artifact. */
interface ArtifactSummary {
  readonly description: string
  readonly createMs: number
  readonly updateMs: number
  readonly remediated: boolean
  readonly body: Uint8Array
}

function summaryOf(row: NewArtifact, ranked: readonly RankedVersion[]): ArtifactSummary {
  const { ecosystem, name, versions } = row
  const latest = latestOf(row, ranked)
  let [createMs, updateMs] = [Infinity, row.updateMs ?? 0]
  for (const version of versions) {
    createMs = Math.min(createMs, version.createMs ?? Infinity)
    updateMs = Math.max(updateMs, version.updateMs ?? 0)
  }
  if (createMs === Infinity) createMs = 0
  const message = create(ArtifactSchema, {
    uid: `${prefixes[ecosystem]}${name}`,
    name,
    description: versions.find(({ version, withdrawn }) => version === latest && !withdrawn)?.description || row.description,
    ecosystem,
    latestVersion: latest,
    versionCount: versions.length,
    ...(createMs === 0 ? {} : { createTime: timestampFromMs(createMs) }),
    ...(updateMs === 0 ? {} : { updateTime: timestampFromMs(updateMs) }),
  })
  return {
    description: message.description,
    createMs,
    updateMs,
    remediated: versions.some(({ version }) => isRemediated(version)),
    body: toBinary(ArtifactSchema, message),
  }
}

/** Writes a catalogue of library artifacts. */
export class LibraryBuilder implements CatalogueWriter<NewArtifact> {
  readonly #database: DatabaseSync
  readonly #rows: ImportedRows
  readonly #statements: Readonly<Record<keyof typeof sql, StatementSync>>
  /** The ecosystems that this import put, with the number of artifacts. */
  readonly #put = new Map<KnownEcosystem, number>()
  #isChanged: boolean

  /** Throws an error of SQLite if the file cannot be written. */
  constructor({ path, isNew }: Pick<WriteTarget, 'path' | 'isNew'>) {
    this.#database = openForWriting(path, { tables: libraryTables, isNew })
    this.#isChanged = isNew
    this.#rows = new ImportedRows(this.#database)
    const names = Object.keys(sql) as (keyof typeof sql)[] // a constant's keys
    this.#statements = Object.fromEntries(names.map((name) => [name, this.#database.prepare(sql[name])])) as Record<keyof typeof sql, StatementSync>
  }

  put(row: NewArtifact): PutOutcome {
    const { ecosystem, name } = row
    const { find, add } = this.#statements
    const versions = row.versions.toSorted((a, b) => (a.version < b.version ? -1 : 1))
    const hash = createHash('sha256')
      .update(JSON.stringify({ ...row, cuda: row.cuda.toSorted(), versions }))
      .digest()
      .subarray(0, 16)
    const old = find.get(ecosystem, name)
    const outcome = old === undefined ? 'added' : this.#rows.outcomeOf({ id: Number(old['id']), hash: old['hash'] as Uint8Array }, hash) // a BLOB column
    if (outcome === 'repeated') return outcome
    this.#put.set(ecosystem, (this.#put.get(ecosystem) ?? 0) + 1)
    if (outcome === 'unchanged') return outcome
    const id = old === undefined ? Number(add.run(ecosystem, name).lastInsertRowid) : Number(old['id'])
    if (old === undefined) this.#rows.see(id)
    else this.#clear(id)
    this.#write(id, { ...row, versions }, hash)
    return outcome
  }

  removeOthers(): number {
    this.#rows.makeTable()
    const others = this.#database.prepare('SELECT id FROM artifact WHERE ecosystem = ? AND id NOT IN (SELECT id FROM temp.seen) LIMIT ?')
    let removed = 0
    for (const ecosystem of this.#put.keys()) {
      for (let rows = others.all(ecosystem, artifactsPerCommit); rows.length > 0; rows = others.all(ecosystem, artifactsPerCommit)) {
        for (const { id } of rows) {
          this.#clear(Number(id))
          this.#statements.remove.run(Number(id))
        }
        removed += rows.length
        this.#rows.commit()
      }
    }
    return removed
  }

  finish({ source, nowMs }: { readonly source: string; readonly nowMs: number }): void {
    const database = this.#database
    for (const [ecosystem, count] of this.#put) this.#statements.note.run(ecosystem, source, nowMs, count)
    setMeta(database, 'built_ms', String(nowMs))
    this.#rows.commit()
    if (this.#isChanged) writeIndex(database)
    this.#rows.end()
    database.close()
  }

  abandon(): void {
    this.#database.close()
  }

  /** Removes what belongs to an artifact. */
  #clear(id: number): void {
    this.#isChanged = true
    this.#statements.unversion.run(id)
    this.#statements.uncuda.run(id)
  }

  #write(id: number, row: NewArtifact, hash: Uint8Array): void {
    this.#isChanged = true
    const ranked = versionOrders[row.ecosystem].ranked(row.versions.map(({ version }) => version))
    const summary = summaryOf(row, ranked)
    const { createMs, updateMs, remediated, body } = summary
    this.#statements.write.run(createMs, updateMs, remediated ? 1 : 0, hash, body, id)
    const byText = new Map(row.versions.map((version) => [version.version, version]))
    for (const { version, rank } of ranked) {
      const { createMs: from = 0, updateMs: to = 0, sizeBytes = 0, description = '' } = byText.get(version) ?? {}
      this.#statements.version.run(id, rank, version, from, to, sizeBytes, description === '' || description === summary.description ? null : description)
    }
    if (row.ecosystem === Ecosystem.PYTHON) {
      const cuda = new Set([...row.cuda, ...row.versions.flatMap(({ version }) => cudaVersionsIn(version))])
      for (const value of cuda) this.#statements.cuda.run(value, id)
    }
    this.#rows.written()
  }
}

const sql = {
  find: 'SELECT id, hash FROM artifact WHERE ecosystem = ? AND name = ?',
  add: "INSERT INTO artifact (ecosystem, name, create_ms, update_ms, remediated, hash, body) VALUES (?, ?, 0, 0, 0, '', '')",
  write: 'UPDATE artifact SET create_ms = ?, update_ms = ?, remediated = ?, hash = ?, body = ? WHERE id = ?',
  remove: 'DELETE FROM artifact WHERE id = ?',
  version: 'INSERT INTO version (artifact, rank, version, create_ms, update_ms, size_bytes, description) VALUES (?, ?, ?, ?, ?, ?, ?)',
  unversion: 'DELETE FROM version WHERE artifact = ?',
  cuda: 'INSERT INTO cuda (value, artifact) VALUES (?, ?)',
  uncuda: 'DELETE FROM cuda WHERE artifact = ?',
  note: `INSERT INTO source (ecosystem, name, imported_ms, artifacts) VALUES (?, ?, ?, ?)
    ON CONFLICT (ecosystem, name) DO UPDATE SET imported_ms = excluded.imported_ms, artifacts = excluded.artifacts`,
} as const
