import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { DigestNumbers } from '../../../src/registry/gc/digest-numbers.ts'
import { firstToGo, garbageOf, type GraphBlob, type GraphManifest, type RepoContent } from '../../../src/registry/gc/needed.ts'

const young = 1_000

/** A manifest in a test's notation. */
interface Drawn {
  readonly children?: readonly string[]
  readonly blobs?: readonly string[]
  readonly mentions?: readonly string[]
  readonly subject?: string
  readonly createMs?: number
  readonly deleteMs?: number
  /** The SHA-256 digest, if the digest uses another algorithm. */
  readonly upstream?: string | undefined
}

interface Source {
  readonly manifests?: Record<string, Drawn>
  readonly blobs?: Record<string, number>
  readonly named?: readonly string[]
}

function content(source: Source): { content: RepoContent; numbers: DigestNumbers } {
  const numbers = new DigestNumbers()
  const all = (texts: readonly string[]): number[] => texts.map((text) => numbers.of(text))
  const manifests = Object.entries(source.manifests ?? {}).map(([digest, drawn]): [number, GraphManifest] => {
    const { children = [], blobs = [], mentions = [], subject = '', createMs = 0, deleteMs = 0, upstream = digest } = drawn
    const named = { upstream: numbers.of(upstream), subject: subject === '' ? undefined : numbers.of(subject) }
    return [numbers.of(digest), { ...named, parts: all([...children, ...mentions]), blobs: all(blobs), createMs, deleteMs }]
  })
  const blobs = Object.entries(source.blobs ?? {}).map(([digest, touchMs]): [number, GraphBlob] => [numbers.of(digest), { touchMs }])
  return { content: { manifests: new Map(manifests), blobs: new Map(blobs), named: new Set(all(source.named ?? [])) }, numbers }
}

function garbageIn(source: Source): { manifests: string[]; blobs: string[] } {
  const drawn = content(source)
  const { manifests, blobs } = garbageOf(drawn.content, young)
  return { manifests: manifests.map((number) => drawn.numbers.text(number)), blobs: blobs.map((number) => drawn.numbers.text(number)) }
}

function firstOf(source: Source, gone: readonly string[]): string[] {
  const drawn = content(source)
  return firstToGo(
    drawn.content,
    gone.map((text) => drawn.numbers.of(text)),
  ).map((number) => drawn.numbers.text(number))
}

describe('the choice of unneeded content', () => {
  test.each<[string, Source, { manifests: string[]; blobs: string[] }]>([
    ['a tagged image stays with its blobs', { manifests: { m: { blobs: ['c', 'l'] } }, blobs: { c: 0, l: 0 }, named: ['m'] }, { manifests: [], blobs: [] }],
    [
      'an untagged image is removed with its blobs',
      { manifests: { m: { blobs: ['c', 'l'] } }, blobs: { c: 0, l: 0 } },
      { manifests: ['m'], blobs: ['c', 'l'] },
    ],
    ['a young image stays with its blobs', { manifests: { m: { blobs: ['c'], createMs: young + 1 } }, blobs: { c: 0 } }, { manifests: [], blobs: [] }],
    ['a young blob stays', { blobs: { b: young + 1 } }, { manifests: [], blobs: [] }],
    ['an old blob in no manifest is removed', { blobs: { b: young } }, { manifests: [], blobs: ['b'] }],
    [
      'the images of a tagged index stay, and indexes in it',
      { manifests: { i: { children: ['n'] }, n: { children: ['m'] }, m: { blobs: ['c'] } }, blobs: { c: 0 }, named: ['i'] },
      { manifests: [], blobs: [] },
    ],
    [
      'referrers of a needed image stay, and their referrers',
      { manifests: { m: {}, s: { subject: 'm', blobs: ['c'] }, t: { subject: 's' } }, blobs: { c: 0 }, named: ['m'] },
      { manifests: [], blobs: [] },
    ],
    [
      'referrers of an image of a needed index stay',
      { manifests: { i: { children: ['m'] }, m: {}, s: { subject: 'm' } }, named: ['i'] },
      { manifests: [], blobs: [] },
    ],
    ['referrers of removed content are removed', { manifests: { m: {}, s: { subject: 'm' } } }, { manifests: ['m', 's'], blobs: [] }],
    ['the other digest of a tagged image stays', { manifests: { m: {}, long: { upstream: 'm' } }, named: ['m'] }, { manifests: [], blobs: [] }],
    [
      'the other digest of an image does not keep the image',
      { manifests: { m: {}, long: { upstream: 'm', createMs: young + 1 } } },
      { manifests: ['m'], blobs: [] },
    ],
    [
      'blobs that a tagged index names as children stay',
      { manifests: { i: { children: ['l', 'm'] }, m: { blobs: ['c'] } }, blobs: { l: 0, c: 0 }, named: ['i'] },
      { manifests: [], blobs: [] },
    ],
    [
      'content that a tagged manifest of another type names stays, blobs and manifests',
      { manifests: { a: { mentions: ['b', 'm'] }, m: { blobs: ['c'] } }, blobs: { b: 0, c: 0 }, named: ['a'] },
      { manifests: [], blobs: [] },
    ],
    [
      'content that a manifest of another type names is removed with it',
      { manifests: { a: { mentions: ['b', 'm'] }, m: { blobs: ['c'] } }, blobs: { b: 0, c: 0 } },
      { manifests: ['a', 'm'], blobs: ['b', 'c'] },
    ],
    [
      'a deleted image is removed although the history names it',
      { manifests: { m: { blobs: ['c'], deleteMs: 1 } }, blobs: { c: 0 }, named: ['m'] },
      { manifests: ['m'], blobs: ['c'] },
    ],
    ['a recently deleted image is kept for a while', { manifests: { m: { deleteMs: young + 1 } } }, { manifests: [], blobs: [] }],
    [
      'two manifests that name only each other are removed',
      { manifests: { a: { children: ['b'] }, b: { children: ['a'] } } },
      { manifests: ['a', 'b'], blobs: [] },
    ],
    [
      'a blob of two images stays for the one that stays',
      { manifests: { m: { blobs: ['c'] }, n: { blobs: ['c'] } }, blobs: { c: 0 }, named: ['n'] },
      { manifests: ['m'], blobs: [] },
    ],
  ])('%s', (_title, source, expected) => {
    expect(garbageIn(source)).toEqual(expected)
  })

  test('for random content the collection keeps all that a tag, its age or a reference needs, and removes all else', () => {
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
        // A naive inverse: extends the kept set until nothing is added.
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
        const garbage = garbageIn(source)
        const manifestsGone = Object.entries(source.manifests).filter(([digest, one]) => !kept.has(digest) && one.deleteMs <= young)
        expect(new Set(garbage.manifests)).toEqual(new Set(manifestsGone.map(([digest]) => digest)))
        const blobsGone = Object.entries(source.blobs).filter(([digest, touchMs]) => !blobsKept.has(digest) && touchMs <= young)
        expect(new Set(garbage.blobs)).toEqual(new Set(blobsGone.map(([digest]) => digest)))
      }),
      { numRuns: 2_000 },
    )
  })
})

test('removes a tagged digest before its other digest', () => {
  expect(firstOf({ manifests: { long: { upstream: 'm' }, m: {} } }, ['long', 'm'])).toEqual(['m'])
})

test('removes a manifest before the content that it names, and referrers before their subject', () => {
  expect(firstOf({ manifests: { m: {}, a: { mentions: ['m', 'b'] }, s: { subject: 'a' } } }, ['m', 'a', 's'])).toEqual(['a'])
})

test('DigestNumbers returns the digests and other texts that it numbered', () => {
  const numbers = new DigestNumbers()
  const texts = ['', 'x', ...(['sha256', 'sha512'] as const).flatMap((algorithm) => ['a', 'b'].map((text) => digestOf(Buffer.from(text), algorithm)))]
  const made = texts.map((text) => numbers.of(text))
  expect(new Set(made).size).toBe(texts.length)
  expect(made.map((number) => numbers.text(number))).toEqual(texts)
  expect(texts.map((text) => numbers.of(text))).toEqual(made)
  expect(() => numbers.text(texts.length)).toThrow(RangeError)
})
