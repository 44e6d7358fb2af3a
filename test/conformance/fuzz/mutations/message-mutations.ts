import type { DescField, DescMessage, JsonObject, JsonValue } from '@bufbuild/protobuf'
import { isJsonObject } from '../../../../src/transport/http/json-shape.ts'
import type { Corpus } from '../protocol.ts'
import { nastyText, nastyValue } from '../nasty.ts'
import type { Random } from '../random.ts'

/** The input of a mutation of a request. */
export interface MessageContext {
  readonly input: DescMessage
  readonly corpus: Corpus
  readonly random: Random
}

/** A change of a request before it is encoded, the same over both transports. */
export interface MessageMutation {
  readonly name: string
  /** Changes the request in place. */
  readonly apply: (request: JsonObject, context: MessageContext) => void
}

/** A position in a request: an object, a key in it, and the field of the schema. */
interface Place {
  readonly holder: JsonObject
  readonly key: string
  readonly field: DescField
}

/** Returns all positions of a request's type, set or unset, at any depth of set messages. */
function placesOf(holder: JsonObject, desc: DescMessage): Place[] {
  return desc.fields.flatMap((field): Place[] => {
    const place = { holder, key: field.jsonName, field }
    const value = holder[field.jsonName]
    const inner = field.message
    if (field.fieldKind !== 'message' || inner === undefined || inner.file.proto.package === 'google.protobuf') return [place]
    return isJsonObject(value) ? [place, ...placesOf(value, inner)] : [place]
  })
}

function isText({ field }: Place): boolean {
  return field.fieldKind === 'scalar' && field.scalar === 9
}

/** Returns a random position that `which` accepts. Set ones are twice as likely. */
function place(request: JsonObject, { input, random }: MessageContext, which: (place: Place) => boolean = () => true): Place | undefined {
  const places = placesOf(request, input).filter(which)
  const set = places.filter(({ holder, key }) => holder[key] !== undefined)
  return random.pickMaybe([...places, ...set, ...set])
}

function change(which: (place: Place) => boolean, value: (context: MessageContext, place: Place) => JsonValue): MessageMutation['apply'] {
  return (request, context) => {
    const chosen = place(request, context, which)
    if (chosen !== undefined) chosen.holder[chosen.key] = value(context, chosen)
  }
}

const anyPlace = (): boolean => true

function wrapped(value: JsonValue | undefined, { field }: Place): JsonValue {
  if (Array.isArray(value)) return value[0] ?? {}
  return field.fieldKind === 'list' ? 'no list' : [value ?? null]
}

/** The length of a long list in JSON, roughly: several times that of the largest request. A list of huge texts would have a gigabyte. */
const longestList = 4 * 1024 * 1024

/** Mutations that make a well-formed request wrong or unusual in one place. */
export const messageMutations: readonly MessageMutation[] = [
  { name: 'text', apply: change(isText, ({ random }) => nastyText(random)) },
  { name: 'value of another type', apply: change(anyPlace, ({ random }) => nastyValue(random)) },
  { name: 'list or not', apply: change(anyPlace, (_, at) => wrapped(at.holder[at.key], at)) },
  { name: 'uid of another record', apply: change(isText, ({ corpus, random }) => random.pickMaybe(corpus.uids) ?? '') },
  {
    name: 'uid changed in one place',
    apply: change(isText, ({ random }, { holder, key }) => {
      const text = String(holder[key] ?? '')
      const at = random.below(text.length + 1)
      return `${text.slice(0, at)}${random.pick(['', '/', '0', 'g', 'F', ':', '.', '%', ' ', '\0', 'é'])}${text.slice(at + 1)}`
    }),
  },
  {
    name: 'long list',
    apply: change(
      ({ field }) => field.fieldKind === 'list',
      ({ random }, { holder, key }) => {
        const value = holder[key]
        const [item = ''] = Array.isArray(value) ? value : []
        const length = Math.min(random.pick([2, 65, 257, 1001, 5000]), Math.ceil(longestList / JSON.stringify(item).length))
        return Array.from({ length }, () => structuredClone(item))
      },
    ),
  },
  {
    name: 'map with odd keys',
    apply: change(
      ({ field }) => field.fieldKind === 'map',
      ({ random }) => Object.fromEntries([...Array(1 + random.below(20))].map(() => [nastyText(random).slice(0, 2000), nastyValue(random)])),
    ),
  },
  {
    name: 'number at an edge',
    apply: change(
      ({ field }) => (field.fieldKind === 'scalar' && field.scalar !== 9) || field.fieldKind === 'enum',
      ({ random }) =>
        random.pick([0, -1, 1, 199, 200, 201, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), 2 ** 53, '9223372036854775807', '18446744073709551616', 0.1, '', true]),
    ),
  },
  {
    name: 'field left out',
    apply: (request, context) => {
      const chosen = place(request, context, ({ holder, key }) => holder[key] !== undefined)
      if (chosen !== undefined) Reflect.deleteProperty(chosen.holder, chosen.key)
    },
  },
  {
    name: 'part of another request',
    apply: (request, { corpus, random }) => {
      const other = random.pickMaybe(corpus.examples)?.request ?? {}
      for (const [key, value] of random.some(Object.entries(other), 2)) request[key] = structuredClone(value)
    },
  },
  {
    name: 'key that the schema does not have',
    apply: (request, context) => {
      const holders = placesOf(request, context.input).map(({ holder }) => holder)
      const holder = context.random.pickMaybe(holders) ?? request
      const key = context.random.pick(['unknown', 'toString', 'constructor', 'prototype', 'hasOwnProperty', 'a.b', '', '@type', 'x'.repeat(5000), '\ud800'])
      holder[key] = nastyValue(context.random)
    },
  },
  {
    name: 'page token, order, mask and size of lists',
    apply: (request, { random }) => {
      const odd: Readonly<Record<string, () => JsonValue>> = {
        pageToken: () => random.pick([random.bytes(80).toString('base64url'), 'x', '='.repeat(100), nastyText(random)]),
        orderBy: () => random.pick(['name,name', 'name desc desc', 'uid asc, uid desc', ',', '__proto__', ' name', nastyText(random)]),
        pageSize: () => random.pick([-1, 0, 201, 2 ** 31, 1.5, '10', null]),
        skip: () => random.pick([-1, 2 ** 31 - 1, '1', 1e9]),
        updateMask: () => random.pick(['*', '', ',', 'uid', 'a.b', 'name,name', '__proto__', 'x'.repeat(3000), nastyText(random)]),
        uidp: () => ({ [random.pick(['descendantsOf', 'childrenOf', 'ancestorsOf', 'inRoot'])]: nastyText(random) }),
        etag: () => nastyText(random),
      }
      for (const [key, value] of random.some(Object.entries(odd), 1 + random.below(3))) request[key] = value()
    },
  },
  { name: 'nothing', apply: (request) => void Object.keys(request).forEach((key) => Reflect.deleteProperty(request, key)) },
  { name: 'as it is', apply: () => undefined },
]
