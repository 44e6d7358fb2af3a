import { methods, resources } from '../../base/schema/schema.ts'
import type { HttpBinding, MethodVerb } from '../../base/schema/method.ts'
import { clientKinds, type ClientKind } from '../client/kinds.ts'
import { fieldFlags, type FieldFlag } from './field-flags.ts'

/** A change of a record that the API offers: its REST route, and the options for its fields. */
export interface OfferedChange {
  readonly route: HttpBinding
  readonly flags: readonly FieldFlag[]
}

/** A kind of record with the changes that the API offers. */
export interface WritableKind {
  readonly kind: ClientKind
  /** True if a record is named by the last part of its path; false if the path is that of its parent. */
  readonly isNamedByPath: boolean
  readonly create: OfferedChange | undefined
  readonly update: OfferedChange | undefined
  readonly delete: OfferedChange | undefined
}

/** All kinds whose records a caller may change, in the order of `clientKinds`. */
export function writableKinds(): readonly WritableKind[] {
  return clientKinds
    .map((kind): WritableKind => ({ kind, isNamedByPath: isNamedByPath(kind), ...changesOf(kind) }))
    .filter((one) => one.create !== undefined || one.update !== undefined || one.delete !== undefined)
}

function isNamedByPath({ kind, nameFilter }: ClientKind): boolean {
  const row = resources.get(kind)
  return nameFilter === 'name' && row?.singleton !== true && row?.desc.field['name'] !== undefined
}

function changesOf(kind: ClientKind): Pick<WritableKind, 'create' | 'update' | 'delete'> {
  const change = (verb: MethodVerb): OfferedChange | undefined => {
    const route = methods.find((method) => method.verb === verb && method.kind === kind.kind)?.http[0]
    const desc = resources.get(kind.kind)?.desc
    if (route === undefined || desc === undefined) return undefined
    if (verb === 'delete') return { route, flags: [] }
    const flags = fieldFlags(desc, verb === 'create' ? 'create' : 'update')
    return { route, flags: verb === 'create' && isNamedByPath(kind) ? flags.filter(({ name }) => name !== 'name') : flags }
  }
  return { create: change('create'), update: change('update'), delete: change('delete') }
}
