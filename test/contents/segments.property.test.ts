import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../src/base/digest.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import type { ListedPackage, PackageImage, PackageQuery } from '../../src/cache/lists/contents-source.ts'
import { includedIn, type Segment } from '../../src/contents/segments/contents-record.ts'
import { isFound, packageOfUrl, purlFilter } from '../../src/contents/package-url.ts'
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

const indexDigests = ['8', '9'].map((text) => digestOf(Buffer.from(text)))
const indexOf = fc.record({ repo: fc.constantFrom(...repos), digest: fc.constantFrom(...indexDigests), images: fc.subarray(digests) })

/** A segment with images and indexes, and which of them are gone when it is built. */
const stepOf = fc.record({
  images: fc.array(imageOf, { maxLength: 4 }),
  indexes: fc.array(indexOf, { maxLength: 2 }),
  gone: fc.subarray([...digests, ...indexDigests]),
})

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

/** What a search for `pkg:<type>/<name>` finds, with or without the version. */
function naiveImages(images: Iterable<StoredImage>, members: ReadonlySet<string>, { purl, repo: only }: { purl: string; repo: string }): PackageImage[] {
  const found = [...images].flatMap(({ repo, digest, packages }) =>
    packages
      .filter((one) => (one.purl === purl || one.purl.startsWith(`${purl}@`)) && only.includes(repo))
      .map((one) => {
        const indexes = indexDigests.filter((index) => members.has([repo, digest, index].join(' '))).sort()
        return { repo, digest, purl: one.purl, version: one.version, platform: 'linux/amd64', indexes }
      }),
  )
  return found.sort((one, other) => compare(one.repo, other.repo) || compare(one.digest, other.digest) || compare(one.purl, other.purl))
}

/** Expects that searches for packages find, page by page, what the model has. */
function expectImages(
  reader: SegmentReader,
  { model, members, limit }: { model: ReadonlyMap<string, StoredImage>; members: ReadonlySet<string>; limit: number },
): void {
  const visibility = { everywhere: true, groups: [], roots: false }
  for (const [purl, only] of [
    ['pkg:npm/a', repos],
    ['pkg:apk/b', repos.slice(0, 1)],
    ['pkg:npm/ab@2', repos],
  ] as const) {
    const uidp = { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: only }
    const found: PackageImage[] = []
    for (let after: PackageImage | undefined; ;) {
      const page = reader.packageImages({ purl, uidp, visibility, skip: 0, limit, after })
      found.push(...page.images)
      after = page.images.at(-1)
      if (after !== undefined) continue
      expect(page.total).toBe(found.length)
      break
    }
    // Gone images and indexes of segments that were not merged are left out by those who ask.
    const held = found
      .filter((image) => model.has(keyOf(image)))
      .map((image) => ({ ...image, indexes: image.indexes.filter((index) => members.has([image.repo, image.digest, index].join(' '))).sort() }))
    expect(held).toEqual(naiveImages(model.values(), members, { purl, repo: only.join(' ') }))
  }
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
      const members = new Set<string>()
      let segments: (Segment & { readonly path: string })[] = []
      const reader = new SegmentReader()
      try {
        for (const { images, indexes, gone } of steps) {
          const count = includedIn(
            images.reduce((sum, { packages }) => sum + packages.length, 0),
            segments,
          )
          const older = segments.slice(0, count).map(({ path }) => path)
          reader.use(older)
          const removed = reader.names().filter(({ digest }) => gone.includes(digest))
          const path = join(folder, `${String((built += 1))}.sqlite`)
          const size = buildSegment({ path, images, indexes, older, removed })
          // Segments that were not merged may still have it. Readers do not ask for images that are gone.
          for (const { repo, digest } of removed) {
            model.delete(keyOf({ repo, digest }))
            for (const member of members) if (member.startsWith(repo) && member.endsWith(digest)) members.delete(member)
          }
          for (const image of images) model.set(keyOf(image), image)
          for (const index of indexes) for (const image of index.images) members.add([index.repo, image, index.digest].join(' '))
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
        expectImages(reader, { model, members, limit: filters.limit })
        for (const digest of [...digests, ...indexDigests]) {
          const holds = (repo: Uid): boolean =>
            model.has(keyOf({ repo, digest })) || [...members].some((member) => member.startsWith(repo) && member.endsWith(digest))
          expect(reader.reposWith(digest).filter(holds).sort()).toEqual(repos.filter(holds))
          const names = reader.names().flatMap((name) => (name.digest === digest ? [name.repo] : []))
          expect(new Set(names)).toEqual(new Set(reader.reposWith(digest)))
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

test('another index of the same images changes what is known of a repo', () => {
  const [repo, image] = [repos[0], digests[0]]
  if (repo === undefined || image === undefined) throw new Error('no image')
  const reader = new SegmentReader()
  try {
    const statesWith = indexDigests.map((digest) => {
      const path = join(folder, `${digest}.sqlite`)
      buildSegment({ path, images: [{ repo, digest: image, facts, packages: [] }], indexes: [{ repo, digest, images: [image] }], older: [], removed: [] })
      reader.use([path])
      return JSON.stringify(reader.states(path))
    })
    expect(new Set(statesWith).size).toBe(indexDigests.length)
  } finally {
    reader.close()
  }
})

test.each([
  ['pkg:apk/wolfi/openssl', true],
  ['pkg:apk/wolfi/openssl@3.3.1-r0', true],
  ['pkg:apk/wolfi/openssl?distro=wolfi-20230201', true],
  ['pkg:apk/wolfi/openssl@3.3.1-r0?distro=wolfi-20230201&arch=x86_64', true],
  ['pkg:apk/wolfi/openssl?upstream=libressl%401%26more', true],
  ['pkg:apk/wolfi/openssl#crypto/lib', true],
  ['pkg:apk/wolfi/openssl?arch=x86', false],
  ['pkg:apk/wolfi/openssl?arch=aarch64', false],
  ['pkg:apk/wolfi/openssl?upstream=libressl', false],
  ['pkg:apk/wolfi/openssl#crypto', false],
])('a search for %s compares whole qualifiers and the subpath', (text, isFoundBy) => {
  const stored = packageOfUrl('pkg:apk/wolfi/openssl@3.3.1-r0?upstream=libressl%401%26more&arch=x86_64&distro=wolfi-20230201#crypto/lib')
  const filter = purlFilter(text)
  if (stored === undefined || filter === undefined) expect.fail('not a package URL')
  expect(stored.purl.startsWith(filter.start)).toBe(true)
  expect(isFound(stored.purl, filter)).toBe(isFoundBy)
})
