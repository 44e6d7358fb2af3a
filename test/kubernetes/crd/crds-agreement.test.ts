import { fromJson, type DescMessage, type JsonValue, type Message } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { resources } from '../../../src/base/schema/schema.ts'
import { isOwnField } from '../../../src/kubernetes/crd/kind-schema.ts'
import { violationsOf } from '../../../src/engine/validate.ts'
import type { StructuralSchema } from '../../../src/kubernetes/crd/structural-schema.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { replaced, valueAt } from './constraint-cases.ts'
import { placeName, schemaOf, schemasIn, type Place } from './definitions.ts'
import { fullSpecs } from './full-objects.ts'
import { objectOf, pathOf, startObjectApi, type ObjectApi } from '../object-api.ts'
import { campaignLength } from '../../soak/factor.ts'

type Spec = Readonly<Record<string, unknown>>

/** Above this many bytes the length of an object's text is limited in characters only. */
const mostCountedBytes = 100_000

/** Returns the record of a spec in the API's JSON. */
function jsonOf(desc: DescMessage, spec: Spec, objectName: string): JsonValue {
  const named = desc.fields.some(({ name }) => name === 'name') ? { name: objectName } : {}
  return { ...named, ...Object.fromEntries(Object.entries(spec).filter(([field]) => !isOwnField(field))) }
}

/** Returns the record, or undefined for an unknown member or invalid time, for which fromJson throws. */
function read(desc: DescMessage, json: JsonValue): Message | undefined {
  try {
    return fromJson(desc, json)
  } catch {
    return undefined
  }
}

/** Returns whether the API accepts the record: it can be read, and violates no constraint. */
function isRecord(desc: DescMessage, json: JsonValue): boolean {
  const record = read(desc, json)
  return record !== undefined && violationsOf(desc, record).length === 0
}

/** Returns texts of all kinds: any characters, those of names, and texts of the maximum length or one more. */
function textFor({ maxLength = 20, enum: members, format }: StructuralSchema): fc.Arbitrary<string> {
  const units = maxLength > mostCountedBytes ? ['a'] : ['a', 'é', '😀', ' ']
  const long = fc.tuple(fc.constantFrom(...units), fc.integer({ min: -1, max: 1 })).map(([unit, more]) => unit.repeat(maxLength + more))
  const times = fc.date({ min: new Date('0001-01-01'), max: new Date('9999-12-31'), noInvalidDate: true }).map((time) => time.toISOString())
  return fc.oneof(
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.string({ unit: fc.constantFrom(...'az09 ._-/:@~<>=!+\\\n\tA'), maxLength: 80 }),
    long,
    ...(members === undefined ? [] : [fc.constantFrom(...members)]),
    ...(format === 'date-time' ? [times] : []),
  )
}

function valueFor(schema: StructuralSchema): fc.Arbitrary<unknown> {
  const { type, items, additionalProperties, maxItems = 0, maxProperties = 0 } = schema
  if (type === 'integer') return fc.oneof(fc.integer(), fc.integer({ min: -1, max: 1 }), fc.constantFrom(2 ** 31, 2 ** 31 - 1, 1.5))
  if (type === 'boolean') return fc.boolean()
  if (items?.type === 'string') {
    const few = fc.array(textFor(items), { maxLength: 3 })
    const doubled = few.map((list) => [...list, ...list])
    const full = fc
      .tuple(textFor(items), fc.integer({ min: 0, max: 1 }))
      .map(([text, more]) => Array.from({ length: maxItems + more }, () => [...text].slice(0, 10).join('')))
    return fc.oneof(few, doubled, full)
  }
  if (additionalProperties !== undefined) {
    const keys = fc.oneof(textFor({ type: 'string', maxLength: 255 }), fc.constantFrom('TAPROOT_X', 'dev.taproot.x', 'org.opencontainers.x', 'team'))
    const few = fc.dictionary(keys, textFor(additionalProperties), { maxKeys: 3 })
    const full = fc.integer({ min: 0, max: 1 }).map((more) => Object.fromEntries(Array.from({ length: maxProperties + more }, (_, at) => [`k${at}`, 'x'])))
    return fc.oneof(few, full)
  }
  return textFor(schema)
}

/** A full spec with one value changed or removed. */
interface Change {
  readonly kind: string
  readonly place: Place
  readonly spec: Spec
}

/** Returns fields that the record's message constrains. Patterns have their own rule, and objects above a megabyte are left out. */
function placesOf(kind: string): readonly (readonly [Place, StructuralSchema])[] {
  const spec = schemaOf(kind).properties?.['spec']
  if (spec === undefined) throw new Error(`${kind} has no spec`)
  return [...schemasIn(spec)].filter(([place]) => {
    const [head = ''] = place
    return place.length > 0 && !isOwnField(head) && !place.includes('[]') && !place.includes('{}') && !/Patterns?$/.test(placeName(place))
  })
}

const kinds = ['PlatformGroup', 'PlatformIdentity', 'PlatformRole', 'PlatformRepo', 'PlatformSubscription']

const changes: fc.Arbitrary<Change> = fc
  .constantFrom(...kinds.flatMap((kind) => placesOf(kind).map((entry) => ({ kind, entry }))))
  .chain(({ kind, entry: [place, schema] }) => {
    const specs = (fullSpecs[kind] ?? []).filter(
      (spec) => !('serviceAccountRef' in spec || 'secretName' in spec) && valueAt(spec, place.slice(0, -1)) !== undefined,
    )
    const values =
      schema.type === 'object' && schema.properties !== undefined ? fc.constant(undefined) : fc.option(valueFor(schema), { nil: undefined, freq: 10 })
    return fc.tuple(fc.constantFrom(...specs), values).map(([spec, value]) => ({ kind, place, spec: replaced(spec, place, value) as Spec })) // the place is below the top
  })

describeWithPart('kube-apiserver', 'Kubernetes objects and API records', () => {
  let api: ObjectApi

  beforeAll(async () => {
    api = await startObjectApi()
  })

  afterAll(() => api?.stop())

  test('an API server accepts exactly the objects whose records the API accepts', async () => {
    const seen = { accepted: 0, refused: 0 }
    const property = fc.asyncProperty(changes, async ({ kind, spec }) => {
      const desc = resources.get(kind.replace('Platform', ''))?.desc
      if (desc === undefined) throw new Error(`no record of ${kind}`)
      const { status, causes } = await api.send('POST', { path: `${pathOf(kind)}?dryRun=All`, body: objectOf(kind, 'an-object', { spec }) })
      const accepted = status === 201
      seen[accepted ? 'accepted' : 'refused']++
      expect({ accepted, causes }).toMatchObject({ accepted: isRecord(desc, jsonOf(desc, spec, 'an-object')) })
    })
    await fc.assert(property, { numRuns: campaignLength({ short: 300, full: 800 }) })
    expect(Math.min(seen.accepted, seen.refused)).toBeGreaterThan(campaignLength({ short: 30, full: 100 }))
  })
})
