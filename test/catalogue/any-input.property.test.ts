import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { documentsOf } from '../../src/catalogue/import/documents.ts'
import { formatOf } from '../../src/catalogue/import/formats/formats.ts'
import { RefusedDocument } from '../../src/catalogue/import/members.ts'
import { isFullTier } from '../support/tier.ts'
import { testGroup } from './documents.ts'

describe('any input', () => {
  const names = ['id', 'cve', 'cveID', 'modified', 'affected', 'severity', 'type', 'score', 'url', 'references', 'metrics', 'epss', 'percentile', 'dateAdded']
  const more = [
    'aliases',
    'package',
    'ecosystem',
    'name',
    'ranges',
    'events',
    'descriptions',
    'value',
    'lang',
    'summary',
    'details',
    'vulnerabilities',
    'format',
    'cycle',
    'eol',
    'label',
    'category',
    'releases',
    'identifiers',
  ]
  const leaf = fc.oneof(
    fc.constantFrom('CVE-2026-1', '2026-01-01T00:00:00Z', '2026-01-01', 'en', 'constructor', '__proto__', 'https://example.com', 'NVD_CVE', '0.5', 'CVSS_V3'),
    fc.string({ unit: 'binary', maxLength: 8 }),
    fc.constantFrom(null, true, 0, -1, 1e308),
  )
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'medium', withCrossShrink: true },
      leaf,
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom(...names, ...more), tie('value'), { maxKeys: 6 }),
    ),
  }))

  test('random JSON is imported, or refused with a reason', () => {
    const context = { group: () => testGroup, nowMs: 0, ecosystem: undefined, file: 'document.json' }
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...names, ...more), value, { maxKeys: 10 }), (document) => {
        try {
          const { format, document: members } = formatOf(document)
          void [...format.rowsOf(members, context)]
        } catch (error) {
          expect(error).toBeInstanceOf(RefusedDocument)
        }
      }),
      { numRuns: isFullTier ? 50_000 : 2_000 },
    )
  })

  test('random JSON in random pieces yields the same documents as JSON.parse', async () => {
    const padding = 'x'.repeat(1024 * 1024)
    await fc.assert(
      fc.asyncProperty(
        fc.array(value, { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 8 }),
        fc.boolean(),
        async (items, sizes, isFeed) => {
          // The padding makes the file large enough to be split.
          const all = [{ padding }, ...items]
          const bytes = Buffer.from(JSON.stringify(isFeed ? { format: 'NVD_CVE', vulnerabilities: all, x: [']'] } : all))
          const found = []
          for await (const document of documentsOf(piecesOf(bytes, sizes, padding.length))) found.push('value' in document ? document.value : document)
          const expected = (JSON.parse(JSON.stringify(all)) as unknown[]).flatMap((item) => listIn(item) ?? [item])
          expect(found).toEqual(expected)
        },
      ),
      { numRuns: isFullTier ? 500 : 40 },
    )
  })

  test('random CSV is imported, or refused with a reason', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 60 }), async (text) => {
        for await (const document of documentsOf(piecesOf(Buffer.from(`cve,epss,percentile\n${text}`), [7], 0))) {
          if (!('value' in document)) continue
          try {
            const { format, document: members } = formatOf(document.value)
            void [...format.rowsOf(members, { group: () => testGroup, nowMs: 0, ecosystem: undefined, file: 'document.json' })]
          } catch (error) {
            expect(error).toBeInstanceOf(RefusedDocument)
          }
        }
      }),
      { numRuns: isFullTier ? 5_000 : 500 },
    )
  })
})

/** The items of an object that only holds a list. */
function listIn(item: unknown): unknown[] | undefined {
  const { format, vulnerabilities } = (typeof item === 'object' && item !== null && !Array.isArray(item) ? item : {}) as JsonObject
  return format === 'NVD_CVE' && Array.isArray(vulnerabilities) ? vulnerabilities : undefined
}

/** Yields the first bytes whole, and the rest in pieces of these sizes. */
async function* piecesOf(bytes: Buffer, sizes: readonly number[], first: number): AsyncGenerator<Uint8Array, void, undefined> {
  yield bytes.subarray(0, first)
  for (let at = first, number = 0; at < bytes.length; number++) {
    const size = sizes[number % sizes.length] ?? 1
    yield await Promise.resolve(bytes.subarray(at, at + size))
    at += size
  }
}
