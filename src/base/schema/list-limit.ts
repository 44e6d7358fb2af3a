import { getOption, type DescField } from '@bufbuild/protobuf'
import { field as fieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import type { FieldViolation } from '../errors.ts'

const limits = new WeakMap<DescField, number>()

/** How many items a list, or pairs a map, may have by the schema; Infinity where it says nothing. */
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

/** What is wrong with a list or map of so many items, or undefined. */
export function lengthViolation(field: DescField, length: number, path: string): FieldViolation | undefined {
  const limit = maxItemsOf(field)
  return length <= limit ? undefined : { field: path, description: `must have at most ${limit} ${field.fieldKind === 'map' ? 'entries' : 'items'}` }
}
