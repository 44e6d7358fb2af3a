import type { DatabaseSync, SQLInputValue } from 'node:sqlite'
import { openForReading } from '../../store/sqlite/catalogue-file.ts'
import { hexOf, type Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import type {
  ContentsFacts,
  ImageName,
  ListedPackage,
  PackageImage,
  PackageImagePage,
  PackageImageQuery,
  PackagePage,
  PackageQuery,
  ReadImage,
} from '../../cache/lists/contents-source.ts'
import { isNamed, isVisible } from '../../cache/lists/places.ts'
import { isFound, purlFilter, type PurlFilter } from '../package-url.ts'
import { segmentTables } from './segment-tables.ts'

/** An image in the newest segment that has it. */
interface PlacedImage extends Omit<ReadImage, 'indexes'> {
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

/** The most indexes of an image. Who may push can make any number. */
const maxIndexes = 1_000

/** The images of a segment that newer segments have, too. */
interface ReplacedImages {
  readonly newer: readonly DatabaseSync[]
  /** A list of ids as JSON. */
  readonly ids: string
}

/** What a segment has of a repo. With another image or index, or an image that was read again, other numbers. */
export interface RepoState {
  readonly repo: Uid
  readonly images: number
  /** The sum of the times at which they were read, each modulo 2^31 milliseconds. */
  readonly times: number
  /** A number that all indexes and their images together make. It is at most 2^48. */
  readonly members: number
}

/** An image that contains a package, without the indexes that it is in. */
type FoundImage = Omit<PackageImage, 'indexes'>

function keyOf({ repo, digest }: ImageName): string {
  return `${repo} ${digest}`
}

function byRepo(one: FoundImage, other: FoundImage): number {
  for (const key of ['repo', 'digest', 'purl'] as const) {
    const order = Buffer.compare(Buffer.from(one[key]), Buffer.from(other[key]))
    if (order !== 0) return order
  }
  return 0
}

type Order<T> = (one: T, other: T) => number

/** Yields the items of two sorted lists in their order. Reads no further than it yields. */
function* mergedPair<T>(one: Iterable<T>, other: Iterable<T>, order: Order<T>): Generator<T, void> {
  const [first, second] = [one[Symbol.iterator](), other[Symbol.iterator]()]
  try {
    for (let [a, b] = [first.next(), second.next()]; a.done !== true || b.done !== true;) {
      if (b.done === true || (a.done !== true && order(a.value, b.value) <= 0)) {
        if (a.done !== true) yield a.value
        a = first.next()
      } else {
        yield b.value
        b = second.next()
      }
    }
  } finally {
    // A statement that is not read to its end stays open.
    first.return?.()
    second.return?.()
  }
}

/** Returns the items of sorted lists in their order. Only one item of each list is in memory. */
function merged<T>(lists: readonly Iterable<T>[], order: Order<T>): Iterable<T> {
  const [first = [], second] = lists
  if (second === undefined) return first
  const half = lists.length >> 1
  return mergedPair(merged(lists.slice(0, half), order), merged(lists.slice(half), order), order)
}

/** Returns the items of a page. */
function sectionOf<T>(items: Iterable<T>, { skip, limit }: { readonly skip: number; readonly limit: number }): T[] {
  const found: T[] = []
  let at = 0
  for (const item of items) {
    if (at >= skip) found.push(item)
    at += 1
    if (found.length === limit) break
  }
  return found
}

/** The segments, open for reading. They never change. Synchronous: a thread of its own reads them. */
export class SegmentReader {
  /** By path. */
  #open = new Map<string, DatabaseSync>()
  #replaced = new WeakMap<DatabaseSync, ReplacedImages>()

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
    const databases = [...this.#open.values()]
    return this.#placed(images).map(({ database: _, id: __, ...image }) => {
      const indexes = [...new Set(databases.flatMap((database) => indexesOf(database, image)))]
      return { ...image, indexes: indexes.sort().slice(0, maxIndexes) }
    })
  }

  /** Returns a page of the packages of images. */
  packages(query: PackageQuery): PackagePage {
    const conditions = conditionsOf(query)
    const found: Iterable<ListedPackage>[] = []
    let total = 0
    for (const image of this.#placed(query.images)) {
      total += conditions.length === 0 ? image.packages : countIn(image, conditions)
      found.push(packagesIn(image, { conditions: [...conditions, ...afterPlace(query, image.digest)], limit: query.skip + query.limit }))
    }
    return { packages: query.skip < total ? sectionOf(merged(found, byPlace), query) : [], total }
  }

  /** Returns a page of the images that contain a package. */
  packageImages(query: PackageImageQuery): PackageImagePage {
    const filter = purlFilter(query.purl)
    if (filter === undefined) return { images: [], total: 0 }
    const databases = [...this.#open.values()]
    const found: Iterable<FoundImage>[] = []
    let total = 0
    for (const [at, database] of databases.entries()) {
      const page = imagesWith(database, { filter, query, replaced: this.#replacedIn(database, databases.slice(0, at)) })
      total += page.total
      found.push(page.images)
    }
    const images = query.skip < total ? sectionOf(merged(found, byRepo), query) : []
    // The packages of an image share one list.
    const indexes = new Map<string, readonly Digest[]>()
    for (const image of images) {
      const key = keyOf(image)
      if (!indexes.has(key)) indexes.set(key, [...new Set(databases.flatMap((database) => indexesOf(database, image)))])
    }
    return { images: images.map((image) => ({ ...image, indexes: indexes.get(keyOf(image)) ?? [] })), total }
  }

  /** Returns the repos that have an image or index with this digest, each once. */
  reposWith(digest: Digest): Uid[] {
    const repos = [...this.#open.values()].flatMap((database) =>
      database.prepare('SELECT repo FROM image WHERE digest = ? UNION SELECT repo FROM member WHERE digest = ?').all(digest, digest),
    )
    return [...new Set(repos.map((row) => row['repo'] as Uid))] // of buildSegment
  }

  /** Returns what a segment has of each repo. */
  states(path: string): RepoState[] {
    const database = this.#open.get(path)
    const states = new Map<Uid, RepoState>()
    const sql = `SELECT repo, count(*) AS images, sum(json_extract(facts, '$.readMs') % ${2 ** 31}) AS times FROM image GROUP BY repo`
    for (const { repo, images, times } of database?.prepare(sql).all() ?? [])
      states.set(repo as Uid, { repo: repo as Uid, images: Number(images), times: Number(times), members: 0 }) // of buildSegment
    for (const { repo, digest, image } of database?.prepare('SELECT repo, digest, image FROM member').iterate() ?? []) {
      const known = states.get(repo as Uid) ?? { repo: repo as Uid, images: 0, times: 0, members: 0 }
      states.set(known.repo, { ...known, members: (known.members + 3 * numberIn(digest as Digest) + numberIn(image as Digest)) % 2 ** 48 })
    }
    return [...states.values()]
  }

  /** Returns the names of all images and indexes in the segments, each once for each segment that has it. */
  names(): ImageName[] {
    return [...this.#open.values()].flatMap((database) => {
      const rows = database.prepare('SELECT repo, digest FROM image UNION SELECT repo, digest FROM member').all()
      return rows.map((row) => ({ repo: row['repo'], digest: row['digest'] }) as ImageName) // of buildSegment
    })
  }

  /** Closes the files. */
  close(): void {
    this.use([])
  }

  /** Returns the ids of images in a segment that newer segments have, too. */
  #replacedIn(database: DatabaseSync, newer: readonly DatabaseSync[]): ReplacedImages {
    const known = this.#replaced.get(database)
    if (known !== undefined && known.newer.length === newer.length && known.newer.every((one, at) => one === newer[at])) return known
    const find = database.prepare('SELECT id FROM image WHERE repo = ? AND digest = ?')
    const ids: number[] = []
    for (const other of newer) {
      for (const row of other.prepare('SELECT repo, digest FROM image').iterate()) {
        const id = find.get(String(row['repo']), String(row['digest']))?.['id']
        if (id !== undefined) ids.push(Number(id))
      }
    }
    const replaced = { newer, ids: JSON.stringify(ids) }
    this.#replaced.set(database, replaced)
    return replaced
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

/** Yields the packages of an image by name and URL. */
function* packagesIn(
  { database, id, digest }: PlacedImage,
  page: { readonly conditions: readonly Condition[]; readonly limit: number },
): Generator<ListedPackage, void> {
  const { text, values } = whereOf(page.conditions)
  const sql = `SELECT purl, type, name, version, origin, licenses, locations ${contained}${text} ORDER BY name, purl LIMIT ?`
  for (const row of database.prepare(sql).iterate(id, ...values, page.limit))
    yield {
      digest: digest satisfies Digest,
      purl: String(row['purl']),
      type: String(row['type']),
      name: String(row['name']),
      version: String(row['version']),
      origin: String(row['origin']),
      licenses: JSON.parse(String(row['licenses'])) as string[], // of buildSegment
      locations: JSON.parse(String(row['locations'])) as string[], // of buildSegment
    }
}

/** Returns the ids of the packages that a filter finds, as JSON. A canonical package URL has `@`, `?` or `#` after its name, and only the last two after its version. */
function packagesFound(database: DatabaseSync, filter: PurlFilter): string {
  const { start, hasVersion } = filter
  // `A` follows `@`, which follows `?`.
  const ranges = [`${start}#`, `${start}$`, `${start}?`, `${start}${hasVersion ? '@' : 'A'}`]
  const sql = 'SELECT id, purl FROM package WHERE purl = ? OR (purl >= ? AND purl < ?) OR (purl >= ? AND purl < ?)'
  const ids: number[] = []
  for (const row of database.prepare(sql).iterate(start, ...ranges)) if (isFound(String(row['purl']), filter)) ids.push(Number(row['id']))
  return JSON.stringify(ids)
}

/** Returns the images of a segment that contain a package, up to the end of the page, and how many there are. */
function imagesWith(
  database: DatabaseSync,
  { filter, query, replaced }: { readonly filter: PurlFilter; readonly query: PackageImageQuery; readonly replaced: ReplacedImages },
): { readonly images: Iterable<FoundImage>; readonly total: number } {
  const { uidp, visibility, after, skip, limit } = query
  const shown = new Map<string, number>()
  database.function('shown', (value) => {
    const repo = String(value)
    const known = shown.get(repo)
    if (known !== undefined) return known
    const isShown = Number(isVisible(visibility, {}, repo) && isNamed(uidp, repo))
    shown.set(repo, isShown)
    return isShown
  })
  const wanted = `FROM package JOIN contains ON contains.package = package.id JOIN image ON image.id = contains.image
    WHERE package.id IN (SELECT value FROM json_each(?)) AND image.id NOT IN (SELECT value FROM json_each(?)) AND shown(repo)`
  const values = [packagesFound(database, filter), replaced.ids]
  const total = Number(database.prepare(`SELECT count(*) AS count ${wanted}`).get(...values)?.['count'])
  const columns = "repo, digest, purl, version, coalesce(json_extract(facts, '$.platform'), '') AS platform"
  const place = after === undefined ? '' : ' AND (repo, digest, purl) > (?, ?, ?)'
  function* imagesInOrder(): Generator<FoundImage, void> {
    const rows = database
      .prepare(`SELECT ${columns} ${wanted}${place} ORDER BY repo, digest, purl LIMIT ?`)
      .iterate(...values, ...(after === undefined ? [] : [after.repo, after.digest, after.purl]), skip + limit)
    for (const row of rows) yield { ...row } as unknown as FoundImage // the columns are its fields
  }
  return { images: total === 0 ? [] : imagesInOrder(), total }
}

/** Returns the first 44 bits of a digest. */
function numberIn(digest: Digest): number {
  return Number.parseInt(hexOf(digest).slice(0, 11), 16)
}

function indexesOf(database: DatabaseSync, { repo, digest }: ImageName): Digest[] {
  const rows = database.prepare('SELECT digest FROM member WHERE repo = ? AND image = ? ORDER BY digest LIMIT ?').all(repo, digest, maxIndexes)
  return rows.map((row) => row['digest'] as Digest) // of buildSegment
}
