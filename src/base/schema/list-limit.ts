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

/** Returns the violation of a list or map with more items than the schema allows; undefined if the length is allowed. */
export function lengthViolation(field: DescField, length: number, path: string): FieldViolation | undefined {
  const limit = maxItemsOf(field)
  return length <= limit ? undefined : { field: path, description: `must have at most ${limit} ${field.fieldKind === 'map' ? 'entries' : 'items'}` }
}
