import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { fromBinary } from '@bufbuild/protobuf'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { orderOf, type OrderTerm } from '../../src/cache/lists/order.ts'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { matchingOwn, ownAdvisoryKind } from '../../src/catalogue/advisories/own-advisories.ts'
import { importInto } from '../../src/catalogue/import/run-import.ts'
import { advisoryFacets, mergedPage, type AdvisoryFilter, type AdvisorySource, type FacetValues } from '../../src/cache/lists/advisory-source.ts'
import { recordOfEnvelope } from '../../src/cache/records/record-factory.ts'
import { envelopeOf } from '../../src/engine/record-codec.ts'
import { storeRevision } from '../../src/store/store.ts'
import { AdvisorySchema } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { hasPypaData, osvDocument, pypaDocuments } from '../support/import-advisories.ts'
import { isFullTier } from '../support/tier.ts'
import { targetsAt } from './documents.ts'
import { naiveAdvisories, naivePage, naiveValues, type NaiveAdvisory } from './naive-advisories.ts'

/** YAML is slow to parse, so the short tier reads a part of it. */
const realDocuments = isFullTier ? Infinity : 600

/** Groups that contain each other, and one elsewhere. */
const groups = ['a'.repeat(40), `${'a'.repeat(40)}/${'1'.repeat(16)}`, 'b'.repeat(40)].map(trustedUid)

/** Documents with few different values and times, so that filters match and orders have ties. */
function generated(count: number): unknown[] {
  return Array.from({ length: count }, (_, at) => {
    const day = String((at % 9) + 1)
    const ranges = [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, ...(at % 3 === 0 ? [{ fixed: `1.${at}` }] : [])] }]
    return osvDocument(`${['GHSA', 'PYSEC', 'CVE'][at % 3]}-${at}`, {
      published: `2026-01-0${day}T00:00:00Z`,
      modified: `2026-02-0${String((at % 5) + 1)}T00:00:00Z`,
      ...(at % 11 === 0 ? { withdrawn: '2026-03-01T00:00:00Z' } : {}),
      aliases: at % 4 === 0 ? [`CVE-2026-${at}`, `ÅLIAS-${at % 7}"'%_`] : [],
      affected: [
        { package: { ecosystem: at % 2 === 0 ? 'PyPI' : 'npm', name: `Package-${at % 13}` }, ranges },
        ...(at % 5 === 0 ? [{ package: { ecosystem: 'npm', name: 'second' } }] : []),
      ],
    })
  })
}

/** A catalogue with these documents, dealt out to the groups, and the same in memory. */
async function built(documents: readonly unknown[]): Promise<{ reader: AdvisoryReader; all: NaiveAdvisory[]; folder: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-catalogue-'))
  const target = join(folder, 'catalogue.sqlite')
  const all: NaiveAdvisory[] = []
  for (const [number, group] of groups.entries()) {
    const dealt = documents.filter((_, at) => at % groups.length === number)
    const path = join(folder, `${number}.jsonl`)
    await writeFile(path, dealt.map((document) => `${JSON.stringify(document)}\n`).join(''))
    const refusals: unknown[] = []
    const options = { paths: [path], group, replace: false, nowMs: 0, onRefusal: (refusal: unknown) => refusals.push(refusal), onProgress: () => undefined }
    await importInto(targetsAt(target), options, AbortSignal.timeout(60_000))
    expect(refusals).toEqual([])
    all.push(...naiveAdvisories(dealt, group))
  }
  // Small enough that some lists sort what they find, and some walk the order.
  return { reader: new AdvisoryReader(target, { few: 20 }), all, folder }
}

const terms = fc.uniqueArray(fc.record({ field: fc.constantFrom('uid', 'createMs', 'updateMs' as const), descending: fc.boolean() }), {
  selector: ({ field }) => field,
  minLength: 1,
  maxLength: 3,
}) as fc.Arbitrary<OrderTerm[]>

/** Filters whose values occur in the advisories, or nearly. */
function filters(all: readonly NaiveAdvisory[]): fc.Arbitrary<AdvisoryFilter> {
  const one = fc.constantFrom(...all)
  const facetValues: fc.Arbitrary<FacetValues> = fc.constantFrom(...advisoryFacets).chain((facet) =>
    fc
      .array(
        fc.oneof({ weight: 4, arbitrary: one.map(({ advisory }) => naiveValues[facet](advisory)[0] ?? 'none') }, { weight: 1, arbitrary: fc.constant('none') }),
        {
          minLength: 1,
          maxLength: 3,
        },
      )
      // No filter has an empty value: empty values are not set.
      .map((values): FacetValues => [facet, values.map((value) => (value === '' ? 'none' : value))]),
  )
  const part = fc.tuple(one, fc.nat(), fc.integer({ min: 1, max: 8 })).map(([{ advisory }, at, length]) => {
    const text = advisory.aliases[at % 3] ?? advisory.artifactName
    const start = at % text.length
    const cut = text.slice(start, start + length).toWellFormed()
    return at % 2 === 0 ? cut.toUpperCase() : cut
  })
  return fc.record({
    groups: fc.uniqueArray(fc.constantFrom(...groups), { minLength: 1 }).map((found) => found.sort()),
    uids: fc.oneof(
      { weight: 6, arbitrary: fc.constant(undefined) },
      {
        weight: 1,
        arbitrary: fc.array(
          one.map(({ uid }) => uid),
          { minLength: 1, maxLength: 5 },
        ),
      },
    ),
    anyOf: fc.array(facetValues, { maxLength: 3 }),
    noneOf: fc.array(facetValues, { maxLength: 1 }),
    text: fc.oneof(fc.constant(''), part),
  })
}

const sets: readonly { readonly what: string; readonly documents: () => Promise<unknown[]>; readonly isThere: boolean }[] = [
  { what: 'generated advisories', documents: () => Promise.resolve(generated(400)), isThere: true },
  { what: 'the PyPA advisory database', documents: () => pypaDocuments({ max: realDocuments }), isThere: hasPypaData },
]

describe.each(sets)('a catalogue of $what', ({ documents, isThere }) => {
  describe.skipIf(!isThere)('compared with a search of every advisory', () => {
    let catalogue: Awaited<ReturnType<typeof built>> | undefined
    const parts = (): Awaited<ReturnType<typeof built>> => catalogue ?? expect.fail('not built')
    beforeAll(async () => {
      catalogue = await built(await documents())
    })
    afterAll(async () => {
      catalogue?.reader.close()
      if (catalogue !== undefined) await rm(catalogue.folder, { recursive: true })
    })

    test('pages of any filter and order are the same', () => {
      const { reader, all } = parts()
      fc.assert(
        fc.property(filters(all), terms, fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 20 }), (filter, order, skip, limit) => {
          const query = { filter, order: orderOf(order), after: undefined, skip, limit }
          const page = reader.page(query)
          expect({ uids: page.advisories.map(({ uid }) => uid), total: page.total }).toEqual(naivePage(all, query))
          // What the reader remembers changes nothing.
          expect(reader.page(query)).toEqual(page)
          // The next page goes on after the last advisory, and so does a page after a place that no advisory has.
          const last = page.advisories.at(-1)
          if (last === undefined) return
          for (const after of [
            last,
            { ...last, uid: trustedUid(`${last.uid.slice(0, -1)}8`) },
            { ...last, createMs: last.createMs + 1, updateMs: last.updateMs - 1 },
          ]) {
            const next = reader.page({ ...query, after, skip: 0 })
            expect({ uids: next.advisories.map(({ uid }) => uid), total: next.total }).toEqual(naivePage(all, { ...query, after, skip: 0 }))
          }
        }),
        { numRuns: isFullTier ? 2_000 : 150 },
      )
    })

    test('pages that end at a size are the start of the list, also together with hand-made advisories', async () => {
      const { folder, all } = parts()
      const reader = new AdvisoryReader(join(folder, 'catalogue.sqlite'), { few: 20, pageBytes: 1_500 })
      const sourceOf = (own: readonly Uid[]): Pick<AdvisorySource, 'page'> => ({
        page: (query) =>
          Promise.resolve(reader.page({ ...query, filter: { ...query.filter, groups: query.filter.groups.filter((group) => own.includes(group)) } })),
      })
      /** The advisories of some groups as records of the store. */
      const recordsOf = (own: readonly Uid[]) =>
        all
          .filter(({ group, advisory }) => own.includes(group) && advisory.deleteTime === undefined)
          .map(({ uid, createMs, updateMs, advisory }) => {
            const facts = { etag: '', createMs, updateMs, managedBy: '' }
            const envelope = envelopeOf(AdvisorySchema, advisory, facts)
            return recordOfEnvelope(ownAdvisoryKind.index, { uid, envelope, revision: storeRevision(1) })
          })
      const splits = [
        { source: sourceOf(groups), own: [] },
        { source: sourceOf(groups.slice(0, 1)), own: groups.slice(1) },
        { source: sourceOf(groups.slice(1)), own: groups.slice(0, 1) },
        { source: undefined, own: groups },
      ].map(({ source, own }) => ({ source, records: recordsOf(own) }))
      const turn = { key: '', signal: new AbortController().signal }
      const property = fc.asyncProperty(filters(all), terms, fc.nat(30), fc.integer({ min: 1, max: 20 }), async (filter, order, skip, limit) => {
        const query = { filter, order: orderOf(order), after: undefined, skip, limit }
        const expected = naivePage(all, { ...query, limit: Infinity })
        for (const { source, records } of splits) {
          const visible = records.filter(({ parent }) => filter.groups.some((group) => group === parent))
          const { advisories, hasMore, total } = await mergedPage(source, await matchingOwn(visible, filter), { query, turn })
          const uids = advisories.map(({ uid }) => uid)
          expect({ uids, total }).toEqual({ uids: expected.uids.slice(0, uids.length), total: expected.total })
          expect([uids.length > 0, uids.length <= limit, hasMore]).toEqual([expected.uids.length > 0, true, expected.uids.length > uids.length])
        }
      })
      await fc.assert(property, { numRuns: isFullTier ? 1_000 : 100 }).finally(() => reader.close())
    })

    test('the advisories of any origin packages and ids are the same, and none beyond the bounds', () => {
      const { reader, all } = parts()
      const one = fc.constantFrom(...all)
      const ids = fc.array(
        one.chain(({ advisory }) => fc.constantFrom(advisory.advisoryId, ...advisory.aliases, 'none')),
        { minLength: 1, maxLength: 4 },
      )
      const query = fc.record({
        groups: fc.uniqueArray(fc.constantFrom(...groups)),
        origin: fc.option(
          fc.oneof(
            one.map(({ advisory }) => advisory.artifactName),
            fc.constant('none'),
          ),
          { nil: undefined },
        ),
        ids: fc.option(ids, { nil: undefined }),
        maxAdvisories: fc.constantFrom(1, 10, 100_000),
        maxBytes: fc.constantFrom(2_000, 100_000_000),
      })
      fc.assert(
        fc.property(query, (asked) => {
          const expected = all.filter(
            ({ group, advisory: { deleteTime, artifactName, advisoryId, aliases } }) =>
              deleteTime === undefined &&
              asked.groups.includes(group) &&
              (asked.origin === undefined || artifactName === asked.origin) &&
              (asked.ids === undefined || [advisoryId, ...aliases].some((id) => asked.ids?.includes(id))),
          )
          const found = reader.byOrigin(asked)
          const bytes = expected.map(({ uid }) => reader.get(uid)?.length ?? 0).reduce((sum, length) => sum + length, 0)
          if (expected.length > asked.maxAdvisories || bytes > asked.maxBytes) expect(found).toBeUndefined()
          else
            expect(found?.map(({ uid, origin }) => `${uid} ${origin}`).sort()).toEqual(
              expected.map(({ uid, advisory }) => `${uid} ${advisory.artifactName}`).sort(),
            )
        }),
        { numRuns: isFullTier ? 2_000 : 150 },
      )
    })

    test('all pages together are the list, each advisory once', () => {
      const { reader, all } = parts()
      const order = orderOf([{ field: 'updateMs', descending: true }])
      const filter: AdvisoryFilter = { groups, uids: undefined, anyOf: [], noneOf: [], text: '' }
      const uids: Uid[] = []
      for (let after = undefined as NaiveAdvisory | ReturnType<AdvisoryReader['page']>['advisories'][number] | undefined; ;) {
        const { advisories } = reader.page({ filter, order, after, skip: 0, limit: 77 })
        uids.push(...advisories.map(({ uid }) => uid))
        after = advisories.at(-1)
        if (after === undefined) break
      }
      expect(uids).toEqual(naivePage(all, { filter, order, after: undefined, skip: 0, limit: Infinity }).uids)
    })

    test('each advisory is read by its uid, withdrawn ones too', () => {
      const { reader, all } = parts()
      for (const { uid, advisory } of all) {
        const body = reader.get(uid)
        expect(body === undefined ? undefined : { ...fromBinary(AdvisorySchema, body), etag: '' }).toEqual(advisory)
      }
      expect(reader.get(trustedUid(`${groups[0] ?? ''}/${'0'.repeat(16)}`))).toBeUndefined()
    })
  })
})

test('a page with large hand-made advisories ends early, and the next one goes on', async () => {
  const uids = ['1', '2', '3', '4', '5'].map((digit) => trustedUid(`${'a'.repeat(40)}/${digit.repeat(16)}`))
  const own = uids.map((uid) => ({ uid, name: '', createMs: 0, updateMs: 0, body: new Uint8Array(1024 * 1024) }))
  const filter: AdvisoryFilter = { groups, uids: undefined, anyOf: [], noneOf: [], text: '' }
  const query = { filter, order: orderOf([{ field: 'uid', descending: false }]), after: undefined, skip: 0, limit: 200 }
  const turn = { key: '', signal: new AbortController().signal }
  const first = await mergedPage(undefined, own, { query, turn })
  expect([first.advisories.map(({ uid }) => uid), first.hasMore, first.total]).toEqual([uids.slice(0, 3), true, 5])
  const next = await mergedPage(undefined, own, { query: { ...query, after: first.advisories.at(-1) }, turn })
  expect([next.advisories.map(({ uid }) => uid), next.hasMore, next.total]).toEqual([uids.slice(3), false, 5])
})
