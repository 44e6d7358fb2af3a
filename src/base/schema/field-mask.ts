import { clone, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { DomainError } from '../errors.ts'
import { fieldAccess } from './field-behavior.ts'

/** Resource fields that a field mask cannot change: the path of the request holds the uid, and the etag is a precondition. */
const unmaskable: ReadonlySet<string> = new Set(['uid', 'etag'])

/** Converts a field name to the schema's spelling: `fooBar` or `foo_bar` -> `foo_bar`. */
function snake(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

/** Returns the field of a message that a mask segment names, in snake or camel case. */
function fieldNamed(desc: DescMessage, segment: string): DescField | undefined {
  return desc.fields.find((field) => field.name === segment || field.jsonName === segment || field.name === snake(segment))
}

/**
 * Resolves the mask's paths to lists of fields. A path may be in snake or camel case. A wildcard must stand alone. Throws code 3 on `updateMask` for an invalid
 * path (docs/spec/conventions.md#update-masks).
 */
function resolvePaths(desc: DescMessage, paths: readonly string[]): DescField[][] {
  return paths.map((path) => {
    const fields: DescField[] = []
    let at: DescMessage | undefined = desc
    for (const segment of path.split('.')) {
      const field: DescField | undefined = at === undefined ? undefined : fieldNamed(at, segment)
      if (field === undefined) throw DomainError.invalid('update_mask', `unknown path "${path.slice(0, 120)}"`)
      fields.push(field)
      at = field.fieldKind === 'message' ? field.message : undefined
    }
    return fields
  })
}

function isWritable(field: DescField): boolean {
  return !fieldAccess(field).outputOnly && !unmaskable.has(field.name)
}

/** True for an empty text in a oneof. It counts as not set, as in all other places. */
function isEmptyMember(source: ReflectMessage, field: DescField): boolean {
  return field.oneof !== undefined && field.fieldKind === 'scalar' && source.get(field) === ''
}

/** Copies `field` from `source` to `target`, or clears it. */
function copyField(target: ReflectMessage, source: ReflectMessage, field: DescField): void {
  if (source.isSet(field) && !isEmptyMember(source, field)) target.set(field, source.get(field))
  else target.clear(field)
}

/** Copies the last field of `path`. A missing nested message counts as empty. */
function copyPath(target: ReflectMessage, source: ReflectMessage, path: readonly DescField[]): void {
  const [field, ...rest] = path
  if (field === undefined || !isWritable(field)) return
  if (rest.length === 0 || field.fieldKind !== 'message') {
    copyField(target, source, field)
    return
  }
  if (!target.isSet(field)) {
    if (!source.isSet(field)) return
    target.set(field, target.get(field))
  }
  copyPath(target.get(field), source.get(field), rest)
}

/** Replaces every writable field, as for the wildcard `*`. */
function replaceAll(target: ReflectMessage, source: ReflectMessage): void {
  for (const field of target.desc.fields) if (isWritable(field)) copyField(target, source, field)
}

/** Returns the set fields of `message` as mask paths. gRPC implies this mask if none is given (docs/spec/conventions.md#update-masks). */
export function populatedPaths(desc: DescMessage, message: Message): string[] {
  const reflected = reflect(desc, message)
  return desc.fields.filter((field) => reflected.isSet(field) && isWritable(field)).map((field) => field.name)
}

/**
 * Returns a copy of `current` with the fields in `paths` taken from `patch`. Output-only fields keep their value. Each kind checks its immutable fields itself.
 * `['*']` replaces every writable field. Throws code 3 on `updateMask`.
 */
export function applyMask<M extends Message>(desc: DescMessage, pair: { readonly current: M; readonly patch: M }, paths: readonly string[]): M {
  const next = clone(desc, pair.current) as M
  const target = reflect(desc, next)
  const source = reflect(desc, pair.patch)
  if (paths.includes('*')) {
    if (paths.length > 1) throw DomainError.invalid('update_mask', '"*" must be the only path')
    replaceAll(target, source)
    return next
  }
  for (const path of resolvePaths(desc, paths)) copyPath(target, source, path)
  return next
}

/** True if the mask contains exactly `path`, in snake or camel case. */
export function isNamed(paths: readonly string[], path: string): boolean {
  return paths.some((named) => snake(named) === path)
}

/** True if the mask names the etag or is absent or `*`. The etag in the body is then a precondition (docs/spec/conventions.md#etag-preconditions). */
export function maskAllowsEtag(paths: readonly string[] | undefined): boolean {
  return paths === undefined || paths.includes('*') || paths.includes('etag')
}
