import type { CatalogueTables } from '../../store/sqlite/catalogue-file.ts'

/**
 * The tables of a catalogue of life cycles:
 * - `cycle`: `body` is a LifecycleCycle as JSON, `hash` that of the imported row
 * - `product`: the products that have cycles
 * - `key`: what products are looked up by: their names (`rank` 0) and aliases (1) in lower case, and the package URLs of their packages (2). The lowest rank wins
 * - `source`: where cycles came from
 */
export const lifecycleTables: CatalogueTables = {
  version: 1,
  sql: `
CREATE TABLE source (name TEXT PRIMARY KEY, imported_ms INTEGER NOT NULL, cycles INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE product (name TEXT PRIMARY KEY, label TEXT NOT NULL, category TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE key (key TEXT NOT NULL, rank INTEGER NOT NULL, product TEXT NOT NULL, PRIMARY KEY (key, rank, product)) WITHOUT ROWID;
CREATE INDEX key_product ON key (product);
CREATE TABLE cycle (id INTEGER PRIMARY KEY, product TEXT NOT NULL, cycle TEXT NOT NULL, hash BLOB NOT NULL,
  body TEXT NOT NULL, UNIQUE (product, cycle));
`,
}
