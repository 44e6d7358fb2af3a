import { create } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BlobRecordSchema, ManifestRecordSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { firstToGo, garbageOf, type RepoContent } from '../../../src/registry/collect/needed.ts'

const young = 1_000

/** A manifest as a test writes it down. */
interface Drawn {
  readonly children?: readonly string[]
  readonly blobs?: readonly string[]
  readonly mentions?: readonly string[]
  readonly subject?: string
  readonly createMs?: number
  readonly deleteMs?: number
  /** The SHA-256, where the digest is another. */
  readonly upstream?: string | undefined
}

function content(source: { manifests?: Record<string, Drawn>; blobs?: Record<string, number>; named?: readonly string[] }): RepoContent {
  const manifests = Object.entries(source.manifests ?? {}).map(([digest, drawn]) => {
    const { children = [], blobs = [], mentions = [], subject = '', createMs = 0, deleteMs = 0, upstream = digest } = drawn
    const record = create(ManifestRecordSchema, {
      subject,
      upstreamDigest: upstream,
      mentions: [...mentions],
      createTimeMs: BigInt(createMs),
      deleteTimeMs: BigInt(deleteMs),
      children: children.map((child) => ({ digest: child })),
      ...(blobs[0] === undefined ? {} : { config: { digest: blobs[0] } }),
      layers: blobs.slice(1).map((blob) => ({ digest: blob })),
    })
    return [digest, record] as const
  })
  const blobs = Object.entries(source.blobs ?? {}).map(([digest, touchMs]) => [digest, create(BlobRecordSchema, { touchTimeMs: BigInt(touchMs) })] as const)
  return { manifests: new Map(manifests), blobs: new Map(blobs), named: new Set(source.named) }
}

describe('what nothing needs', () => {
  test.each<[string, Parameters<typeof content>[0], { manifests: string[]; blobs: string[] }]>([
    ['a tagged image stays with its blobs', { manifests: { m: { blobs: ['c', 'l'] } }, blobs: { c: 0, l: 0 }, named: ['m'] }, { manifests: [], blobs: [] }],
    [
      'an image that nobody names goes with its blobs',
      { manifests: { m: { blobs: ['c', 'l'] } }, blobs: { c: 0, l: 0 } },
      { manifests: ['m'], blobs: ['c', 'l'] },
    ],
    ['a young image stays with its blobs', { manifests: { m: { blobs: ['c'], createMs: young + 1 } }, blobs: { c: 0 } }, { manifests: [], blobs: [] }],
    ['a young blob stays', { blobs: { b: young + 1 } }, { manifests: [], blobs: [] }],
    ['an old blob that no manifest has goes', { blobs: { b: young } }, { manifests: [], blobs: ['b'] }],
    [
      'the images of a tagged index stay, and indexes in it',
      { manifests: { i: { children: ['n'] }, n: { children: ['m'] }, m: { blobs: ['c'] } }, blobs: { c: 0 }, named: ['i'] },
      { manifests: [], blobs: [] },
    ],
    [
      'what refers to a needed image stays, and what refers to that',
      { manifests: { m: {}, s: { subject: 'm', blobs: ['c'] }, t: { subject: 's' } }, blobs: { c: 0 }, named: ['m'] },
      { manifests: [], blobs: [] },
    ],
    [
      'what refers to an image of a needed index stays',
      { manifests: { i: { children: ['m'] }, m: {}, s: { subject: 'm' } }, named: ['i'] },
      { manifests: [], blobs: [] },
    ],
    ['what refers to something that goes, goes too', { manifests: { m: {}, s: { subject: 'm' } } }, { manifests: ['m', 's'], blobs: [] }],
    ['the other digest of a tagged image stays', { manifests: { m: {}, long: { upstream: 'm' } }, named: ['m'] }, { manifests: [], blobs: [] }],
    ['the other digest of an image does not keep it', { manifests: { m: {}, long: { upstream: 'm', createMs: young + 1 } } }, { manifests: ['m'], blobs: [] }],
    [
      'blobs that a tagged index has as children stay',
      { manifests: { i: { children: ['l', 'm'] }, m: { blobs: ['c'] } }, blobs: { l: 0, c: 0 }, named: ['i'] },
      { manifests: [], blobs: [] },
    ],
    [
      'what a tagged manifest of another type mentions stays, be it a blob or a manifest',
      { manifests: { a: { mentions: ['b', 'm'] }, m: { blobs: ['c'] } }, blobs: { b: 0, c: 0 }, named: ['a'] },
      { manifests: [], blobs: [] },
    ],
    [
      'what a manifest of another type mentions goes with it',
      { manifests: { a: { mentions: ['b', 'm'] }, m: { blobs: ['c'] } }, blobs: { b: 0, c: 0 } },
      { manifests: ['a', 'm'], blobs: ['b', 'c'] },
    ],
    [
      'a deleted image goes though history names it',
      { manifests: { m: { blobs: ['c'], deleteMs: 1 } }, blobs: { c: 0 }, named: ['m'] },
      { manifests: ['m'], blobs: ['c'] },
    ],
    ['an image that was deleted lately is kept a while', { manifests: { m: { deleteMs: young + 1 } } }, { manifests: [], blobs: [] }],
    [
      'two manifests that name each other and nobody names go',
      { manifests: { a: { children: ['b'] }, b: { children: ['a'] } } },
      { manifests: ['a', 'b'], blobs: [] },
    ],
    [
      'a blob of two images stays for the one that stays',
      { manifests: { m: { blobs: ['c'] }, n: { blobs: ['c'] } }, blobs: { c: 0 }, named: ['n'] },
      { manifests: ['m'], blobs: [] },
    ],
  ])('%s', (_title, source, expected) => {
    expect(garbageOf(content(source), young)).toEqual(expected)
  })

  test('whatever is drawn: nothing that a name, youth or a reference leads to goes, and all else does', () => {
    const digests = Array.from({ length: 12 }, (_, at) => `m${at}`)
    const blobs = Array.from({ length: 10 }, (_, at) => `b${at}`)
    const manifest = fc.record({
      children: fc.subarray([...digests, ...blobs], { maxLength: 3 }),
      blobs: fc.subarray(blobs, { maxLength: 4 }),
      mentions: fc.subarray([...digests, ...blobs], { maxLength: 2 }),
      subject: fc.constantFrom('', '', ...digests),
      createMs: fc.constantFrom(0, 0, 0, young + 1),
      deleteMs: fc.constantFrom(0, 0, 0, 1, young + 1),
      upstream: fc.option(fc.constantFrom(...digests), { nil: undefined, freq: 3 }),
    })
    const drawn = fc.record({
      manifests: fc.dictionary(fc.constantFrom(...digests), manifest),
      blobs: fc.dictionary(fc.constantFrom(...blobs), fc.constantFrom(0, 0, young + 1)),
      named: fc.subarray(digests, { maxLength: 3 }),
    })
    fc.assert(
      fc.property(drawn, (source) => {
        // The other way round and naively: grow the set of what is kept until nothing is added.
        const live = Object.entries(source.manifests).filter(([, one]) => one.deleteMs === 0)
        const kept = new Set(live.filter(([digest, one]) => source.named.includes(digest) || one.createMs > young).map(([digest]) => digest))
        for (let size = -1; size !== kept.size;) {
          size = kept.size
          for (const [digest, one] of live) {
            if (kept.has(one.subject) || (one.upstream !== undefined && kept.has(one.upstream))) kept.add(digest)
            if (live.some(([other, { children, mentions }]) => kept.has(other) && [...children, ...mentions].includes(digest))) kept.add(digest)
          }
        }
        const blobsKept = new Set(live.filter(([digest]) => kept.has(digest)).flatMap(([, one]) => [...one.blobs, ...one.children, ...one.mentions]))
        const garbage = garbageOf(content(source), young)
        const manifestsGone = Object.entries(source.manifests).filter(([digest, one]) => !kept.has(digest) && one.deleteMs <= young)
        expect(new Set(garbage.manifests)).toEqual(new Set(manifestsGone.map(([digest]) => digest)))
        const blobsGone = Object.entries(source.blobs).filter(([digest, touchMs]) => !blobsKept.has(digest) && touchMs <= young)
        expect(new Set(garbage.blobs)).toEqual(new Set(blobsGone.map(([digest]) => digest)))
      }),
      { numRuns: 2_000 },
    )
  })
})

test('a tagged digest goes before its other digest', () => {
  const { manifests } = content({ manifests: { long: { upstream: 'm' }, m: {} } })
  expect(firstToGo({ manifests }, ['long', 'm'])).toEqual(['m'])
})

test('what mentions something goes before it, and what refers to something too', () => {
  const { manifests } = content({ manifests: { m: {}, a: { mentions: ['m', 'b'] }, s: { subject: 'a' } } })
  expect(firstToGo({ manifests }, ['m', 'a', 's'])).toEqual(['a'])
})
