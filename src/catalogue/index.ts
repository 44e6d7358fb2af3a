// What other folders may import of the catalogue. They import nothing else of it.
export type { ImportRefusal } from './import/run-import.ts'
export { getAdvisory, listAdvisories } from './advisories/list-advisories.ts'
export type { RowCounts } from './import/run-import.ts'
export { groupNamed } from './import/named-group.ts'
export { Catalogues, type PublishedImport } from './publish/catalogues.ts'
export { listCatalogues, listFeeds, pruneCatalogues, runFeed, useCatalogue } from './publish/catalogue-methods.ts'
export { feedRequestPrefix } from './feeds/feed-state.ts'
export { Feeds, type FeedObserver } from './feeds/feeds.ts'
