import { clone, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { DomainError } from '../errors.ts'
import { fieldAccess } from './field-behavior.ts'

/** Resource fields that no mask reaches: the uid comes from the path, the etag is a precondition. */
const unmaskable: ReadonlySet<string> = new Set(['uid', 'etag'])

/** `fooBar` or `foo_bar` as the schema spells it: `foo_bar`. */
function snake(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

/** The field of `desc` that one mask segment names, in either spelling. */
function fieldNamed(desc: DescMessage, segment: string): DescField | undefined {
  return desc.fields.find((field) => field.name === segment || field.jsonName === segment || field.name === snake(segment))
}

/**
 * The mask's paths as lists of fields. A path may be snake or camel case; a wildcard must stand alone.
 * Throws code 3 on `updateMask` for a path that is none (docs/spec/conventions.md#update-masks).
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

/** Of several fields of which one is set, a text may be sent empty: that is no value, as everywhere else. */
function isEmptyMember(source: ReflectMessage, field: DescField): boolean {
  return field.oneof !== undefined && field.fieldKind === 'scalar' && source.get(field) === ''
}

/** Sets `field` of `target` to what `source` has, or clears it. */
function copyField(target: ReflectMessage, source: ReflectMessage, field: DescField): void {
  if (source.isSet(field) && !isEmptyMember(source, field)) target.set(field, source.get(field))
  else target.clear(field)
}

/** Follows `path` down and copies its last field; a nested message that is missing on one side counts as empty. */
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

/** Every writable field in turn: what the wildcard `*` replaces. */
function replaceAll(target: ReflectMessage, source: ReflectMessage): void {
  for (const field of target.desc.fields) if (isWritable(field)) copyField(target, source, field)
}

/** The fields of `message` that are set, as mask paths: the mask that gRPC implies where none is given (docs/spec/conventions.md#update-masks). */
export function populatedPaths(desc: DescMessage, message: Message): string[] {
  const reflected = reflect(desc, message)
  return desc.fields.filter((field) => reflected.isSet(field) && isWritable(field)).map((field) => field.name)
}

/**
 * `current` changed to what `patch` says in the fields that `paths` name; `current` itself stays as it is. Output-only fields keep their value; whether an immutable
 * one was changed is for its kind to look at. `['*']` replaces every writable field. Throws code 3 on `updateMask`.
 */
export function applyMask<M extends Message>(desc: DescMessage, pair: { readonly current: M; readonly patch: M }, paths: readonly string[]): M {
  const next = clone(desc, pair.current) as M
  const target = reflect(desc, next)
  const source = reflect(desc, pair.patch)
  if (paths.includes('*')) {
    if (paths.length > 1) throw DomainError.invalid('update_mask', '"*" must stand alone')
    replaceAll(target, source)
    return next
  }
  for (const path of resolvePaths(desc, paths)) copyPath(target, source, path)
  return next
}

/** True where one of the mask's paths, in either spelling, is `path` itself. */
export function isNamed(paths: readonly string[], path: string): boolean {
  return paths.some((named) => snake(named) === path)
}

/** True where a mask lets the body's etag count as a precondition: it names the etag or everything (docs/spec/conventions.md#etag-preconditions). */
export function maskAllowsEtag(paths: readonly string[] | undefined): boolean {
  return paths === undefined || paths.includes('*') || paths.includes('etag')
}
