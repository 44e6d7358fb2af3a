import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import type { ListedPackage, PackageVulnerability, StatedImage } from '../../../src/cache/lists/contents-source.ts'
import { AdvisoryReader } from '../../../src/catalogue/advisories/advisory-reader.ts'
import { importInto } from '../../../src/catalogue/import/run-import.ts'
import { bytesOfAnswer } from '../../../src/contents/matching/match-bytes.ts'
import { namesOfPackages, vulnerabilitiesOfPackages } from '../../../src/contents/matching/match-packages.ts'
import { PackageMatches, type AdvisoriesInUse } from '../../../src/contents/matching/package-matches.ts'
import { osvDocument, packageAt, ranged, vexDocument } from '../advisories.ts'

const [group, empty] = [trustedUid('a'.repeat(40)), trustedUid('b'.repeat(40))]
const turn = { key: 'test', signal: AbortSignal.timeout(600_000) }
const alpine = { id: 'alpine', version: '3.20.1' }
const states = ['affected'] as const
const noAdvisories = { advisories: [], bytes: 0 }
const names = ['left', 'right', 'up', 'down'] as const
const advisoriesPerName = 3

/** The digest of an index or an image by its number. */
const imageDigest = (number: number): string => digestOf(Buffer.from(String(number)))
/** Statements name the images 0 and 9, and `shop`. */
const imageOf = (...numbers: readonly number[]): StatedImage => ({
  digests: numbers.map(imageDigest),
  address: 'registry.example.com/shop',
  architecture: 'amd64',
})

let folder: string
let reader: AdvisoryReader
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'taproot-matches-'))
  const path = join(folder, 'documents.jsonl')
  const documents = names.flatMap((name, at) =>
    Array.from({ length: advisoriesPerName }, (_, number) =>
      npmDocument(at === 0 && number === 1 ? 'CVE-2026-1' : `CVE-2026-${at}${number}`, name, `1.${number}.0`),
    ),
  )
  documents.push(vexDocument(`pkg:oci/shop@${imageDigest(0)}`, { status: 'not_affected', justification: 'component_not_present' }, 'pkg:npm/left'))
  documents.push(vexDocument(`pkg:oci/shop@${imageDigest(9)}`, { status: 'affected', action_statement: 'wait' }, 'pkg:npm/right'))
  await writeFile(path, documents.map((document) => `${JSON.stringify(document)}\n`).join(''))
  const options = { paths: [path], group, replace: false, nowMs: 0, onRefusal: () => expect.unreachable(), onProgress: () => undefined }
  await importInto(async (kind) => ({ path: join(folder, kind), isNew: true }), options, turn.signal)
  reader = new AdvisoryReader(join(folder, 'advisories'))
})
afterAll(async () => {
  reader.close()
  await rm(folder, { recursive: true })
})

function npmDocument(id: string, name: string, fixed: string): object {
  return osvDocument('npm', name, ranged('SEMVER', { introduced: '0' }, { fixed }), { id })
}

/** What comparisons were made, and how. */
interface Comparisons {
  readonly use: AdvisoriesInUse
  /** The packages that were compared, in order. */
  readonly compared: string[]
}

/** Compares with the imported advisories. `mostBytes` bounds how many advisories are compared together. */
function comparisons({ mostBytes = Infinity }: { readonly mostBytes?: number } = {}): Comparisons {
  const compared: string[] = []
  const contents: AdvisoriesInUse['contents'] = {
    namesOf: async (question) => namesOfPackages(question),
    match: async (question) => {
      compared.push(...question.packages.map(({ purl }) => purl))
      return vulnerabilitiesOfPackages(question)
    },
  }
  const source: AdvisoriesInUse['source'] = {
    groups: () => reader.groups(),
    ofPackages: async (query) => reader.ofPackages({ ...query, maxBytes: Math.min(query.maxBytes, mostBytes) }),
  }
  const own = { edition: '', ofPackages: async () => noAdvisories }
  return { compared, use: { contents, source, groups: [group], own } }
}

function listed(name: string, version: string, image: number): ListedPackage {
  return { ...packageAt(`pkg:npm/${name}@${version}`), digest: digestOf(Buffer.from(String(image))), locations: [`/${image}/${name}`] }
}

const naive = (packages: readonly ListedPackage[], image?: StatedImage): PackageVulnerability[] => {
  const advisories = reader.ofPackages({ groups: [group], names: [...names], maxBytes: Infinity }) ?? []
  return [...vulnerabilitiesOfPackages({ packages, distribution: alpine, advisories, states, image }).vulnerabilities]
}

describe('packages of many images', () => {
  test('are compared once each, and the answer is that of a comparison of their own', async () => {
    const image = fc.array(fc.tuple(fc.constantFrom(...names, 'unknown'), fc.nat({ max: 3 })), { maxLength: 6 })
    await fc.assert(
      fc.asyncProperty(fc.array(image, { minLength: 1, maxLength: 8 }), async (images) => {
        const { use, compared } = comparisons()
        for (const [at, some] of images.entries()) {
          const packages = some.map(([name, minor]) => listed(name, `1.${minor}.0`, at))
          expect(await new PackageMatches(use).in({ packages, distribution: alpine, states }, turn)).toEqual(naive(packages))
        }
        expect(compared).toHaveLength(new Set(images.flat().map(String)).size)
      }),
    )
  })

  // docs/adr/0045-statements-about-images.md
  test('with statements about one image have them in this image alone, in any order', async () => {
    const image = fc.record({ at: fc.nat({ max: 2 }), index: fc.constantFrom(8, 9), some: fc.subarray([...names]) })
    await fc.assert(
      fc.asyncProperty(fc.array(image, { minLength: 1, maxLength: 8 }), async (images) => {
        const { use } = comparisons()
        for (const { at, index, some } of images) {
          const packages = some.map((name) => listed(name, '1.0.0', at))
          const found = await new PackageMatches(use).in({ packages, distribution: alpine, states, image: imageOf(at, index) }, turn)
          expect(found).toEqual(naive(packages, imageOf(at, index)))
        }
      }),
      { numRuns: 30 },
    )
  })

  test('are compared for an image alone only if a statement about them names it', async () => {
    const { use, compared } = comparisons()
    const found = async (at: number): Promise<string[]> => {
      const packages = [listed('left', '1.0.0', at), listed('up', '1.0.0', at)]
      const all = await new PackageMatches(use).in({ packages, distribution: alpine, states, image: imageOf(at) }, turn)
      return all?.filter(({ found: { name } }) => name === 'left').map(({ id }) => id) ?? []
    }
    const everywhere = await found(1)
    expect(everywhere).toHaveLength(advisoriesPerName - 1)
    expect(compared).toHaveLength(2)
    expect(await found(0)).toEqual(everywhere.filter((id) => id !== 'CVE-2026-1'))
    expect(compared).toHaveLength(3)
    expect(await found(2)).toEqual(everywhere)
    await found(0)
    expect(compared).toHaveLength(3)
  })

  test('are compared again for other groups with advisories, hand-made advisories, states, distributions and catalogues', async () => {
    const { use, compared } = comparisons()
    const packages = [listed('left', '1.0.0', 1)]
    const question = { packages, distribution: alpine, states }
    const found = (some: AdvisoriesInUse, more: object = {}): Promise<unknown> => new PackageMatches(some).in({ ...question, ...more }, turn)
    expect(await found(use)).toHaveLength(advisoriesPerName - 1)
    // A group without advisories changes nothing.
    expect(await found({ ...use, groups: [group, empty] })).toHaveLength(advisoriesPerName - 1)
    expect(compared).toHaveLength(1)
    expect(await found({ ...use, groups: [empty] })).toEqual([])
    await found({ ...use, own: { ...use.own, edition: 'other' } })
    await found(use, { states: ['fixed'] })
    await found(use, { distribution: { id: 'debian', version: '12' } })
    await found({ ...use, source: { ...use.source } })
    expect(compared).toHaveLength(6)
    await found(use)
    expect(compared).toHaveLength(6)
  })

  test('are compared in parts if their advisories are too large together', async () => {
    const packages = names.map((name) => listed(name, '1.0.0', 1))
    const bytes = names.map((name) => {
      const found = reader.ofPackages({ groups: [group], names: [name], maxBytes: Infinity }) ?? []
      return found.reduce((sum, { body, osv = '' }) => sum + body.length + osv.length, 0)
    })
    const [most, least] = [Math.max(...bytes), Math.min(...bytes)]
    const answer = (mostBytes: number): Promise<unknown> =>
      new PackageMatches(comparisons({ mostBytes }).use).in({ packages, distribution: alpine, states }, turn)
    expect(await answer(most)).toEqual(naive(packages))
    expect(await answer(least - 1)).toBeUndefined()
  })

  test('are remembered up to 128 MiB, however long the texts of their advisories are', async () => {
    const { use, compared } = comparisons()
    const [count, aliases, length] = [3_000, 100, 512]
    const long = { id: 'x'.repeat(length), aliases: Array<string>(aliases).fill('y'.repeat(length)) }
    const [match] = naive([listed('left', '1.0.0', 1)])
    const contents: AdvisoriesInUse['contents'] = {
      ...use.contents,
      match: async (question) => {
        const { images } = await use.contents.match(question, turn)
        return { images, vulnerabilities: question.packages.flatMap((found) => (match === undefined ? [] : [{ ...match, ...long, found }])) }
      },
    }
    const found = async (packages: readonly ListedPackage[]): Promise<unknown> =>
      new PackageMatches({ ...use, contents }).in({ packages, distribution: alpine, states }, turn)
    const packages = Array.from({ length: count }, (_, at) => listed('none', `1.${at}.0`, at))
    await found(packages)
    // The newest are remembered, up to the first that is compared again.
    let remembered = 0
    for (const [at, one] of packages.toReversed().entries()) {
      remembered = at
      await found([one])
      if (compared.length > count) break
    }
    expect(remembered).toBeGreaterThan(count / 10)
    expect(remembered * (aliases + 1) * length).toBeLessThan(128 * 1024 * 1024)
  })

  test('weigh in an answer what their vulnerabilities and texts take', () => {
    const found = naive([listed('left', '1.0.0', 1), listed('right', '1.0.0', 1)])
    const characters = JSON.stringify(found).length
    expect(bytesOfAnswer(found)).toBeGreaterThan(characters)
    const long = found.map((one) => ({ ...one, aliases: Array<string>(100).fill('y'.repeat(512)), note: 'z'.repeat(10_000) }))
    expect(bytesOfAnswer(long) - bytesOfAnswer(found)).toBeGreaterThan(found.length * 2 * (100 * 512 + 10_000))
  })
})
