import { appendFile, copyFile, writeFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { digestOf } from '../../src/base/digest.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { ContentsFacts, ContentsSource, PackageQuery } from '../../src/cache/lists/contents-source.ts'
import { AdvisoryThread } from '../../src/catalogue/advisories/advisory-thread.ts'
import { importInto } from '../../src/catalogue/import/run-import.ts'
import { PackageMatches } from '../../src/contents/matching/package-matches.ts'
import { buildSegment, type StoredImage } from '../../src/contents/segments/segment-builder.ts'
import { SegmentReader } from '../../src/contents/segments/segment-reader.ts'
import { segmentThread } from '../../src/contents/segments/segments.ts'
import type { SegmentTask } from '../../src/contents/segments/segment-worker.ts'
import type { Environment } from '../environment.ts'
import type { Row, RowGroup } from './row.ts'

const group = trustedUid('a'.repeat(40))
const packagesPerImage = 300
/** Number of different packages. */
const names = 30_000
/** Number of segments before they are merged. */
const parts = 10
/** Images that are compared with the advisories alone, spread over all. */
const compared = 200
/** Advisories that a second import changes. */
const changed = 300
/** Images after which the memory is looked at. */
const looked = 50

const facts: ContentsFacts = {
  ...{ platform: 'linux/amd64', source: 'layers', sourceDigest: '', problem: '', message: '' },
  ...{ distribution: { id: 'alpine', version: '3' }, skipped: [], readMs: 1, readers: 1 },
}

function imageOf(number: number): StoredImage {
  const packages = Array.from({ length: packagesPerImage }, (_, at) => {
    const index = (number * 7 + at * 61) % names
    const [name, version] = [`package-${index}`, `1.2.${index % 9}`]
    return {
      purl: `pkg:npm/${name}@${version}`,
      type: 'npm',
      name,
      version,
      origin: '',
      licenses: ['MIT'],
      locations: [`/usr/lib/node_modules/${name}/package.json`],
    }
  })
  return { repo: group, digest: digestOf(Buffer.from(String(number))), facts, packages }
}

/** Returns an advisory about one of the packages: half of their versions are affected. Four of five are about packages that no image has. `edition` 0 is the first. */
function documentOf(at: number, edition = 0): object {
  const name = at % 5 === 0 ? `package-${((at / 5) * 7919) % names}` : `other-${at % (4 * names)}`
  return {
    id: `BENCH-${at}`,
    modified: new Date(1_767_225_600_000 + at * 60_000 + edition).toISOString(),
    aliases: [`CVE-2026-${at}`],
    details: `${name} decodes what it should not. `.repeat(12),
    affected: [{ package: { ecosystem: 'npm', name }, ranges: [{ type: 'SEMVER', events: [{ introduced: '0' }, { fixed: `1.2.${(at + edition) % 9}` }] }] }],
  }
}

/** What is measured. Times are of the processor, in milliseconds. */
interface ContentsTimes {
  readonly images: number
  readonly advisories: number
  readonly addMs: number
  readonly mergeMs: number
  readonly pageMs: number
  readonly compareMs: number
  readonly firstMs: number
  readonly againMs: number
  readonly bytes: number
  readonly advisoryBytes: number
  /** How much more memory the process had while all images were compared, in MB. */
  readonly memory: number
}

/** Returns the processor time of some work in milliseconds, all threads included. */
async function cpuMs(work: () => unknown): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

interface ImportPlace {
  readonly folder: string
  readonly file: string
  readonly isNew: boolean
}

async function importAdvisories({ folder, file, isNew }: ImportPlace, documents: readonly object[]): Promise<void> {
  const path = join(folder, 'advisories.jsonl')
  await writeFile(path, '')
  // One text with all of them may be longer than a string can be.
  const linesAtOnce = 10_000
  for (let at = 0; at < documents.length; at += linesAtOnce) {
    const lines = documents.slice(at, at + linesAtOnce).map((document) => `${JSON.stringify(document)}\n`)
    await appendFile(path, lines.join(''))
  }
  const options = { paths: [path], group, replace: false, nowMs: 1_767_225_600_000, onRefusal: () => undefined, onProgress: () => undefined }
  await importInto(async (kind) => ({ path: kind === 'advisories' ? file : join(folder, kind), isNew }), options, AbortSignal.timeout(3_600_000))
}

function queryOf(number: number): PackageQuery {
  const { repo, digest } = imageOf(number)
  return { images: [{ repo, digest }], names: [], types: [], text: '', after: undefined, skip: 0, limit: packagesPerImage }
}

const turn = { key: 'bench', signal: new AbortController().signal }
const own = { edition: '', ofPackages: () => Promise.resolve({ advisories: [], bytes: 0 }) }

/** Compares images with advisories, in the threads that a server uses. */
class Comparison {
  readonly #thread = segmentThread()
  readonly #paths: readonly string[]
  vulnerabilities = 0
  /** The most memory of the process so far, in bytes. */
  rss = 0

  constructor(paths: readonly string[]) {
    this.#paths = paths
  }

  /** Resolves when the vulnerabilities of an image are found. What was found for other images with the same \`source\` is remembered. */
  async of(number: number, source: Pick<AdvisoryThread, 'groups' | 'ofPackages'>): Promise<void> {
    const packages = (await this.#ask({ kind: 'packages', paths: this.#paths, query: queryOf(number) })) as Awaited<ReturnType<ContentsSource['packages']>> // of this task
    const contents: Pick<ContentsSource, 'namesOf' | 'match'> = {
      namesOf: async (question) => (await this.#ask({ kind: 'namesOf', question })) as readonly string[], // of this task
      match: async (question) => (await this.#ask({ kind: 'match', question })) as Awaited<ReturnType<ContentsSource['match']>>, // of this task
    }
    const matches = new PackageMatches({ contents, source, groups: [group], own })
    const found = await matches.in({ packages: packages.packages, distribution: facts.distribution, states: ['affected'] }, turn)
    if (found === undefined) throw new Error('a package has too many advisories')
    this.vulnerabilities += found.length
    if (number % looked === 0) this.rss = Math.max(this.rss, process.memoryUsage.rss())
  }

  close(): Promise<void> {
    return this.#thread.close()
  }

  #ask(task: SegmentTask): Promise<unknown> {
    return this.#thread.ask(task, turn)
  }
}

type MatchTimes = Pick<ContentsTimes, 'compareMs' | 'firstMs' | 'againMs' | 'advisoryBytes' | 'memory'>

/** Compares all images with advisories, and again after an import that changes some of these. */
async function matchTimes(
  environment: Environment,
  { segment, images, advisories }: { segment: string; images: number; advisories: number },
): Promise<MatchTimes> {
  const folder = await environment.directory()
  environment.progress(`importing ${advisories} advisories`)
  const [file, newer] = [join(folder, 'advisories.sqlite'), join(folder, 'newer.sqlite')]
  await importAdvisories(
    { folder, file, isNew: true },
    Array.from({ length: advisories }, (_, at) => documentOf(at)),
  )
  await copyFile(file, newer)
  const again = Array.from({ length: changed }, (_, at) => documentOf(5 * Math.floor((at * advisories) / (5 * changed)), 1))
  await importAdvisories({ folder, file: newer, isNew: false }, again)
  const source = await AdvisoryThread.open(file)
  const comparison = new Comparison([segment])
  await comparison.of(0, { groups: () => [group], ofPackages: (query, asked) => source.ofPackages(query, asked) })
  const alone = await cpuMs(async () => {
    // Each image as if it were the only one.
    for (let at = 0; at < compared; at += 1)
      await comparison.of(Math.floor((at * images) / compared), { groups: () => [group], ofPackages: (query, asked) => source.ofPackages(query, asked) })
  })
  globalThis.gc?.()
  const before = process.memoryUsage.rss()
  const all = async (advisoriesNow: AdvisoryThread): Promise<void> => {
    for (let number = 0; number < images; number += 1) await comparison.of(number, advisoriesNow)
  }
  environment.progress(`comparing ${images} images`)
  const first = await cpuMs(() => all(source))
  const next = await AdvisoryThread.open(newer)
  await source.close()
  const second = await cpuMs(() => all(next))
  await next.close()
  await comparison.close()
  if (comparison.vulnerabilities < 2 * images) throw new Error('the images have too few vulnerabilities')
  const { size: advisoryBytes } = await stat(file)
  const memory = Math.max(0, comparison.rss - before) / 1_000_000
  return { compareMs: alone / compared, firstMs: first / images, againMs: second / images, advisoryBytes, memory }
}

function timesOf(environment: Environment): Promise<ContentsTimes> {
  const images = Math.ceil(environment.scale.largeRecords / 100)
  const advisories = environment.scale.largeRecords
  return environment.once('contents', async () => {
    const folder = await environment.directory()
    environment.progress(`writing the contents of ${images} images`)
    const paths: string[] = []
    const buildMs = await cpuMs(() => {
      for (let part = 0; part < parts; part += 1) {
        const path = join(folder, `part-${part}.sqlite`)
        const some = Array.from({ length: Math.ceil(images / parts) }, (_, at) => imageOf(part * Math.ceil(images / parts) + at))
        buildSegment({ path, images: some, indexes: [], older: [], removed: [] })
        paths.unshift(path)
      }
    })
    const merged = join(folder, 'merged.sqlite')
    const mergeMs = await cpuMs(() => buildSegment({ path: merged, images: [imageOf(1)], indexes: [], older: paths, removed: [] }))
    const reader = new SegmentReader()
    reader.use([merged])
    const some = Array.from({ length: compared }, (_, at) => Math.floor((at * images) / compared))
    const pagesMs = await cpuMs(() => {
      for (const number of some) reader.packages({ ...queryOf(number), limit: 50 })
    })
    reader.close()
    const { size } = await stat(merged)
    const matched = await matchTimes(environment, { segment: merged, images, advisories })
    return { ...matched, images, advisories, addMs: buildMs / images, mergeMs: mergeMs / images, pageMs: pagesMs / compared, bytes: size / images }
  })
}

const sorts = [
  { id: 'contents-add', of: 'addMs', unit: 'ms', goal: 30, title: 'contents of an image with 300 packages, written to a segment' },
  { id: 'contents-merge', of: 'mergeMs', unit: 'ms', goal: 10, title: 'contents of an image with 300 packages, merged into a larger segment' },
  { id: 'contents-size', of: 'bytes', unit: 'bytes', goal: 40_000, title: 'contents of an image with 300 packages, bytes in the segment' },
  { id: 'contents-page', of: 'pageMs', unit: 'ms', goal: 20, title: 'page of the packages of an image' },
  { id: 'contents-compare', of: 'compareMs', unit: 'ms', goal: 300, title: 'vulnerabilities of an image with 300 packages, alone' },
  { id: 'contents-first', of: 'firstMs', unit: 'ms', goal: 30, title: 'vulnerabilities of all images, each with 300 packages: per image' },
  { id: 'contents-again', of: 'againMs', unit: 'ms', goal: 30, title: 'the same after an import that changes 300 advisories: per image' },
  { id: 'contents-memory', of: 'memory', unit: 'MB', goal: 500, title: 'memory to find the vulnerabilities of all images' },
] as const

/** What images contain, and its comparison with advisories. */
export const contentsRows: RowGroup = {
  name: 'contents',
  about: 'contents of 10,000 images with --full, and their comparison with 1,000,000 advisories, 200,000 of them about their packages: by processor time',
  rows: sorts.map(({ id, of, unit, goal, title }) => ({
    id,
    async measure(environment: Environment): Promise<Row> {
      const times = await timesOf(environment)
      const file = `${Math.round(times.advisoryBytes / 1_000_000)} MB of advisories`
      const note = `${times.images.toLocaleString('en')} images, ${times.advisories.toLocaleString('en')} advisories, ${file}`
      return { id, title, unit, value: times[of], goal: { atMost: goal }, measured: [], note }
    },
  })),
}
