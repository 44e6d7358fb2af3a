import { createHash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'
import { openForWriting } from '../../store/sqlite/catalogue-file.ts'
import type { ContentsFacts, ImageName } from '../../cache/lists/contents-source.ts'
import type { ImageIndex } from '../image-contents.ts'
import type { ImagePackage } from '../package.ts'
import { segmentTables } from './segment-tables.ts'

/** An image with its packages, as a segment stores it. */
export interface StoredImage extends ImageName {
  readonly facts: ContentsFacts
  readonly packages: readonly ImagePackage[]
}

/** What a new segment contains: images, and those of older segments that it does not have yet. */
export interface SegmentContents {
  /** The path of the new file. */
  readonly path: string
  readonly images: readonly StoredImage[]
  readonly indexes: readonly ImageIndex[]
  /** The paths of older segments, newest first. */
  readonly older: readonly string[]
  /** Images and indexes of older segments to leave out. */
  readonly removed: readonly ImageName[]
}

/** The size of a segment. */
export interface SegmentSize {
  readonly images: number
  /** The number of packages, counted once for each image that has them. */
  readonly packages: number
}

/** Adds the images of an older segment that the new one does not have. Packages get new numbers. */
const copy = `
CREATE TEMP TABLE image_ids AS
  SELECT id, (SELECT coalesce(max(id), 0) FROM main.image) + row_number() OVER (ORDER BY id) AS new FROM old.image AS one
  WHERE NOT EXISTS (SELECT 1 FROM main.image AS other WHERE other.repo = one.repo AND other.digest = one.digest)
    AND NOT EXISTS (SELECT 1 FROM temp.removed WHERE removed.repo = one.repo AND removed.digest = one.digest);
CREATE UNIQUE INDEX temp.image_id ON image_ids (id);
INSERT INTO main.image (id, repo, digest, facts, packages)
  SELECT new, repo, digest, facts, packages FROM old.image JOIN temp.image_ids USING (id);
CREATE TEMP TABLE used AS SELECT DISTINCT package AS id FROM old.contains WHERE image IN (SELECT id FROM temp.image_ids);
INSERT INTO main.package (hash, purl, type, name, version, origin, licenses)
  SELECT hash, purl, type, name, version, origin, licenses FROM old.package WHERE id IN (SELECT id FROM temp.used)
  ON CONFLICT (hash) DO NOTHING;
CREATE TEMP TABLE package_ids AS
  SELECT one.id AS id, other.id AS new FROM old.package AS one JOIN main.package AS other ON other.hash = one.hash
  WHERE one.id IN (SELECT id FROM temp.used);
CREATE UNIQUE INDEX temp.package_id ON package_ids (id);
INSERT INTO main.contains (image, package, locations)
  SELECT image_ids.new, package_ids.new, locations FROM old.contains
  JOIN temp.image_ids ON image_ids.id = contains.image
  JOIN temp.package_ids ON package_ids.id = contains.package;
INSERT INTO main.member (repo, image, digest)
  SELECT repo, image, digest FROM old.member AS one
  WHERE NOT EXISTS (SELECT 1 FROM temp.removed WHERE removed.repo = one.repo AND removed.digest = one.digest)
  ON CONFLICT DO NOTHING;
DROP TABLE temp.image_ids; DROP TABLE temp.used; DROP TABLE temp.package_ids;
`

function hashOf({ purl, type, name, version, origin, licenses }: ImagePackage): Uint8Array {
  return createHash('sha256')
    .update(JSON.stringify([purl, type, name, version, origin, licenses]))
    .digest()
    .subarray(0, 16)
}

function addImages(database: DatabaseSync, images: readonly StoredImage[]): void {
  const newImage = database.prepare('INSERT INTO image (repo, digest, facts, packages) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING')
  const findPackage = database.prepare('SELECT id FROM package WHERE hash = ?')
  const newPackage = database.prepare('INSERT INTO package (hash, purl, type, name, version, origin, licenses) VALUES (?, ?, ?, ?, ?, ?, ?)')
  const contain = database.prepare('INSERT INTO contains (image, package, locations) VALUES (?, ?, ?) ON CONFLICT DO NOTHING')
  // The last one of an image is the newest.
  for (const { repo, digest, facts, packages } of images.toReversed()) {
    const added = newImage.run(repo, digest, JSON.stringify(facts), packages.length)
    if (added.changes === 0) continue
    for (const one of packages) {
      const hash = hashOf(one)
      const { purl, type, name, version, origin, licenses, locations } = one
      const known = findPackage.get(hash)?.['id']
      const id = known ?? newPackage.run(hash, purl, type, name, version, origin, JSON.stringify(licenses)).lastInsertRowid
      contain.run(added.lastInsertRowid, Number(id), JSON.stringify(locations))
    }
  }
}

/** Writes a segment. Throws an error of SQLite if the file cannot be written, or an older one cannot be read. */
export function buildSegment({ path, images, indexes, older, removed }: SegmentContents): SegmentSize {
  const database = openForWriting(path, { tables: segmentTables, isNew: true })
  try {
    database.exec('BEGIN; CREATE TEMP TABLE removed (repo TEXT, digest TEXT, PRIMARY KEY (repo, digest)) WITHOUT ROWID')
    const remove = database.prepare('INSERT INTO temp.removed (repo, digest) VALUES (?, ?) ON CONFLICT DO NOTHING')
    for (const { repo, digest } of removed) remove.run(repo, digest)
    addImages(database, images)
    const join = database.prepare('INSERT INTO member (repo, image, digest) VALUES (?, ?, ?) ON CONFLICT DO NOTHING')
    for (const index of indexes) for (const image of index.images) join.run(index.repo, image, index.digest)
    database.exec('COMMIT')
    for (const file of older) {
      database.prepare('ATTACH ? AS old').run(file)
      database.exec(`BEGIN; ${copy} COMMIT; DETACH old`)
    }
    database.exec(`BEGIN; ${segmentTables.indexes} COMMIT`)
    const size = database.prepare('SELECT count(*) AS images, coalesce(sum(packages), 0) AS packages FROM image').get()
    return { images: Number(size?.['images']), packages: Number(size?.['packages']) }
  } finally {
    database.close()
  }
}
