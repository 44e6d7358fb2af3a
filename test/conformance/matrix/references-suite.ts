import type { DescField, DescMessage } from '@bufbuild/protobuf'
import { ScalarType } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { fieldAccess } from '../../../src/base/schema/field-behavior.ts'
import { methods } from '../../../src/base/schema/schema.ts'
import { placeOf } from '../walk/cases/method-case.ts'
import { answerAbout, ask, forEach } from './asking.ts'
import { places, type CallerName } from './callers.ts'
import type { Ground } from './places-suite.ts'
import { filterFields } from './lists-suite.ts'
import { references, valuesOf } from './references.ts'
import { noReferences } from './rows/no-references.ts'
import { namedAtSignIn } from './sessions-suite.ts'
import { signedInFields } from './signed-in-suite.ts'

function isText(field: DescField): boolean {
  return field.fieldKind === 'map' || ((field.fieldKind === 'scalar' || field.fieldKind === 'list') && field.scalar === ScalarType.STRING)
}

/** Yields every text field of a request, at any depth, except the one that names its subject. */
function* textFields(desc: DescMessage, place: readonly string[] | undefined, above: readonly DescMessage[] = []): Generator<string> {
  if (above.includes(desc) || desc.typeName.startsWith('google.protobuf.')) return
  for (const field of desc.fields) {
    const isPlace = place?.[0] === field.name
    if (!fieldAccess(field).outputOnly && isText(field) && !isPlace) yield `${desc.typeName.replace(/^taproot\./, '')}.${field.name}`
    if (field.message !== undefined) yield* textFields(field.message, isPlace ? place.slice(1) : undefined, [...above, desc])
  }
}

function covers(pattern: string, field: string): boolean {
  if (pattern.startsWith('*.')) return field.endsWith(pattern.slice(1))
  return pattern.endsWith('.*') ? field.startsWith(pattern.slice(0, -1)) : field === pattern
}

/** Fails for a field that is neither tried by a table nor listed as naming nothing. */
export function referencesCoverage(): void {
  test('the matrix contains every field that can name a record, or lists it as naming none', () => {
    const fields = new Set(methods.flatMap((method) => [...textFields(method.input, placeOf(method))]))
    const tried = [...[...references, ...namedAtSignIn].map(({ field }) => field), ...filterFields(), ...signedInFields()]
    const known = [...tried, ...noReferences]
    expect([...fields].filter((field) => !known.some((pattern) => covers(pattern, field)))).toEqual([])
    expect(known.filter((pattern) => ![...fields].some((field) => covers(pattern, field)) && !pattern.endsWith('Request.parent'))).toEqual([])
  })
}

/** Requests in the subgroup that name a record elsewhere, by an owner of the root and one of the subgroup. */
export function referencesSuite(ground: Ground): void {
  const callers = { root: 'an owner of the root', subgroup: 'an owner of the subgroup' } as const satisfies Record<string, CallerName>

  test.each(references)('$field of $method may name $names only in permitted groups; missing and foreign records look the same', async (row) => {
    const world = ground.world()
    const values = valuesOf(row, world.things)
    await forEach(Object.entries(callers) as [keyof typeof callers, CallerName][], async ([column, caller]) => {
      const replies = await Promise.all(
        values.map((value) =>
          ask(ground.apiClient(), {
            name: row.method,
            request: row.request(value, world.things.own),
            token: world.tokens[caller],
            options: { validateOnly: true },
          }),
        ),
      )
      const codes = Object.fromEntries(places.map((place, at) => [place, replies[at]?.code]))
      const expected = Object.fromEntries(Object.keys(codes).map((place, at) => [place, row[column][at]]))
      expect({ caller, ...codes }).toEqual({ caller, ...expected })
      // Code 7 names a missing right in a place that the caller named.
      const refusals = replies.map((reply, at) => ({ reply, value: values[at] ?? '' })).filter(({ reply }) => reply.code !== 0 && reply.code !== 7)
      const texts = refusals.map(({ reply, value }) => answerAbout(reply, value).replaceAll('"<parent>"', '"/"').replaceAll('\\"<parent>\\"', '\\"/\\"'))
      expect([...new Set(texts)].length, texts.join('\n')).toBeLessThanOrEqual(1)
    })
  })
}
