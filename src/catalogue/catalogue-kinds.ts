import type { CatalogueKind, CatalogueSources } from '../cache/lists/catalogue-sources.ts'
import { AdvisoryBuilder, type NewAdvisory } from './advisories/advisory-builder.ts'
import { advisoryTables } from './advisories/advisory-tables.ts'
import { AdvisoryThread } from './advisories/advisory-thread.ts'
import { LibraryBuilder, type NewArtifact } from './libraries/library-builder.ts'
import { libraryTables } from './libraries/library-tables.ts'
import { LibraryThread } from './libraries/library-thread.ts'
import { LifecycleBuilder, type NewLifecycle } from './lifecycle/lifecycle-builder.ts'
import { lifecycleTables } from './lifecycle/lifecycle-tables.ts'
import { LifecycleThread } from './lifecycle/lifecycle-thread.ts'
import type { CatalogueTables } from '../store/sqlite/catalogue-file.ts'
import type { CatalogueWriter, WriteTarget } from './files/catalogue-writer.ts'
import { VulnerabilityBuilder, type NewVulnerability } from './vulnerabilities/vulnerability-builder.ts'
import { vulnerabilityTables } from './vulnerabilities/vulnerability-tables.ts'
import { VulnerabilityThread } from './vulnerabilities/vulnerability-thread.ts'

/** The rows of each kind of catalogue, as imports make them. */
export interface CatalogueRows {
  readonly advisories: NewAdvisory
  readonly vulnerabilities: NewVulnerability
  readonly libraries: NewArtifact
  readonly lifecycle: NewLifecycle
}

/** A row with its kind. */
export type ImportRow = { readonly [Kind in CatalogueKind]: { readonly kind: Kind; readonly row: CatalogueRows[Kind] } }[CatalogueKind]

/** A source that a process serves: close it after its last query. */
export type OpenSource<Kind extends CatalogueKind> = CatalogueSources[Kind] & { close(): Promise<void> }

/** What is different for each kind of catalogue. */
interface KindOfCatalogue<Kind extends CatalogueKind> {
  readonly tables: CatalogueTables
  /** The media type of its file as a layer of an OCI artifact. */
  readonly mediaType: string
  /** Returns the name of a row for people, for example its id. */
  nameOf(row: CatalogueRows[Kind]): string
  /** Throws an error of SQLite if the file cannot be written. */
  write(target: WriteTarget): CatalogueWriter<CatalogueRows[Kind]>
  /** Opens a file for reading, in place of `before`. Rejects with CatalogueError if it is no catalogue of this version. */
  open(path: string, before: OpenSource<Kind> | undefined): Promise<OpenSource<Kind>>
}

/** All kinds of catalogues. */
export const catalogueKinds: { readonly [Kind in CatalogueKind]: KindOfCatalogue<Kind> } = {
  advisories: {
    tables: advisoryTables,
    mediaType: 'application/vnd.taproot.catalogue.advisories.v1+sqlite',
    nameOf: ({ advisory }) => advisory.advisoryId,
    write: (target) => new AdvisoryBuilder(target),
    open: AdvisoryThread.open,
  },
  vulnerabilities: {
    tables: vulnerabilityTables,
    mediaType: 'application/vnd.taproot.catalogue.vulnerabilities.v1+sqlite',
    nameOf: ({ metadata }) => metadata.id,
    write: (target) => new VulnerabilityBuilder(target),
    open: VulnerabilityThread.open,
  },
  libraries: {
    tables: libraryTables,
    mediaType: 'application/vnd.taproot.catalogue.libraries.v1+sqlite',
    nameOf: ({ name }) => name,
    write: (target) => new LibraryBuilder(target),
    open: LibraryThread.open,
  },
  lifecycle: {
    tables: lifecycleTables,
    mediaType: 'application/vnd.taproot.catalogue.lifecycle.v1+sqlite',
    nameOf: ({ product, cycle }) => `${product} ${cycle.cycle}`,
    write: (target) => new LifecycleBuilder(target),
    open: LifecycleThread.open,
  },
}

/** The names of all kinds. */
export const catalogueKindNames = Object.keys(catalogueKinds) as readonly CatalogueKind[] // of the table
