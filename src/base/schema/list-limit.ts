import { getOption, type DescField } from '@bufbuild/protobuf'
import { field as fieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import type { FieldViolation } from '../errors.ts'

const limits = new WeakMap<DescField, number>()

/** Returns the maximum number of items of a list, or of pairs of a map, in the schema; Infinity if the schema has no limit. */
export function maxItemsOf(field: DescField): number {
  let limit = limits.get(field)
  if (limit === undefined) {
    const { type } = getOption(field, fieldRules)
    const stated = type.case === 'repeated' ? type.value.maxItems : type.case === 'map' ? type.value.maxPairs : 0n
    limit = stated === 0n ? Infinity : Number(stated)
    limits.set(field, limit)
  }
  return limit
}

/** Texts up to this length, in UTF-16 code units, are checked by all their rules. */
const shortText = 16_384
/** The most UTF-16 code units of a character. */
const unitsPerCharacter = 2

/**
 * Returns the violation of a long text that has more characters than the schema allows; undefined if it is short, or may be allowed. Patterns take a
 * tenth of a second for a megabyte: such a text is refused before.
 */
export function longTextViolation(field: DescField, text: string, path: string): FieldViolation | undefined {
  if (text.length <= shortText) return undefined
  const { type } = getOption(field, fieldRules)
  const limit = type.case === 'string' ? Number(type.value.maxLen) : 0
  if (limit === 0 || text.length <= limit * unitsPerCharacter) return undefined
  return { field: path, description: `must be at most ${limit} characters` }
}

/** Returns the violation of a list or map with more items than the schema allows; undefined if the length is allowed. */
export function lengthViolation(field: DescField, length: number, path: string): FieldViolation | undefined {
  const limit = maxItemsOf(field)
  return length <= limit ? undefined : { field: path, description: `must have at most ${limit} ${field.fieldKind === 'map' ? 'entries' : 'items'}` }
}
