import { readFile } from 'node:fs/promises'
import type { DescField, DescMessage } from '@bufbuild/protobuf'
import { ScalarType } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { methodName, type MethodRow } from '../../../../src/base/schema/method.ts'
import { methods } from '../../../../src/base/schema/schema.ts'
import { unservedMethods } from '../../../../src/v1/index.ts'
import { TermsNotAcceptedDetailSchema } from '../../../../src/gen/taproot/iam/v1/terms_pb.ts'
import { caseName } from '../cases/method-case.ts'
import { camel } from './descriptors.ts'
import type { WireMethod } from './wire-advisories.ts'
import { wireMessages, wireMethods } from './wire-v1.ts'

const scalars: Readonly<Partial<Record<ScalarType, string>>> = {
  [ScalarType.STRING]: 's',
  [ScalarType.BOOL]: 'b',
  [ScalarType.INT32]: 'i',
  [ScalarType.INT64]: 'l',
  [ScalarType.BYTES]: 'bytes',
}

const wellKnown: Readonly<Record<string, string>> = { 'google.protobuf.Timestamp': 'ts', 'google.protobuf.Duration': 'dur' }

/** Returns the type of one value of a field. For another message it is `message`. */
function typeOf({ enum: desc, message, scalar }: Pick<DescField, 'enum' | 'message' | 'scalar'>): string {
  if (desc !== undefined) return 'e'
  if (message !== undefined) return wellKnown[message.typeName] ?? 'message'
  return scalars[scalar ?? ScalarType.STRING] ?? 'unknown'
}

/** A field in the form of the table. The types of other messages are compared on their own. */
interface WireField {
  readonly text: string
  readonly name: string
  /** The message of the field, if it has one: its descriptor, or its name in the table. */
  readonly inner: DescMessage | string | undefined
}

function fieldOf(field: DescField): WireField {
  const { number, name, jsonName, oneof } = field
  const base = typeOf(field)
  const type = field.fieldKind === 'list' ? `[]${base}` : field.fieldKind === 'map' ? `{${scalars[field.mapKey] ?? ''}:${base}}` : base
  return { text: `${number} ${jsonName} ${type}${oneof === undefined ? '' : `|${oneof.name}`}`, name, inner: base === 'message' ? field.message : undefined }
}

function wireFieldsOf(name: string): WireField[] {
  const fields = wireMessages[name] ?? ''
  return (fields === '' ? [] : fields.split(', ')).map((field) => {
    const [number = '', names = '', type = ''] = field.split(' ')
    const [own = '', jsonName = camel(own)] = names.split('=')
    const [whole = ''] = type.split('|')
    const base = whole.replace('[]', '').replace(/^\{\w+:(.*)\}$/, '$1')
    const inner = base in wireMessages ? base : undefined
    return { text: `${number} ${jsonName} ${inner === undefined ? type : type.replace(base, 'message')}`, name: own, inner }
  })
}

/** Compares a message of the schema with one of the table, and the messages in it. Yields each difference. */
function* differences(desc: DescMessage, wire: string, compared: Set<string>): Generator<string> {
  if (compared.has(`${desc.typeName} ${wire}`)) return
  compared.add(`${desc.typeName} ${wire}`)
  const [ours, theirs] = [desc.fields.map(fieldOf), wireFieldsOf(wire)]
  for (const { text } of ours) if (theirs.every((field) => field.text !== text)) yield `${wire}: not in the contract: ${text}`
  for (const { text } of theirs) if (ours.every((field) => field.text !== text)) yield `${wire}: missing: ${text}`
  for (const { name, inner } of theirs) {
    const found = desc.fields.find((field) => field.name === name)?.message
    if (typeof inner === 'string' && found !== undefined && wellKnown[found.typeName] === undefined) yield* differences(found, inner, compared)
  }
}

function* methodDifferences(method: MethodRow, wire: WireMethod, compared: Set<string>): Generator<string> {
  const routes = method.http.map(({ verb, template }) => `${verb} ${template}`)
  if (wire.http !== undefined && !routes.includes(wire.http)) yield `${caseName(method)}: route ${routes.join(' ; ')}`
  if (method.http[0]?.body !== (wire.body ?? '')) yield `${caseName(method)}: body ${method.http[0]?.body ?? ''}`
  yield* differences(method.input, wire.input, compared)
  yield* differences(method.output, wire.output, compared)
}

/** The differences from the public clients, and their reasons. */
const known: readonly { readonly difference: RegExp; readonly because: string }[] = [
  { difference: /: not in the contract: 1\d{3} \w+ \w+$/, because: 'numbers from 1000 are those of Taproot, which other clients skip' },
  { difference: /^CustomOverlay: not in the contract: /, because: 'the documents of the wire contract do not describe these messages' },
  { difference: /^AdvisoryEvent: missing: 16 /, because: 'the documents of the wire contract do not describe this event' },
]

describe('the schema of version 1', () => {
  const served = new Map(methods.filter(({ service }) => service.includes('.v1.')).map((method) => [caseName(method), method]))

  test('it has the numbers, names and types of the public clients, except for what is listed', () => {
    const compared = new Set<string>()
    // No method names the detail of an error.
    const detail = [...differences(TermsNotAcceptedDetailSchema, 'TermsNotAcceptedDetail', compared)]
    expect(detail).toEqual([])
    const found = [...served].flatMap(([name, method]) => [...methodDifferences(method, wireMethods[name] ?? { input: '', output: '' }, compared)])
    expect(found.filter((one) => !known.some(({ difference }) => difference.test(one)))).toEqual([])
    expect(known.filter(({ difference }) => !found.some((one) => difference.test(one)))).toEqual([])
  })

  test('each method of the public clients is served, or is listed', async () => {
    const unserved = unservedMethods.map((name) => name.replace(/^\w+\.v1\./, ''))
    expect(Object.keys(wireMethods).filter((name) => !served.has(name) && !unserved.includes(name))).toEqual([])
    const names = new Set(methods.map(methodName))
    expect(unservedMethods.filter((name) => names.has(`taproot.${name}`))).toEqual([])
    const rows = (await readFile('docs/api.md', 'utf8')).split('\n')
    const isListed = (name: string): boolean => {
      const [service = '', rpc = ''] = name.split('/')
      return rows.some((row) => row.startsWith(`| \`${service}\``) && row.includes(`\`${rpc}\``))
    }
    expect(unservedMethods.filter((name) => !isListed(name))).toEqual([])
    expect([...served.keys()].filter((name) => wireMethods[name] === undefined)).toEqual([])
  })
})
