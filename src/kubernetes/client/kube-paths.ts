import type { ObjectRef, ObjectType } from '../kube-api.ts'

/** What a request says beside its path; undefined ones are left out. */
export type Query = Readonly<Record<string, string | undefined>>

/** The path of a type's objects: all, those of one namespace, or one. */
export function pathOf(type: ObjectType, ref: Partial<ObjectRef>, subresource?: string): string {
  const { namespace, name } = ref
  const parts = [
    type.group === '' ? 'api' : `apis/${type.group}`,
    type.version,
    ...(type.namespaced && namespace !== undefined ? ['namespaces', encodeURIComponent(namespace)] : []),
    type.plural,
    ...(name === undefined ? [] : [encodeURIComponent(name)]),
    ...(subresource === undefined ? [] : [subresource]),
  ]
  return `/${parts.join('/')}`
}

/** As in the `apiVersion` of an object. */
export function apiVersionOf({ group, version }: ObjectType): string {
  return group === '' ? version : `${group}/${version}`
}

/** The query with its question mark, or nothing. */
export function queryOf(query: Query): string {
  const entries = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return entries.length === 0 ? '' : `?${new URLSearchParams(entries).toString()}`
}
