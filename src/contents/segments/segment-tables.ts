import type { CatalogueTables } from '../../store/sqlite/catalogue-file.ts'

/**
 * The tables of a segment:
 * - `image`: the images that were read. `facts` is ContentsFacts as JSON, `packages` the number of packages
 * - `package`: each package once. `hash` is that of the other columns, `licenses` a list of texts as JSON
 * - `contains`: which image has which package. `locations` is a list of paths as JSON
 * - `member`: which image is in which index
 */
export const segmentTables: CatalogueTables & { readonly indexes: string } = {
  version: 2,
  sql: `
CREATE TABLE image (id INTEGER PRIMARY KEY, repo TEXT NOT NULL, digest TEXT NOT NULL, facts TEXT NOT NULL, packages INTEGER NOT NULL,
  UNIQUE (repo, digest));
CREATE TABLE package (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, purl TEXT NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL,
  version TEXT NOT NULL, origin TEXT NOT NULL, licenses TEXT NOT NULL);
CREATE TABLE contains (image INTEGER NOT NULL, package INTEGER NOT NULL, locations TEXT NOT NULL, PRIMARY KEY (image, package)) WITHOUT ROWID;
CREATE TABLE member (repo TEXT NOT NULL, image TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (repo, image, digest)) WITHOUT ROWID;
`,
  // Made at the end: that is faster.
  indexes: `
CREATE INDEX package_purl ON package (purl);
CREATE INDEX package_name ON package (name, type);
CREATE INDEX contains_package ON contains (package, image);
CREATE INDEX image_digest ON image (digest, repo);
CREATE INDEX member_digest ON member (digest, repo);
`,
}
