import type { FactFacet } from './facts.ts'
import type { CatalogueTables } from '../../store/sqlite/catalogue-file.ts'
import { listTables } from '../files/row-lists.ts'

/**
 * The numbers of facets in the file. `eventState`, `eventAuthor`, `eventReviewer` and `eventType` have the values of all events of
 * an advisory; `latestType` has the type of its newest approved event. `packageName` has the component's name as its ecosystem compares it.
 */
export const facets = {
  advisoryId: 1,
  legacyId: 2,
  artifactName: 3,
  artifactType: 4,
  artifactArchitecture: 5,
  componentName: 6,
  componentType: 7,
  componentLocation: 8,
  alias: 9,
  origin: 10,
  eventState: 11,
  eventAuthor: 12,
  eventReviewer: 13,
  eventType: 14,
  latestType: 15,
  packageName: 16,
} as const satisfies Record<FactFacet, number>

/**
 * The tables. Withdrawn advisories are in `advisory` alone: lists leave them out, Get finds them.
 * - `advisory`: `segment` is the last part of the uid, `origin` the package that the artifact is built from, `search` the lower-case texts that `query`
 *   searches, `terms` the numbers of its terms, `body` the protobuf bytes of the Advisory, `facts` the OsvFacts as JSON
 * - `term`: a value of a facet
 *
 * The end of an import makes the others from them, and those of `listTables`. Sets have the ordinals of advisories.
 * - `place`: `ordinals` is the set of the group's advisories
 * - `term_set`: the advisories of each term
 */
export const advisoryTables: CatalogueTables = {
  version: 3,
  sql: `
CREATE TABLE source (id INTEGER PRIMARY KEY, group_uid TEXT NOT NULL, name TEXT NOT NULL, imported_ms INTEGER NOT NULL, advisories INTEGER NOT NULL,
  UNIQUE (group_uid, name));
CREATE TABLE place (id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, listed INTEGER NOT NULL DEFAULT 0, ordinals BLOB);
CREATE TABLE advisory (id INTEGER PRIMARY KEY, place INTEGER NOT NULL, segment TEXT NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL,
  listed INTEGER NOT NULL, hash BLOB NOT NULL, terms BLOB NOT NULL, origin TEXT NOT NULL, search TEXT NOT NULL,
  facts TEXT, body BLOB NOT NULL, UNIQUE (place, segment));
CREATE TABLE term (id INTEGER PRIMARY KEY, facet INTEGER NOT NULL, value TEXT NOT NULL, UNIQUE (facet, value));
CREATE TABLE term_set (term INTEGER PRIMARY KEY, listed INTEGER NOT NULL, ordinals BLOB NOT NULL);
${listTables}`,
}
