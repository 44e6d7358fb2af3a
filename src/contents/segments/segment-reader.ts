import type { DatabaseSync, SQLInputValue } from 'node:sqlite'
import { openForReading } from '../../catalogue/index.ts'
import type { Digest } from '../../base/digest.ts'
import type { ContentsFacts, ImageName, ListedPackage, PackagePage, PackageQuery, ReadImage } from '../../cache/lists/contents-source.ts'
import { segmentTables } from './segment-tables.ts'

/** An image in the newest segment that has it. */
interface PlacedImage extends ReadImage {
  readonly database: DatabaseSync
  readonly id: number
}

interface Condition {
  readonly text: string
  readonly values: readonly SQLInputValue[]
}

/** Returns a condition that a column has one of some values; nothing if there are none. */
function oneOf(column: string, values: readonly string[]): Condition[] {
  return values.length === 0 ? [] : [{ text: `${column} IN (SELECT value FROM json_each(?))`, values: [JSON.stringify(values)] }]
}

function conditionsOf({ names, types, text }: PackageQuery): Condition[] {
  const part = text.toLowerCase()
  const search = { text: '(instr(lower(name), ?) > 0 OR instr(lower(purl), ?) > 0)', values: [part, part] }
  return [...oneOf('name', names), ...oneOf('type', types), ...(part === '' ? [] : [search])]
}

/** Returns the condition that a package of an image comes after a place in the order. */
function afterPlace({ after }: PackageQuery, digest: string): Condition[] {
  if (after === undefined) return []
  const text = digest > after.digest ? '(name, purl) >= (?, ?)' : '(name, purl) > (?, ?)'
  return [{ text, values: [after.name, after.purl] }]
}

function byPlace(one: ListedPackage, other: ListedPackage): number {
  for (const key of ['name', 'purl', 'digest'] as const) {
    // SQLite compares bytes of UTF-8; a cursor names a place in the same order.
    const order = Buffer.compare(Buffer.from(one[key]), Buffer.from(other[key]))
    if (order !== 0) return order
  }
  return 0
}

/** The segments, open for reading. They never change. Synchronous: a thread of its own reads them. */
export class SegmentReader {
  /** By path. */
  #open = new Map<string, DatabaseSync>()

  /** Makes these files the segments, newest first. Throws CatalogueError if one of them is no segment of this version: then the earlier ones stay. */
  use(paths: readonly string[]): void {
    const open = new Map<string, DatabaseSync>()
    try {
      for (const path of paths) open.set(path, this.#open.get(path) ?? openForReading(path, segmentTables))
    } catch (error) {
      for (const [path, database] of open) if (!this.#open.has(path)) database.close()
      throw error
    }
    for (const [path, database] of this.#open) if (!open.has(path)) database.close()
    this.#open = open
  }

  /** Returns the images that were read. */
  imagesAmong(images: readonly ImageName[]): ReadImage[] {
    return this.#placed(images).map(({ database: _, id: __, ...image }) => image)
  }

  /** Returns a page of the packages of images. */
  packages(query: PackageQuery): PackagePage {
    const conditions = conditionsOf(query)
    const found: ListedPackage[] = []
    let total = 0
    for (const image of this.#placed(query.images)) {
      total += conditions.length === 0 ? image.packages : countIn(image, conditions)
      found.push(...packagesIn(image, { conditions: [...conditions, ...afterPlace(query, image.digest)], limit: query.skip + query.limit }))
    }
    return { packages: found.sort(byPlace).slice(query.skip, query.skip + query.limit), total }
  }

  /** Returns the names of all images in the segments, each once for each segment that has it. */
  names(): ImageName[] {
    return [...this.#open.values()].flatMap((database) => {
      const rows = database.prepare('SELECT repo, digest FROM image').all()
      return rows.map((row) => ({ repo: row['repo'], digest: row['digest'] }) as ImageName) // of buildSegment
    })
  }

  /** Closes the files. */
  close(): void {
    this.use([])
  }

  #placed(images: readonly ImageName[]): PlacedImage[] {
    return images.flatMap((image) => this.#place(image) ?? [])
  }

  #place({ repo, digest }: ImageName): PlacedImage | undefined {
    for (const database of this.#open.values()) {
      const row = database.prepare('SELECT id, facts, packages FROM image WHERE repo = ? AND digest = ?').get(repo, digest)
      if (row === undefined) continue
      const facts = JSON.parse(String(row['facts'])) as ContentsFacts // of buildSegment
      return { repo, digest, ...facts, packages: Number(row['packages']), database, id: Number(row['id']) }
    }
    return undefined
  }
}

const contained = 'FROM contains JOIN package ON package.id = contains.package WHERE contains.image = ?'

function whereOf(conditions: readonly Condition[]): Condition {
  return { text: conditions.map(({ text }) => ` AND ${text}`).join(''), values: conditions.flatMap(({ values }) => values) }
}

function countIn({ database, id }: PlacedImage, conditions: readonly Condition[]): number {
  const { text, values } = whereOf(conditions)
  return Number(database.prepare(`SELECT count(*) AS count ${contained}${text}`).get(id, ...values)?.['count'])
}

function packagesIn({ database, id, digest }: PlacedImage, page: { readonly conditions: readonly Condition[]; readonly limit: number }): ListedPackage[] {
  const { text, values } = whereOf(page.conditions)
  const sql = `SELECT purl, type, name, version, origin, licenses, locations ${contained}${text} ORDER BY name, purl LIMIT ?`
  return database
    .prepare(sql)
    .all(id, ...values, page.limit)
    .map((row) => ({
      digest: digest satisfies Digest,
      purl: String(row['purl']),
      type: String(row['type']),
      name: String(row['name']),
      version: String(row['version']),
      origin: String(row['origin']),
      licenses: JSON.parse(String(row['licenses'])) as string[], // of buildSegment
      locations: JSON.parse(String(row['locations'])) as string[], // of buildSegment
    }))
}
