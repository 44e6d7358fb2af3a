import type { AdvisorySource } from './advisory-source.ts'

/** What is read of each kind of catalogue. */
export interface CatalogueSources {
  readonly advisories: AdvisorySource
}

/** A kind of catalogue. */
export type CatalogueKind = keyof CatalogueSources
