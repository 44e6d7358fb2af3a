import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../src/base/digest.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { ListedPackage, PackageQuery } from '../../src/cache/lists/contents-source.ts'
import { includedIn, type Segment } from '../../src/contents/segments/contents-record.ts'
import { buildSegment, type StoredImage } from '../../src/contents/segments/segment-builder.ts'
import { SegmentReader } from '../../src/contents/segments/segment-reader.ts'

let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'taproot-segments-'))
})
afterAll(() => rm(folder, { recursive: true }))

const repos = ['a', 'b'].map((letter) => trustedUid(letter.repeat(40)))
const digests = ['1', '2', '3'].map((text) => digestOf(Buffer.from(text)))
const facts = {
  platform: 'linux/amd64',
  source: 'layers',
  sourceDigest: '',
  problem: '',
  message: '',
  distribution: { id: 'alpine', version: '3' },
  skipped: [],
  readMs: 1,
  readers: 1,
} as const

/** Names with letters of which the order in UTF-16 differs from that in UTF-8. */
const names = ['a', 'B', 'ab', '\u{FF61}', '\u{1F600}', 'b'] as const

const packageOf = fc
  .record({ name: fc.constantFrom(...names), type: fc.constantFrom('npm', 'apk'), version: fc.constantFrom('1', '2'), location: fc.constantFrom('/x', '/y') })
  .map(({ name, type, version, location }) => ({
    purl: `pkg:${type}/${name}@${version}`,
    ...{ name, type, version },
    origin: '',
    licenses: ['MIT'],
    locations: [location],
  }))

const imageOf = fc.record({
  repo: fc.constantFrom(...repos),
  digest: fc.constantFrom(...digests),
  facts: fc.constant(facts),
  packages: fc.uniqueArray(packageOf, { selector: ({ purl }) => purl, maxLength: 8 }),
})

/** A segment with images, and which of the images are gone when it is built. */
const stepOf = fc.record({ images: fc.array(imageOf, { maxLength: 4 }), gone: fc.subarray(digests) })

const keyOf = ({ repo, digest }: Pick<StoredImage, 'repo' | 'digest'>): string => `${repo} ${digest}`

function compare(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other))
}

function naivePage(
  images: readonly StoredImage[],
  { names: wanted, types, text, skip, limit }: PackageQuery,
): { packages: readonly ListedPackage[]; total: number } {
  const all = images
    .flatMap(({ digest, packages }) => packages.map((one) => ({ ...one, digest: digest })))
    .filter(
      ({ name, type, purl }) =>
        (wanted.length === 0 || wanted.includes(name)) && (types.length === 0 || types.includes(type)) && purl.toLowerCase().includes(text.toLowerCase()),
    )
    .sort((one, other) => compare(one.name, other.name) || compare(one.purl, other.purl) || compare(one.digest, other.digest))
  return { packages: all.slice(skip, skip + limit), total: all.length }
}

test('images of segments, merged or not, are those of a naive model', () => {
  let built = 0
  const query = fc.record({
    names: fc.subarray([...names], { maxLength: 2 }),
    types: fc.subarray(['npm', 'apk'], { maxLength: 1 }),
    text: fc.constantFrom('', 'b', 'NPM'),
    skip: fc.nat(3),
    limit: fc.integer({ min: 1, max: 5 }),
  })
  fc.assert(
    fc.property(fc.array(stepOf, { minLength: 1, maxLength: 6 }), fc.subarray([...digests]), query, (steps, asked, filters) => {
      const model = new Map<string, StoredImage>()
      let segments: (Segment & { readonly path: string })[] = []
      const reader = new SegmentReader()
      try {
        for (const { images, gone } of steps) {
          const count = includedIn(
            images.reduce((sum, { packages }) => sum + packages.length, 0),
            segments,
          )
          const older = segments.slice(0, count).map(({ path }) => path)
          reader.use(older)
          const removed = reader.names().filter(({ digest }) => gone.includes(digest))
          const path = join(folder, `${String((built += 1))}.sqlite`)
          const size = buildSegment({ path, images, older, removed })
          // Segments that were not merged may still have it. Readers do not ask for images that are gone.
          for (const name of removed) model.delete(keyOf(name))
          for (const image of images) model.set(keyOf(image), image)
          const digest: Digest = digestOf(Buffer.from(path))
          segments = [{ manifest: digest, blob: digest, size: 0, publishedMs: 0, ...size, path }, ...segments.slice(count)]
        }
        reader.use(segments.map(({ path }) => path))
        const wanted = repos.flatMap((repo) => asked.map((digest) => ({ repo, digest })))
        for (const repo of repos) {
          const names = asked.map((digest) => ({ repo, digest }))
          const images = names.flatMap((name) => model.get(keyOf(name)) ?? [])
          const all: PackageQuery = { images: images.map(({ repo: of, digest }) => ({ repo: of, digest })), ...filters, after: undefined }
          expect(reader.packages(all)).toEqual(naivePage(images, all))
          // Page by page, each begins after the last one of the page before.
          const paged: ListedPackage[] = []
          for (let after: PackageQuery['after']; ;) {
            const { packages } = reader.packages({ ...all, skip: 0, after })
            paged.push(...packages)
            after = packages.at(-1)
            if (after === undefined) break
          }
          expect(paged).toEqual(naivePage(images, { ...all, skip: 0, limit: 1_000 }).packages)
        }
        const known = new Set(reader.imagesAmong(wanted).map(keyOf))
        for (const name of wanted) if (model.has(keyOf(name))) expect(known).toContain(keyOf(name))
      } finally {
        reader.close()
      }
    }),
    { numRuns: 60 },
  )
})
