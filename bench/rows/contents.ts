import { writeFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { digestOf } from '../../src/base/digest.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { ContentsFacts, PackageQuery } from '../../src/cache/lists/contents-source.ts'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { importInto } from '../../src/catalogue/import/run-import.ts'
import { namesOfPackages, vulnerabilitiesOfPackages } from '../../src/contents/matching/match-packages.ts'
import { buildSegment, type StoredImage } from '../../src/contents/segments/segment-builder.ts'
import { SegmentReader } from '../../src/contents/segments/segment-reader.ts'
import type { Environment } from '../environment.ts'
import type { Row, RowGroup } from './row.ts'

const group = trustedUid('a'.repeat(40))
const packagesPerImage = 300
/** Number of different packages. */
const names = 30_000
/** Number of segments before they are merged. */
const parts = 10
/** Images that are compared with the advisories, spread over all. */
const compared = 200
const maxAdvisoryBytes = 64 * 1024 * 1024

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

/** Returns an advisory about one of the packages: half of their versions are affected. */
function documentOf(at: number): object {
  const name = `package-${(at * 7919) % names}`
  return {
    id: `BENCH-${at}`,
    modified: new Date(1_767_225_600_000 + at * 60_000).toISOString(),
    aliases: [`CVE-2026-${at}`],
    details: `${name} decodes what it should not. `.repeat(12),
    affected: [{ package: { ecosystem: 'npm', name }, ranges: [{ type: 'SEMVER', events: [{ introduced: '0' }, { fixed: `1.2.${at % 9}` }] }] }],
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
  readonly bytes: number
}

/** Returns the processor time of some work in milliseconds, all threads included. */
function cpuMs(work: () => void): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

async function importAdvisories(folder: string, count: number): Promise<AdvisoryReader> {
  const path = join(folder, 'advisories.jsonl')
  await writeFile(path, Array.from({ length: count }, (_, at) => `${JSON.stringify(documentOf(at))}\n`).join(''))
  const file = join(folder, 'advisories.sqlite')
  const options = { paths: [path], group, replace: false, nowMs: 1_767_225_600_000, onRefusal: () => undefined, onProgress: () => undefined }
  await importInto(async (kind) => ({ path: kind === 'advisories' ? file : join(folder, kind), isNew: true }), options, AbortSignal.timeout(3_600_000))
  return new AdvisoryReader(file)
}

function queryOf(number: number): PackageQuery {
  const { repo, digest } = imageOf(number)
  return { images: [{ repo, digest }], names: [], types: [], text: '', after: undefined, skip: 0, limit: packagesPerImage }
}

/** Finds the vulnerabilities of an image as a list does, without its threads. */
function compare(reader: SegmentReader, advisories: AdvisoryReader, number: number): number {
  const { packages } = reader.packages(queryOf(number))
  const { distribution } = facts
  const found = advisories.ofPackages({ groups: [group], names: namesOfPackages({ packages, distribution }), maxBytes: maxAdvisoryBytes })
  if (found === undefined) throw new Error('an image has too many advisories')
  return vulnerabilitiesOfPackages({ packages, distribution, advisories: found, states: ['affected'] }).length
}

function timesOf(environment: Environment): Promise<ContentsTimes> {
  const images = Math.ceil(environment.scale.largeRecords / 100)
  const count = Math.ceil(environment.scale.largeRecords / 5)
  return environment.once('contents', async () => {
    const folder = await environment.directory()
    environment.progress(`writing the contents of ${images} images`)
    const paths: string[] = []
    const buildMs = cpuMs(() => {
      for (let part = 0; part < parts; part += 1) {
        const path = join(folder, `part-${part}.sqlite`)
        const some = Array.from({ length: Math.ceil(images / parts) }, (_, at) => imageOf(part * Math.ceil(images / parts) + at))
        buildSegment({ path, images: some, indexes: [], older: [], removed: [] })
        paths.unshift(path)
      }
    })
    const merged = join(folder, 'merged.sqlite')
    const mergeMs = cpuMs(() => void buildSegment({ path: merged, images: [imageOf(1)], indexes: [], older: paths, removed: [] }))
    const reader = new SegmentReader()
    reader.use([merged])
    const some = Array.from({ length: compared }, (_, at) => Math.floor((at * images) / compared))
    const pagesMs = cpuMs(() => {
      for (const number of some) reader.packages({ ...queryOf(number), limit: 50 })
    })
    environment.progress(`importing ${count} advisories`)
    const advisories = await importAdvisories(folder, count)
    let vulnerabilities = 0
    const comparedMs = cpuMs(() => {
      for (const number of some) vulnerabilities += compare(reader, advisories, number)
    })
    if (vulnerabilities < compared) throw new Error('the images have too few vulnerabilities')
    reader.close()
    advisories.close()
    const { size } = await stat(merged)
    return {
      ...{ images, advisories: count, addMs: buildMs / images, mergeMs: mergeMs / images },
      ...{ pageMs: pagesMs / compared, compareMs: comparedMs / compared, bytes: size / images },
    }
  })
}

const sorts = [
  { id: 'contents-add', of: 'addMs', unit: 'ms', goal: 30, title: 'contents of an image with 300 packages, written to a segment' },
  { id: 'contents-merge', of: 'mergeMs', unit: 'ms', goal: 10, title: 'contents of an image with 300 packages, merged into a larger segment' },
  { id: 'contents-size', of: 'bytes', unit: 'bytes', goal: 40_000, title: 'contents of an image with 300 packages, bytes in the segment' },
  { id: 'contents-page', of: 'pageMs', unit: 'ms', goal: 20, title: 'page of the packages of an image' },
  { id: 'contents-compare', of: 'compareMs', unit: 'ms', goal: 300, title: 'vulnerabilities of an image with 300 packages' },
] as const

/** What images contain, and its comparison with advisories. */
export const contentsRows: RowGroup = {
  name: 'contents',
  about: 'contents of 10,000 images with --full, and their comparison with 200,000 advisories: by processor time',
  rows: sorts.map(({ id, of, unit, goal, title }) => ({
    id,
    async measure(environment: Environment): Promise<Row> {
      const times = await timesOf(environment)
      const note = `${times.images.toLocaleString('en')} images, ${times.advisories.toLocaleString('en')} advisories`
      return { id, title, unit, value: times[of], goal: { atMost: goal }, measured: [], note }
    },
  })),
}
