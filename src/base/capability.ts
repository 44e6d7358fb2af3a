import { getOption } from '@bufbuild/protobuf'
import { capability as capabilityOption, CapabilitySchema } from '../gen/taproot/common/v2/capability_pb.ts'

/** A capability (permission) that the schema defines. */
export interface Capability {
  /** Dotted name, e.g. `groups.list`. */
  readonly name: string
  /** Name of the enum value, e.g. `CAP_IAM_GROUPS_LIST`. */
  readonly enumName: string
  /** Number of the enum value in the schema. */
  readonly number: number
  /** Index of the capability's bit in a CapabilitySet, below 192. */
  readonly bit: number
  /** True if a customer's role must not contain the capability. */
  readonly internal: boolean
  /** True for an addition of Taproot, which public clients of the API family do not know. */
  readonly own: boolean
}

/** Number of bits in a CapabilitySet. */
const capacity = 192

/** The bits of a CapabilitySet as six 32-bit words: bit i is in word i/32. Union and test take half the time of a typed array or a bigint. */
interface Words {
  readonly w0: number
  readonly w1: number
  readonly w2: number
  readonly w3: number
  readonly w4: number
  readonly w5: number
}

declare const setBrand: unique symbol

/** An immutable set of capabilities. Only this module creates sets. Compare them with `equals`, never with `===`. */
export type CapabilitySet = Words & { readonly [setBrand]: true }

/** Marks words as a CapabilitySet. The cast is safe because only this module creates words. */
function asSet(words: Words): CapabilitySet {
  return words as CapabilitySet
}

function readCapabilities(): readonly Capability[] {
  const table = CapabilitySchema.values
    .filter((value) => value.number !== 0)
    .map((value) => ({ ...getOption(value, capabilityOption), enumName: value.name, number: value.number }))
    .map(({ name, enumName, number, bit, internal, own }) => ({ name, enumName, number, bit, internal, own }))
    .sort((left, right) => left.number - right.number)
  for (const { name, enumName, bit } of table)
    if (name === '' || bit >= capacity) throw new Error(`schema: ${enumName} needs a name and a bit below ${capacity}`)
  if (new Set(table.map(({ bit }) => bit)).size !== table.length) throw new Error('schema: two capabilities have the same bit')
  return table
}

/** All capabilities, in the order of their numbers. */
export const capabilities: readonly Capability[] = readCapabilities()

const byName: ReadonlyMap<string, Capability> = new Map(capabilities.flatMap((entry) => [[entry.name, entry] as const, [entry.enumName, entry] as const]))
const byNumber: ReadonlyMap<number, Capability> = new Map(capabilities.map((entry) => [entry.number, entry]))

/** Returns the capability of a dotted name or enum name, or undefined. */
export function capabilityByName(name: string): Capability | undefined {
  return byName.get(name)
}

/** Returns the capability of an enum number; undefined if it is unknown, retired or 0. */
export function capabilityByEnumNumber(number: number): Capability | undefined {
  return byNumber.get(number)
}

function setOfBits(bits: Iterable<number>): CapabilitySet {
  const words = new Int32Array(capacity / 32)
  for (const bit of bits) words[bit >> 5] = (words[bit >> 5] ?? 0) | (1 << (bit & 31))
  const [w0 = 0, w1 = 0, w2 = 0, w3 = 0, w4 = 0, w5 = 0] = words
  return asSet({ w0, w1, w2, w3, w4, w5 })
}

function hasBit(set: CapabilitySet, bit: number): boolean {
  const mask = 1 << (bit & 31)
  switch (bit >> 5) {
    case 0:
      return (set.w0 & mask) !== 0
    case 1:
      return (set.w1 & mask) !== 0
    case 2:
      return (set.w2 & mask) !== 0
    case 3:
      return (set.w3 & mask) !== 0
    case 4:
      return (set.w4 & mask) !== 0
    default:
      return (set.w5 & mask) !== 0
  }
}

/** The set without any capability. */
export const emptySet: CapabilitySet = setOfBits([])

/** All capabilities except internal ones, as held by an owner or operator. */
export const allCapabilities: CapabilitySet = setOfBits(capabilities.filter(({ internal }) => !internal).map(({ bit }) => bit))

const sharedCapabilities: CapabilitySet = setOfBits(capabilities.filter(({ own }) => !own).map(({ bit }) => bit))

/** Returns the members that public clients of the API family know: all but the additions of Taproot. */
export function withoutOwn(set: CapabilitySet): CapabilitySet {
  return intersect(set, sharedCapabilities)
}

/**
 * Returns the set of these dotted or enum names. Throws RangeError for an unknown name: ignoring it in a list of required capabilities would weaken the
 * requirement.
 */
export function setOf(names: Iterable<string>): CapabilitySet {
  return setOfBits(
    Array.from(names, (name) => {
      const entry = byName.get(name)
      if (entry === undefined) throw new RangeError(`unknown capability ${name}`)
      return entry.bit
    }),
  )
}

/** Returns the set of these enum numbers. Unknown and retired numbers are ignored, so they grant nothing (docs/spec/iam.md#capabilities). */
export function fromEnumNumbers(numbers: Iterable<number>): CapabilitySet {
  return setOfBits(Array.from(numbers, (number) => byNumber.get(number)).flatMap((entry) => (entry === undefined ? [] : [entry.bit])))
}

/** True if `set` contains the capability of this dotted or enum name; false for an unknown name. */
export function has(set: CapabilitySet, name: string): boolean {
  const entry = byName.get(name)
  return entry !== undefined && hasBit(set, entry.bit)
}

/** True if `set` contains all of `wanted`. */
export function containsAll(set: CapabilitySet, wanted: CapabilitySet): boolean {
  const absent = (wanted.w0 & ~set.w0) | (wanted.w1 & ~set.w1) | (wanted.w2 & ~set.w2) | (wanted.w3 & ~set.w3) | (wanted.w4 & ~set.w4) | (wanted.w5 & ~set.w5)
  return absent === 0
}

/** True if both sets contain the same capabilities. */
export function equals(left: CapabilitySet, right: CapabilitySet): boolean {
  return containsAll(left, right) && containsAll(right, left)
}

/** Returns the capabilities that are in `left`, in `right`, or in both. */
export function union(left: CapabilitySet, right: CapabilitySet): CapabilitySet {
  return asSet({
    w0: left.w0 | right.w0,
    w1: left.w1 | right.w1,
    w2: left.w2 | right.w2,
    w3: left.w3 | right.w3,
    w4: left.w4 | right.w4,
    w5: left.w5 | right.w5,
  })
}

/** Returns the capabilities that are in both sets. */
export function intersect(left: CapabilitySet, right: CapabilitySet): CapabilitySet {
  return asSet({
    w0: left.w0 & right.w0,
    w1: left.w1 & right.w1,
    w2: left.w2 & right.w2,
    w3: left.w3 & right.w3,
    w4: left.w4 & right.w4,
    w5: left.w5 & right.w5,
  })
}

/** True if `set` contains no capability. */
export function isEmpty(set: CapabilitySet): boolean {
  return (set.w0 | set.w1 | set.w2 | set.w3 | set.w4 | set.w5) === 0
}

/** Returns the capabilities in `set`, in the order of their numbers. */
export function membersOf(set: CapabilitySet): readonly Capability[] {
  return capabilities.filter(({ bit }) => hasBit(set, bit))
}

/** Returns the dotted names of the capabilities in `set`, in the order of their numbers. */
export function namesOf(set: CapabilitySet): readonly string[] {
  return membersOf(set).map(({ name }) => name)
}

/** Returns the dotted names of `wanted` that `set` lacks, in the order of their numbers. */
export function missing(set: CapabilitySet, wanted: CapabilitySet): readonly string[] {
  return capabilities.filter(({ bit }) => hasBit(wanted, bit) && !hasBit(set, bit)).map(({ name }) => name)
}

/** Minimum length of a `cap` claim, in bits (docs/spec/tokens.md#capability-claim). */
const minClaimBits = 50

/** Maximum accepted length of a `cap` claim, in bits. It leaves room for capabilities of later versions, which grant nothing in this version. */
const maxClaimBits = 1024

/**
 * Encodes a set for an access token's `cap` claim: URL-safe base64 with padding. It starts with the length in bits (8 bytes, big-endian). Then follow as many
 * 64-bit big-endian words as needed; bit i is bit i%64 of word i/64 (docs/spec/tokens.md#capability-claim).
 */
export function encodeCapabilities(set: CapabilitySet): string {
  const bits = membersOf(set).map(({ bit }) => bit)
  const length = Math.max(minClaimBits, ...bits.map((bit) => bit + 1))
  const bytes = Buffer.alloc(8 + 8 * Math.ceil(length / 64))
  bytes.writeBigUInt64BE(BigInt(length))
  for (const bit of bits) {
    const at = 8 + 8 * (bit >> 6) + 7 - ((bit & 63) >> 3)
    bytes[at] = (bytes[at] ?? 0) | (1 << (bit & 7))
  }
  return bytes.toString('base64').replaceAll('+', '-').replaceAll('/', '_')
}

/**
 * Decodes a `cap` claim: the form of `encodeCapabilities`, with or without padding, or the older array of enum numbers. Ignores unknown bits and numbers.
 * Returns undefined for any other form.
 */
export function decodeCapabilities(claim: unknown): CapabilitySet | undefined {
  if (Array.isArray(claim)) return claim.every((item) => typeof item === 'number') ? fromEnumNumbers(claim) : undefined
  if (typeof claim !== 'string' || !/^[A-Za-z0-9_-]+={0,2}$/.test(claim)) return undefined
  const bytes = Buffer.from(claim, 'base64url')
  if (bytes.length < 8) return undefined
  const length = bytes.readBigUInt64BE()
  if (length > maxClaimBits || bytes.length !== 8 + 8 * Math.ceil(Number(length) / 64)) return undefined
  const isSet = (bit: number): boolean => bit < length && ((bytes[8 + 8 * (bit >> 6) + 7 - ((bit & 63) >> 3)] ?? 0) & (1 << (bit & 7))) !== 0
  return setOfBits(capabilities.map(({ bit }) => bit).filter(isSet))
}
