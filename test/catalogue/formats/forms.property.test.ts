import { fromBinary, toBinary, toJson } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { RefusedDocument } from '../../../src/catalogue/import/members.ts'
import { AdvisorySchema } from '../../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { fileOf, importPaths } from '../documents.ts'
import { advisoriesOf } from './rows.ts'
import { samples } from './samples.ts'

type Json = string | number | boolean | null | Json[] | { [key: string]: Json }

/** Texts and values that documents of no form expect. */
const hostileValue = fc.oneof(
  fc.constantFrom<Json>(
    '__proto__',
    'constructor',
    'toString',
    '',
    'pkg:',
    'pkg:golang/a/b@v1',
    'a\u0000b',
    '\ud800',
    'x'.repeat(600),
    '9999-12-31T23:59:59-14:00',
  ),
  fc.constantFrom<Json>(null, true, -1, 1e308, [], [[]], {}, [null], JSON.parse('{"__proto__":{"id":1}}') as Json),
  fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value)) as Json),
)

/** All places in a value, as paths. */
function placesIn(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path]
  return [path, ...Object.entries(value).flatMap(([key, inner]) => placesIn(inner, [...path, key]))]
}

/** Returns a copy with another value at the path, or without the member if it is undefined. */
function replaced(value: unknown, [key, ...rest]: readonly string[], by: Json | undefined): unknown {
  if (key === undefined) return by
  if (Array.isArray(value)) return value.map((item: unknown, at) => (String(at) === key ? (replaced(item, rest, by) ?? null) : item))
  const entries = Object.entries(value as object).map(([name, inner]) => [name, name === key ? replaced(inner, rest, by) : inner] as const)
  return Object.fromEntries(entries.filter(([, inner]) => inner !== undefined))
}

/** What each advisory has at least. */
const named = { advisoryId: expect.stringMatching('.'), artifactName: expect.stringMatching('.'), events: expect.anything() }

describe.each(Object.entries(samples))('%s', (_, sample) => {
  const places = placesIn(sample).filter((path) => path.length > 0)

  test('any damage is taken or refused, never an error', () => {
    const damage = fc.array(fc.tuple(fc.constantFrom(...places), fc.option(hostileValue, { nil: undefined })), { minLength: 1, maxLength: 3 })
    fc.assert(
      fc.property(damage, (changes) => {
        let document: unknown = sample
        for (const [path, by] of changes) {
          if (placesIn(document).some((place) => String(place) === String(path))) document = replaced(document, path, by)
        }
        try {
          for (const advisory of advisoriesOf(document))
            expect(toJson(AdvisorySchema, fromBinary(AdvisorySchema, toBinary(AdvisorySchema, advisory)))).toMatchObject(named)
        } catch (error) {
          if (!(error instanceof RefusedDocument)) throw error
        }
      }),
      { numRuns: 500 },
    )
  })

  test('the same import twice changes nothing', async () => {
    const path = await fileOf('document', JSON.stringify(sample, undefined, 1))
    const first = await importPaths([path])
    expect(first.refusals).toEqual([])
    const { counts } = await importPaths([path], { target: first.target, replace: true })
    expect(counts).toMatchObject({ added: 0, changed: 0, unchanged: first.counts.added, removed: 0, refused: 0 })
  })
})
