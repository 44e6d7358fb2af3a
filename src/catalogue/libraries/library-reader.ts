import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { trustedUid } from '../../base/uid.ts'
import type { ArtifactFilter, ArtifactPage, ArtifactQuery, FoundArtifact, VersionPage, VersionQuery } from '../../cache/lists/library-source.ts'
import { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { openForReading } from '../../store/sqlite/catalogue-file.ts'
import { NumberSet } from '../files/number-set.ts'
import { RowIndex } from '../files/row-index.ts'
import { artifactOf, isKnownEcosystem, knownEcosystems, prefixes } from './artifact-facts.ts'
import { libraryTables } from './library-tables.ts'
import { versionPage } from './version-page.ts'
import type { KnownEcosystem } from './version-orders.ts'

/** What a list may filter by. */
interface Term {
  readonly ecosystem: KnownEcosystem
  readonly remediated: boolean
  /** Empty for all. */
  readonly cuda: string
}

/** A catalogue of library artifacts: one file, open for reading. It never changes. Synchronous: LibraryThread reads it in a thread. */
export class LibraryReader {
  readonly #database: DatabaseSync
  readonly #row: StatementSync
  readonly #index: RowIndex

  /** `few` is for tests with small files. Throws CatalogueError if the file is no catalogue of this version. */
  constructor(path: string, { few }: { readonly few?: number } = {}) {
    this.#database = openForReading(path, libraryTables)
    this.#row = this.#database.prepare('SELECT ecosystem, name, body FROM artifact WHERE id = ?')
    this.#index = new RowIndex(this.#database, { uidOf: (id) => this.#artifact(id).uid, nameOf: (id) => this.#artifact(id).name }, few)
  }

  /** Returns the number of artifacts in each ecosystem that has some. */
  counts(): ReadonlyMap<Ecosystem, number> {
    const counts = knownEcosystems.map((ecosystem) => [ecosystem, this.#withTerm({ ecosystem, remediated: false, cuda: '' }).size] as const)
    return new Map(counts.filter(([, count]) => count > 0))
  }

  /** Returns one page of artifacts, in the order of the query. */
  artifacts({ filter, order, after, skip, limit }: ArtifactQuery): ArtifactPage {
    const set = this.#matching(filter)
    if (skip >= set.size) return { artifacts: [], total: set.size }
    const { createMs, updateMs } = this.#index.lists
    const artifacts = this.#index.page(set, { order, after, skip, limit }).map((ordinal): FoundArtifact => {
      const artifact = this.#artifact(this.#index.idAt(ordinal))
      return { ...artifact, createMs: createMs[ordinal] ?? 0, updateMs: updateMs[ordinal] ?? 0 }
    })
    return { artifacts, total: set.size }
  }

  /** Returns one page of the versions of an artifact; undefined if there is no such artifact. */
  versions(query: VersionQuery): VersionPage | undefined {
    const known = artifactOf(query.artifact)
    return known === undefined ? undefined : versionPage(this.#database, known, query)
  }

  /** Closes the file. */
  close(): void {
    this.#database.close()
  }

  #matching({ ecosystems, text, cuda = '', remediated }: ArtifactFilter): NumberSet {
    const known = ecosystems.filter(isKnownEcosystem)
    return this.#index.remembered(JSON.stringify([known, text, cuda, remediated]), () => {
      // Only Python artifacts have CUDA versions.
      const terms = known.map((ecosystem) => this.#withTerm({ ecosystem, remediated, cuda: ecosystem === Ecosystem.PYTHON ? cuda : '' }))
      const found = this.#index.union(terms)
      return text === '' || found.size === 0 ? found : NumberSet.intersection([found, this.#index.withText(text.toLowerCase())])
    })
  }

  #withTerm({ ecosystem, remediated, cuda }: Term): NumberSet {
    const row = this.#database
      .prepare('SELECT listed, ordinals FROM term WHERE ecosystem = ? AND remediated = ? AND cuda = ?')
      .get(ecosystem, remediated ? 1 : 0, cuda)
    return row === undefined ? this.#index.union([]) : this.#index.read(row['ordinals'] as Uint8Array, Number(row['listed'])) // a BLOB column
  }

  #artifact(id: number): Pick<FoundArtifact, 'uid' | 'name' | 'body'> {
    const { ecosystem, name, body } = this.#row.get(id) ?? {}
    // The builder writes known ecosystems.
    return { uid: trustedUid(`${prefixes[Number(ecosystem) as KnownEcosystem]}${String(name)}`), name: String(name), body: body as Uint8Array } // a BLOB column
  }
}
