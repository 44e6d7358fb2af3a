import { nastyText, nastyValue } from '../nasty.ts'
import type { OtherParts } from '../requests/other-request.ts'
import type { Field } from '../protocol.ts'
import type { Random } from '../random.ts'

/** A change of a request outside the API methods, before it is encoded. */
interface PartMutation {
  readonly name: string
  /** Returns false if the request has nothing to change. */
  readonly apply: (parts: OtherParts, random: Random) => boolean
}

const names = ['__proto__', 'constructor', 'redirect', 'client_id', 'scope', 'idp_id', 'user_code', 'filter', 'grant_type', 'state', 'x', ''] as const

/** Changes one field of the query or form in place. `change` gets the list and the index of the field. */
function field(name: string, change: (fields: Field[], at: number, random: Random) => void): PartMutation {
  return {
    name: `field: ${name}`,
    apply: ({ query = [], form = [] }, random) => {
      const fields = random.pick([query, form].filter(({ length }) => length > 0).concat(query.length + form.length === 0 ? [[]] : []))
      if (fields.length === 0) return false
      change(fields, random.below(fields.length), random)
      return true
    },
  }
}

function value(name: string, change: (value: string, random: Random, fields: readonly Field[]) => string): PartMutation {
  return field(name, (fields, at, random) => {
    const [key, before] = fields[at] ?? ['', '']
    fields[at] = [key, change(before, random, fields)]
  })
}

type Holder = Record<string, unknown> | unknown[]

function holdersIn(value: unknown): Holder[] {
  if (value === null || typeof value !== 'object') return []
  return [value as Holder, ...Object.values(value).flatMap(holdersIn)]
}

/** Changes one member of the JSON in place, at any depth. */
function member(name: string, change: (holder: Holder, key: string, random: Random) => void): PartMutation {
  return {
    name: `member: ${name}`,
    apply: ({ json }, random) => {
      const holder = random.pickMaybe(holdersIn(json).filter((each) => Object.keys(each).length > 0))
      if (holder === undefined) return false
      change(holder, random.pick(Object.keys(holder)), random)
      return true
    },
  }
}

/** Sets a member of an object or list, even one named `__proto__`. */
function put(holder: Holder, key: string, to: unknown): void {
  Object.defineProperty(holder, key, { value: to, enumerable: true, configurable: true, writable: true })
}

/** Mutations of queries, forms and JSON that do not follow the schema. */
export const partMutations: readonly PartMutation[] = [
  field('left out', (fields, at) => void fields.splice(at, 1)),
  field('twice', (fields, at) => void fields.push(...fields.slice(at, at + 1))),
  field('twice, otherwise', (fields, at, random) => void fields.push([fields[at]?.[0] ?? '', nastyText(random)])),
  field('unknown', (fields, _, random) => void fields.push([random.pick(names), nastyText(random)])),
  field('renamed', (fields, at, random) => void (fields[at] = [random.pick(names), fields[at]?.[1] ?? ''])),
  value('empty', () => ''),
  value('other text', (_, random) => nastyText(random)),
  value('value of another', (_, random, fields) => random.pick(fields)[1]),
  value('changed in one place', (text, random) => {
    const at = random.below(text.length + 1)
    return `${text.slice(0, at)}${random.pick(['', 'A', '0', ' ', '/', '"', ')', '\0', 'é'])}${text.slice(at + 1)}`
  }),
  value('repeated in itself', (text, random) => text.repeat(random.pick([2, 20, 200])).slice(0, 8000)),
  member('left out', (holder, key) => void Reflect.deleteProperty(holder, key)),
  member('other value', (holder, key, random) => put(holder, key, nastyValue(random))),
  member('other text', (holder, key, random) => put(holder, key, nastyText(random))),
  member('unknown', (holder, _, random) =>
    put(
      holder,
      Array.isArray(holder) ? String(holder.length) : random.pick(['__proto__', 'constructor', 'x', 'id', 'meta', 'schemas', '']),
      nastyValue(random),
    ),
  ),
  member('in another case', (holder, key) => {
    const before = Reflect.get(holder, key) as unknown
    Reflect.deleteProperty(holder, key)
    put(holder, Array.isArray(holder) ? key : key.toUpperCase(), before)
  }),
  member('many times', (holder, key, random) =>
    put(
      holder,
      key,
      Array.from({ length: random.pick([2, 30]) }, () => Reflect.get(holder, key) as unknown),
    ),
  ),
]
