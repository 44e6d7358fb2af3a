import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import type { ArtifactFilter, VersionTerm } from '../../../src/cache/lists/library-source.ts'
import { orderOf, type OrderTerm } from '../../../src/cache/lists/order.ts'
import { LibraryBuilder, type NewArtifact, type NewVersion } from '../../../src/catalogue/libraries/library-builder.ts'
import { LibraryReader } from '../../../src/catalogue/libraries/library-reader.ts'
import { Ecosystem } from '../../../src/gen/taproot/libraries/v2/artifacts_pb.ts'
import { isFullTier } from '../../support/tier.ts'
import { messagesOf, naiveArtifactPage, naiveArtifacts, naiveVersionPage, type NaiveArtifact } from './naive-artifacts.ts'

const ecosystems = [Ecosystem.JAVA, Ecosystem.PYTHON, Ecosystem.NPM] as const
const cudas = ['11.8', '12.1'] as const

function versionsOf(at: number, isPython: boolean): NewVersion[] {
  const texts = ['1.0', '1.0.0', '1.10', '1.9', '2.0rc1', '2.0', 'not a version', 'other', '1.9-remediated-1', '1.9+remediated.2']
  const found = texts.slice(at % 8, (at % 8) + 1 + (at % 5))
  if (isPython && at % 4 === 0) found.push(`2.1.0+cu${cudas[at % 2]?.replace('.', '') ?? ''}`)
  return found.map((version, number) => ({
    version,
    createMs: at % 10 === 0 ? undefined : 1_000 * ((at % 7) + (number % 3)),
    updateMs: at % 10 === 0 ? undefined : 2_000 * ((at % 5) + (number % 2)),
    sizeBytes: number,
    description: number === 1 ? `version ${version}` : '',
    withdrawn: number === 2,
  }))
}

/** Artifacts with few different times and names that share parts, so that filters match and orders have ties. */
function generated(count: number): NewArtifact[] {
  return Array.from({ length: count }, (_, at) => {
    const ecosystem = ecosystems[at % 3] ?? Ecosystem.JAVA
    const word = ['lib', 'Core', 'a_b%"', 'http-client'][at % 4] ?? ''
    return {
      ecosystem,
      name: `${word}${ecosystem === Ecosystem.JAVA ? ':' : ''}${at % 11}-${at}`,
      description: `artifact ${at}`,
      latest: at % 3 === 0 ? '1.0' : undefined,
      updateMs: at % 6 === 0 ? 9_000 : undefined,
      cuda: ecosystem === Ecosystem.PYTHON && at % 9 === 0 ? ['12.1'] : [],
      versions: versionsOf(at, ecosystem === Ecosystem.PYTHON),
    }
  })
}

const terms = fc.uniqueArray(fc.record({ field: fc.constantFrom('uid', 'name', 'createMs', 'updateMs' as const), descending: fc.boolean() }), {
  selector: ({ field }) => field,
  minLength: 1,
  maxLength: 4,
}) as fc.Arbitrary<OrderTerm[]>

const versionTerms = fc
  .uniqueArray(fc.record({ field: fc.constantFrom('version', 'name', 'createMs', 'updateMs' as const), descending: fc.boolean() }), {
    selector: ({ field }) => field,
    maxLength: 4,
  })
  .chain((found) => fc.boolean().map((descending): VersionTerm[] => [...found, { field: 'uid', descending }]))

/** Filters whose texts occur in names, or nearly. */
function filters(all: readonly NaiveArtifact[]): fc.Arbitrary<ArtifactFilter> {
  const part = fc.tuple(fc.constantFrom(...all), fc.nat(), fc.integer({ min: 1, max: 8 })).map(([{ name }, at, length]) => {
    const start = at % name.length
    const cut = name.slice(start, start + length)
    return at % 2 === 0 ? cut.toUpperCase() : cut
  })
  return fc.record({
    ecosystems: fc.uniqueArray(fc.constantFrom(...ecosystems), { minLength: 1 }),
    text: fc.oneof({ weight: 3, arbitrary: fc.constant('') }, { weight: 5, arbitrary: part }, { weight: 1, arbitrary: fc.constantFrom('none', 'ü', '"', ' ') }),
    cuda: fc.option(fc.constantFrom(...cudas, '10.2'), { nil: undefined }),
    remediated: fc.boolean(),
  })
}

describe.each([
  { what: 'few artifacts', few: 5_000 },
  { what: 'many artifacts', few: 3 },
])('a catalogue of $what, compared with a search of every artifact', (options) => {
  const rows = generated(400)
  const all = naiveArtifacts(rows)
  let folder = ''
  let open: LibraryReader | undefined
  const reader = (): LibraryReader => open ?? expect.fail('not built')
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'taproot-libraries-'))
    const path = join(folder, 'libraries.sqlite')
    const builder = new LibraryBuilder({ path, isNew: true })
    for (const row of rows) builder.put(row)
    builder.finish({ source: 'generated', nowMs: 0 })
    open = new LibraryReader(path, options)
  })
  afterAll(async () => {
    open?.close()
    await rm(folder, { recursive: true })
  })

  test('pages of any filter and order are the same', () => {
    fc.assert(
      fc.property(filters(all), terms, fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 20 }), (filter, order, skip, limit) => {
        const query = { filter, order: orderOf(order), after: undefined, skip, limit }
        const page = reader().artifacts(query)
        expect({ uids: page.artifacts.map(({ uid }) => uid), total: page.total }).toEqual(naiveArtifactPage(all, query))
        // What the reader remembers changes nothing.
        expect(reader().artifacts(query)).toEqual(page)
        // The next page goes on after the last artifact, and so does a page after a place that no artifact has.
        const last = page.artifacts.at(-1)
        if (last === undefined) return
        const others = [
          last,
          { ...last, uid: trustedUid(`${last.uid}!`), name: `${last.name}!` },
          { ...last, uid: trustedUid(last.uid.slice(0, -1)), name: last.name.slice(0, -1) },
          { ...last, createMs: last.createMs + 1, updateMs: last.updateMs - 1 },
        ]
        for (const after of others) {
          const next = reader().artifacts({ ...query, after, skip: skip % 3 })
          expect({ uids: next.artifacts.map(({ uid }) => uid), total: next.total }).toEqual(naiveArtifactPage(all, { ...query, after, skip: skip % 3 }))
        }
      }),
      { numRuns: isFullTier ? 3_000 : 300 },
    )
  })

  test('all pages together are the list, each artifact once', () => {
    const order = orderOf([{ field: 'updateMs', descending: true }])
    const filter: ArtifactFilter = { ecosystems, text: '', cuda: undefined, remediated: false }
    const uids: string[] = []
    for (let after = undefined as ReturnType<LibraryReader['artifacts']>['artifacts'][number] | undefined; ;) {
      const { artifacts } = reader().artifacts({ filter, order, after, skip: 0, limit: 77 })
      uids.push(...artifacts.map(({ uid }) => uid))
      after = artifacts.at(-1)
      if (after === undefined) break
    }
    expect(uids).toEqual(naiveArtifactPage(all, { filter, order, after: undefined, skip: 0, limit: Infinity }).uids)
  })

  test('each artifact has its own values', () => {
    const filter: ArtifactFilter = { ecosystems, text: '', cuda: undefined, remediated: false }
    const found = messagesOf(reader().artifacts({ filter, order: orderOf([{ field: 'uid', descending: false }]), after: undefined, skip: 0, limit: 1_000 }))
    const byUid = new Map(found.map((message) => [message.uid, message]))
    for (const { uid, name, createMs, updateMs, row } of all) {
      expect(byUid.get(uid)).toMatchObject({ uid, name, createMs, updateMs, ecosystem: row.ecosystem, versionCount: row.versions.length })
    }
    for (const ecosystem of ecosystems) expect(reader().counts().get(ecosystem)).toBe(all.filter(({ row }) => row.ecosystem === ecosystem).length)
  })

  test('pages of the versions of any artifact are the same', () => {
    fc.assert(
      fc.property(fc.constantFrom(...all), versionTerms, fc.nat(3), fc.integer({ min: 1, max: 4 }), ({ uid, row }, order, skip, limit) => {
        const query = { artifact: uid, terms: order, after: undefined, skip, limit }
        const page = reader().versions(query) ?? expect.fail('no artifact')
        expect(page.versions.map(({ version }) => version)).toEqual(naiveVersionPage(row, query))
        expect([page.total, page.name]).toEqual([row.versions.length, row.name])
        const last = page.versions.at(-1)
        if (last === undefined) return
        const elsewhere = ['1.5', '0', '99', 'unknown', '1.0.0.0'].map((version) => ({ ...last, uid: `${uid}:${version}`, version }))
        for (const after of [last, ...elsewhere, { ...last, createMs: last.createMs - 1, updateMs: last.updateMs + 1 }]) {
          const next = reader().versions({ ...query, after, skip: 0 })
          expect(next?.versions.map(({ version }) => version)).toEqual(naiveVersionPage(row, { ...query, after, skip: 0 }))
        }
      }),
      { numRuns: isFullTier ? 3_000 : 300 },
    )
  })

  test('an unknown artifact has no versions', () => {
    for (const artifact of ['python:none', 'none', '', 'rust:lib', 'python:'])
      expect(reader().versions({ artifact, terms: [{ field: 'uid', descending: false }], after: undefined, skip: 0, limit: 10 })).toBeUndefined()
  })
})
