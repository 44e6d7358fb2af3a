import { ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt'
import { WireError, WireReader, wireType } from './wire-reader.ts'

/**
 * A value to read from an encoded record. It is the text of a text, enum, bool or 32-bit number field, given by its path of proto names
 * (`claim_match.issuer`). Or it is the member of a oneof that is set: `values` maps the proto names of members to texts.
 */
export type ScanTarget = { readonly field: string } | { readonly oneof: string; readonly values: Readonly<Record<string, string>> }

/**
 * Reads the values of the targets, in their order, from the encoded record in `buffer` from `start` to `end`. An unset field yields the text of its zero
 * value; undefined if it has presence or is in a nested message. Throws WireError if a full decode would fail, or if a known field has another wire type.
 */
export type Scan = (buffer: Buffer, start: number, end: number) => (string | undefined)[]

type ScanLeaf = 'string' | 'enum' | 'bool' | 'int'

/** What a scan does with one field of a message. */
interface FieldPlan {
  readonly type: number
  /** True for a repeated number field, whose values may be packed. */
  readonly packable: boolean
  readonly isText: boolean
  readonly message: MessagePlan | undefined
  /** The index of the target that gets the field's value, and how to read it. */
  slot: number
  leaf: ScanLeaf | undefined
  /** The index of the target that gets the name of this oneof member. */
  memberSlot: number
  memberText: string | undefined
  /** The indexes of targets for other members of the same oneof, which this field replaces. */
  clears: number[]
}

type MessagePlan = Map<number, FieldPlan>

/** Maximum nesting depth of messages. A full decode refuses deeper messages too. */
const maxDepth = 100

const typesOfScalars: Readonly<Partial<Record<ScalarType, number>>> = {
  [ScalarType.STRING]: wireType.delimited,
  [ScalarType.BYTES]: wireType.delimited,
  [ScalarType.DOUBLE]: wireType.fixed64,
  [ScalarType.FIXED64]: wireType.fixed64,
  [ScalarType.SFIXED64]: wireType.fixed64,
  [ScalarType.FLOAT]: wireType.fixed32,
  [ScalarType.FIXED32]: wireType.fixed32,
  [ScalarType.SFIXED32]: wireType.fixed32,
}

function scalarPlan(scalar: ScalarType | undefined, packable: boolean): FieldPlan {
  const type = scalar === undefined ? wireType.varint : (typesOfScalars[scalar] ?? wireType.varint)
  return fieldPlan({ type, packable: packable && type !== wireType.delimited, isText: scalar === ScalarType.STRING, message: undefined })
}

function fieldPlan(base: Pick<FieldPlan, 'type' | 'packable' | 'isText' | 'message'>): FieldPlan {
  return { ...base, slot: -1, leaf: undefined, memberSlot: -1, memberText: undefined, clears: [] }
}

function messageFieldPlan(message: MessagePlan): FieldPlan {
  return fieldPlan({ type: wireType.delimited, packable: false, isText: false, message })
}

function planOf(field: DescField, planned: Map<DescMessage, MessagePlan>): FieldPlan {
  if (field.fieldKind === 'map') {
    const value = field.message === undefined ? scalarPlan(field.scalar, false) : messageFieldPlan(sharedPlan(field.message, planned))
    return messageFieldPlan(
      new Map([
        [1, scalarPlan(field.mapKey, false)],
        [2, value],
      ]),
    )
  }
  if (field.message !== undefined) return messageFieldPlan(sharedPlan(field.message, planned))
  return scalarPlan(field.scalar, field.fieldKind === 'list')
}

/** Returns the plan for a message that contains no target. There is one such plan per type, so a type may contain itself. */
function sharedPlan(desc: DescMessage, planned: Map<DescMessage, MessagePlan>): MessagePlan {
  const known = planned.get(desc)
  if (known !== undefined) return known
  const plan: MessagePlan = new Map()
  planned.set(desc, plan)
  for (const field of desc.fields) plan.set(field.number, planOf(field, planned))
  return plan
}

function zeroOf(scalar: ScalarType | undefined, values: DescEnum | undefined): { leaf: ScanLeaf; zero: string } {
  if (values !== undefined) return { leaf: 'enum', zero: '0' }
  switch (scalar) {
    case ScalarType.STRING:
      return { leaf: 'string', zero: '' }
    case ScalarType.BOOL:
      return { leaf: 'bool', zero: 'false' }
    case ScalarType.INT32:
      return { leaf: 'int', zero: '0' }
    default:
      throw new TypeError('only texts, enums, booleans and int32 fields can be read')
  }
}

class Compiler {
  readonly root: MessagePlan
  readonly zeros: (string | undefined)[] = []
  readonly #planned = new Map<DescMessage, MessagePlan>()
  /** Separate plans for messages that contain a target field. All other messages share one plan per type. */
  readonly #own = new Map<string, MessagePlan>()
  readonly #desc: DescMessage

  constructor(desc: DescMessage) {
    this.#desc = desc
    this.root = this.#ownPlan(desc, '')
  }

  add(target: ScanTarget, slot: number): void {
    if ('oneof' in target) this.#addOneof(target, slot)
    else this.#addField(target.field, slot)
  }

  #ownPlan(desc: DescMessage, path: string): MessagePlan {
    const known = this.#own.get(path)
    if (known !== undefined) return known
    const plan: MessagePlan = new Map(desc.fields.map((field) => [field.number, planOf(field, this.#planned)]))
    this.#own.set(path, plan)
    return plan
  }

  #addOneof({ oneof: name, values }: { readonly oneof: string; readonly values: Readonly<Record<string, string>> }, slot: number): void {
    const oneof = this.#desc.oneofs.find((candidate) => candidate.name === name)
    if (oneof === undefined) throw new TypeError(`${this.#desc.typeName} has no oneof ${name}`)
    for (const field of oneof.fields) {
      const plan = this.root.get(field.number)
      if (plan === undefined || values[field.name] === undefined) throw new TypeError(`the oneof ${name} has no text for its member ${field.name}`)
      plan.memberSlot = slot
      plan.memberText = values[field.name]
    }
    this.zeros[slot] = undefined
  }

  #addField(path: string, slot: number): void {
    let desc = this.#desc
    let plan = this.root
    const names = path.split('.')
    for (const [at, name] of names.entries()) {
      const field = desc.fields.find((candidate) => candidate.name === name)
      const entry = field === undefined ? undefined : plan.get(field.number)
      if (field === undefined || entry === undefined) throw new TypeError(`${this.#desc.typeName} has no field ${path}`)
      this.#clearedByOthers(plan, field, slot)
      if (at < names.length - 1) {
        if (field.fieldKind !== 'message') throw new TypeError(`${field.name} in ${path} is not a message`)
        const inner = this.#ownPlan(field.message, names.slice(0, at + 1).join('.'))
        plan.set(field.number, { ...entry, message: inner })
        ;[desc, plan] = [field.message, inner]
        continue
      }
      if (field.fieldKind !== 'scalar' && field.fieldKind !== 'enum') throw new TypeError(`${path} is not a single value`)
      const { leaf, zero } = zeroOf(field.scalar, field.enum)
      entry.slot = slot
      entry.leaf = leaf
      this.zeros[slot] = names.length === 1 && field.presence === FeatureSet_FieldPresence.IMPLICIT ? zero : undefined
    }
  }

  /** Adds the targets of a oneof's other members to `clears`: the member that comes last in the bytes replaces the others. */
  #clearedByOthers(plan: MessagePlan, field: DescField, slot: number): void {
    for (const other of field.oneof?.fields ?? []) if (other !== field) plan.get(other.number)?.clears.push(slot)
  }
}

function readLeaf(reader: WireReader, leaf: ScanLeaf): string {
  if (leaf === 'string') return reader.text()
  return leaf === 'bool' ? String(reader.int64() !== 0) : String(reader.int32())
}

/** Scans one encoded record. */
class Scanner {
  readonly #reader = new WireReader()
  #values: (string | undefined)[] = []
  #depth = 0

  scan(plan: MessagePlan, values: (string | undefined)[], place: { buffer: Buffer; start: number; end: number }): void {
    this.#values = values
    this.#depth = 0
    this.#reader.open(place.buffer, place.start, place.end)
    this.#message(plan)
  }

  /** Scans one message, up to the end set in the reader. */
  #message(plan: MessagePlan): void {
    const reader = this.#reader
    if (++this.#depth > maxDepth) throw new WireError('the message is nested too deeply')
    while (reader.tag()) {
      const field = plan.get(reader.field)
      if (field === undefined) reader.skip(reader.type)
      else this.#field(field)
    }
    this.#depth -= 1
  }

  #field(field: FieldPlan): void {
    const reader = this.#reader
    for (const cleared of field.clears) this.#values[cleared] = undefined
    if (field.memberSlot >= 0) this.#values[field.memberSlot] = field.memberText
    if (reader.type !== field.type) this.#packed(field)
    else if (field.leaf !== undefined) this.#values[field.slot] = readLeaf(reader, field.leaf)
    else if (field.message !== undefined) {
      const { end } = reader
      reader.end = reader.delimitedEnd()
      this.#message(field.message)
      reader.end = end
    } else if (field.isText) reader.skipText()
    else reader.skip(reader.type)
  }

  #packed(field: FieldPlan): void {
    const reader = this.#reader
    if (!field.packable || reader.type !== wireType.delimited) throw new WireError(`wire type ${reader.type} in place of ${field.type}`)
    const { end } = reader
    reader.end = reader.delimitedEnd()
    while (reader.position < reader.end) reader.skip(field.type)
    reader.end = end
  }
}

/** Returns a function that scans records of type `desc`. Throws TypeError for targets that the type does not have. */
export function compileScan(desc: DescMessage, targets: readonly ScanTarget[]): Scan {
  const compiler = new Compiler(desc)
  targets.forEach((target, slot) => compiler.add(target, slot))
  const { root, zeros } = compiler
  const scanner = new Scanner()
  return (buffer, start, end) => {
    const values = zeros.slice()
    scanner.scan(root, values, { buffer, start, end })
    return values
  }
}
