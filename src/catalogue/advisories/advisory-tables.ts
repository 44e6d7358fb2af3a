import type { AdvisoryFacet } from '../../cache/lists/advisory-source.ts'
import type { CatalogueTables } from '../files/catalogue-file.ts'

/**
 * The numbers of facets in the file. `eventState`, `eventAuthor`, `eventReviewer` and `eventType` have the values of all events of
 * an advisory; `latestType` has the type of its newest approved event.
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
} as const satisfies Record<AdvisoryFacet, number>

/**
 * The tables. Withdrawn advisories are in `advisory` alone: lists leave them out, Get finds them.
 * - `advisory`: `segment` is the last part of the uid, `body` the protobuf bytes of the Advisory
 * - `posting`: which advisories have a term. A term is one value of one facet
 * - `term_count`: the number of advisories by term and group, so that counts of one value need no search
 * - `search`: the lower-case texts that `query` searches, as trigrams
 * - `osv`: the OsvFacts of advisories as JSON
 */
export const advisoryTables: CatalogueTables = {
  version: 1,
  sql: `
CREATE TABLE source (id INTEGER PRIMARY KEY, group_uid TEXT NOT NULL, name TEXT NOT NULL, imported_ms INTEGER NOT NULL, advisories INTEGER NOT NULL,
  UNIQUE (group_uid, name));
CREATE TABLE place (id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, listed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE advisory (id INTEGER PRIMARY KEY, place INTEGER NOT NULL, segment TEXT NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL,
  listed INTEGER NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (place, segment));
CREATE TABLE term (id INTEGER PRIMARY KEY, facet INTEGER NOT NULL, value TEXT NOT NULL, UNIQUE (facet, value));
CREATE TABLE posting (term INTEGER NOT NULL, advisory INTEGER NOT NULL, PRIMARY KEY (term, advisory)) WITHOUT ROWID;
CREATE INDEX posting_advisory ON posting (advisory);
CREATE TABLE term_count (term INTEGER NOT NULL, place INTEGER NOT NULL, listed INTEGER NOT NULL, PRIMARY KEY (term, place)) WITHOUT ROWID;
CREATE INDEX advisory_created ON advisory (place, create_ms, segment) WHERE listed = 1;
CREATE INDEX advisory_updated ON advisory (place, update_ms, segment) WHERE listed = 1;
CREATE INDEX advisory_listed ON advisory (place, segment) WHERE listed = 1;
CREATE VIRTUAL TABLE search USING fts5(artifact, component, aliases, tokenize = 'trigram case_sensitive 1', detail = full);
`,
  added: { osv: 'advisory INTEGER PRIMARY KEY, facts TEXT NOT NULL' },
}
