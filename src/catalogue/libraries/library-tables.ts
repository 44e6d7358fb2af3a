import type { CatalogueTables } from '../files/catalogue-file.ts'

/**
 * The tables. Imports change `artifact`, `cuda` and `version`; the end of an import makes the others from them.
 * - `artifact`: `body` is the Artifact as protobuf bytes, `hash` that of the imported row
 * - `cuda`: the CUDA versions of Python artifacts
 * - `version`: `rank` is the place in the order of the ecosystem, from 1 for the oldest; 0 for what is no version. A missing description is that of the artifact
 * - `listed`: the artifacts by ecosystem and name. `rank` is their place in this order
 * - `term`: what a list may filter by: an ecosystem, alone or with a CUDA version, of all or only remediated artifacts. `listed` is their number, and
 *   `ties` the greatest number of them that share a time
 * - `entry`: the artifacts of each term
 * - `search`: the names as trigrams
 */
export const libraryTables: CatalogueTables = {
  version: 1,
  sql: `
CREATE TABLE source (ecosystem INTEGER NOT NULL, name TEXT NOT NULL, imported_ms INTEGER NOT NULL, artifacts INTEGER NOT NULL, PRIMARY KEY (ecosystem, name)) WITHOUT ROWID;
CREATE TABLE artifact (id INTEGER PRIMARY KEY, ecosystem INTEGER NOT NULL, name TEXT NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL,
  remediated INTEGER NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (ecosystem, name));
CREATE TABLE cuda (value TEXT NOT NULL, artifact INTEGER NOT NULL, PRIMARY KEY (value, artifact)) WITHOUT ROWID;
CREATE INDEX cuda_artifact ON cuda (artifact);
CREATE TABLE version (artifact INTEGER NOT NULL, rank INTEGER NOT NULL, version TEXT NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL, description TEXT, PRIMARY KEY (artifact, rank, version)) WITHOUT ROWID;
CREATE TABLE listed (rank INTEGER PRIMARY KEY, artifact INTEGER NOT NULL, name TEXT NOT NULL);
CREATE TABLE term (id INTEGER PRIMARY KEY, ecosystem INTEGER NOT NULL, remediated INTEGER NOT NULL, cuda TEXT NOT NULL, listed INTEGER NOT NULL DEFAULT 0,
  ties INTEGER NOT NULL DEFAULT 0, UNIQUE (ecosystem, remediated, cuda));
CREATE TABLE entry (term INTEGER NOT NULL, rank INTEGER NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL, PRIMARY KEY (term, rank)) WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5(name, content = 'listed', content_rowid = 'rank', tokenize = 'trigram case_sensitive 0', detail = full);
`,
}

/** The statements that rebuild the tables for lists. Indexes are made after their tables are filled, which is much faster. */
export const listTables = `
DROP INDEX IF EXISTS entry_created;
DROP INDEX IF EXISTS entry_updated;
DELETE FROM entry;
DELETE FROM term;
DELETE FROM listed;
INSERT INTO listed (artifact, name) SELECT id, name FROM artifact ORDER BY ecosystem, name;
CREATE INDEX listed_artifact ON listed (artifact);
INSERT INTO term (ecosystem, remediated, cuda)
  SELECT DISTINCT a.ecosystem, r.value, c.value FROM (SELECT id, ecosystem, remediated FROM artifact) a, json_each('[0, 1]') r, (SELECT '' AS value) c
    WHERE r.value <= a.remediated
  UNION SELECT a.ecosystem, r.value, c.value FROM cuda c JOIN artifact a ON a.id = c.artifact, json_each('[0, 1]') r WHERE r.value <= a.remediated;
INSERT INTO entry (term, rank, create_ms, update_ms)
  SELECT t.id, l.rank, a.create_ms, a.update_ms FROM term t CROSS JOIN listed l CROSS JOIN artifact a ON a.id = l.artifact
  WHERE t.cuda = '' AND a.ecosystem = t.ecosystem AND a.remediated >= t.remediated;
INSERT INTO entry (term, rank, create_ms, update_ms)
  SELECT t.id, l.rank, a.create_ms, a.update_ms FROM term t CROSS JOIN cuda c ON c.value = t.cuda CROSS JOIN artifact a ON a.id = c.artifact
  CROSS JOIN listed l ON l.artifact = a.id WHERE t.cuda <> '' AND a.ecosystem = t.ecosystem AND a.remediated >= t.remediated;
DROP INDEX listed_artifact;
CREATE INDEX entry_created ON entry (term, create_ms, rank);
CREATE INDEX entry_updated ON entry (term, update_ms, rank);
UPDATE term SET listed = (SELECT count(*) FROM entry e WHERE e.term = term.id),
  ties = max((SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM entry e WHERE e.term = term.id GROUP BY e.create_ms)),
    (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM entry e WHERE e.term = term.id GROUP BY e.update_ms)));
INSERT INTO search (search) VALUES ('rebuild');
`
