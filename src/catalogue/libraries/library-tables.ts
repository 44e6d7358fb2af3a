import type { CatalogueTables } from '../../store/sqlite/catalogue-file.ts'
import { listTables } from '../files/row-lists.ts'

/**
 * The tables. Imports change `artifact`, `cuda` and `version`; the end of an import makes the others from them.
 * - `artifact`: `body` is the Artifact as protobuf bytes, `hash` that of the imported row
 * - `cuda`: the CUDA versions of Python artifacts
 * - `version`: `rank` is the place in the order of the ecosystem, from 1 for the oldest; 0 for what is no version. A missing description is that of the artifact
 * - `term`: what a list may filter by: an ecosystem, alone or with a CUDA version, of all or only remediated artifacts. `ordinals` is the set of them
 */
export const libraryTables: CatalogueTables = {
  version: 2,
  sql: `
CREATE TABLE source (ecosystem INTEGER NOT NULL, name TEXT NOT NULL, imported_ms INTEGER NOT NULL, artifacts INTEGER NOT NULL, PRIMARY KEY (ecosystem, name)) WITHOUT ROWID;
CREATE TABLE artifact (id INTEGER PRIMARY KEY, ecosystem INTEGER NOT NULL, name TEXT NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL,
  remediated INTEGER NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (ecosystem, name));
CREATE TABLE cuda (value TEXT NOT NULL, artifact INTEGER NOT NULL, PRIMARY KEY (value, artifact)) WITHOUT ROWID;
CREATE INDEX cuda_artifact ON cuda (artifact);
CREATE TABLE version (artifact INTEGER NOT NULL, rank INTEGER NOT NULL, version TEXT NOT NULL, create_ms INTEGER NOT NULL, update_ms INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL, description TEXT, PRIMARY KEY (artifact, rank, version)) WITHOUT ROWID;
CREATE TABLE term (ecosystem INTEGER NOT NULL, remediated INTEGER NOT NULL, cuda TEXT NOT NULL, listed INTEGER NOT NULL, ordinals BLOB NOT NULL,
  PRIMARY KEY (ecosystem, remediated, cuda));
${listTables}`,
}
