import { scimError } from './scim-error.ts'
import { enterpriseUrn, findTarget, isUrn, userUrn, type ScimAttribute, type ScimTarget } from './scim-schema.ts'
import { assertOnePrimary, isObject, maxValues, readValue, type ScimObject, type ScimValue } from './scim-values.ts'

/** The URN of a patch (RFC 7644 3.5.2). */
export const patchUrn = 'urn:ietf:params:scim:api:messages:2.0:PatchOp'

/** Maximum number of operations, and of attribute changes in all operations. */
const maxChanges = 500

/** An object that is being changed: a copy of the stored one. */
type ScimDraft = Record<string, ScimValue>

type Op = 'add' | 'replace' | 'remove'

/** A change of one attribute, or the removal of the extension. */
interface ScimChange {
  readonly op: Op
  readonly target: ScimTarget
  readonly value: unknown
  /** Name of the attribute in the request. */
  readonly path: string
}

/** Returns a text that is equal for equal values, in any order of their members. */
type Identify = (value: ScimValue) => string

function opOf(operation: Readonly<Record<string, unknown>>): Op {
  // Entra capitalises the names of operations.
  const op = typeof operation['op'] === 'string' ? operation['op'].toLowerCase() : ''
  if (op !== 'add' && op !== 'replace' && op !== 'remove') throw scimError('invalidSyntax', 'op must be add, replace or remove')
  return op
}

/**
 * Parses a path. Throws `invalidPath` for a value filter (docs/spec/scim.md#scim-patches), for an unknown name, and for a sub-attribute of
 * a multi-valued attribute.
 */
function targetOf(path: string): ScimTarget {
  if (path.includes('[')) throw scimError('invalidPath', 'paths with a value filter are not supported: write the whole attribute')
  const target = findTarget(path)
  if (target === undefined) throw scimError('invalidPath', `no attribute ${path.slice(0, 100)}`)
  if (target.sub !== undefined && target.attribute?.multiValued === true)
    throw scimError('invalidPath', `${path} has several values: write the whole attribute`)
  return target
}

function pathOf({ path }: Readonly<Record<string, unknown>>): string | undefined {
  if (path === undefined || path === null || path === '') return undefined
  if (typeof path !== 'string') throw scimError('invalidPath', 'path must be a string')
  return path
}

/** If the path is the URN of a schema, returns the changes of its attributes; otherwise undefined. Throws `invalidValue`. */
function wholeSchema(op: Op, path: string, value: unknown): ScimChange[] | undefined {
  if (!isUrn(path, userUrn) && !isUrn(path, enterpriseUrn)) return undefined
  // The path may name an attribute, or the extension to remove. Other code handles both.
  if (op === 'remove' || value === null) return undefined
  if (!isObject(value)) throw scimError('invalidValue', `${path} must be an object`)
  return memberChanges(op, value, `${path}:`)
}

/** Returns the changes for an object whose keys are paths. Ignores unknown and read-only attributes. */
function memberChanges(op: Op, value: Readonly<Record<string, unknown>>, prefix: string): ScimChange[] {
  return Object.entries(value).flatMap(([name, member]) => {
    const path = `${prefix}${name}`
    const whole = wholeSchema(op, path, member)
    if (whole !== undefined) return whole
    const target = name.includes('[') || findTarget(path) !== undefined ? targetOf(path) : undefined
    return target === undefined || target.attribute?.mutability === 'readOnly' ? [] : [{ op, target, value: member, path }]
  })
}

/** Throws `invalidValue` if a value contains an attribute twice. Names ignore letter case and may have a URN. */
function assertDistinct(changes: readonly ScimChange[]): void {
  const seen = new Set<string>()
  for (const { target, path } of changes) {
    const name = `${target.enterprise} ${target.attribute?.name} ${target.sub?.name}`
    if (seen.has(name)) throw scimError('invalidValue', `${path.slice(0, 100)} occurs twice in one value`)
    seen.add(name)
  }
}

function changeAt(op: Op, path: string, value: unknown): ScimChange {
  const target = targetOf(path)
  if (target.attribute?.mutability === 'readOnly') throw scimError('mutability', `${path} is read-only`)
  if (op !== 'remove' && value === undefined) throw scimError('invalidValue', `${op} needs a value`)
  if (op === 'remove' && value !== undefined && value !== null && target.attribute?.multiValued === true)
    throw scimError('invalidValue', `remove applies to all values of ${path}: replace them with the values to keep`)
  return { op, target, value, path }
}

/** Converts the operation into changes, one for each attribute. */
function changesOf(operation: unknown): ScimChange[] {
  if (!isObject(operation)) throw scimError('invalidSyntax', 'each item of Operations must be an object')
  const op = opOf(operation)
  const { value } = operation
  const path = pathOf(operation)
  if (path !== undefined) {
    const whole = value === undefined ? undefined : wholeSchema(op, path, value)
    if (whole === undefined) return [changeAt(op, path, value)]
    assertDistinct(whole)
    return whole
  }
  if (op === 'remove') throw scimError('noTarget', 'remove needs a path')
  if (!isObject(value)) throw scimError('invalidValue', 'a value without a path must be an object')
  const changes = memberChanges(op, value, '')
  assertDistinct(changes)
  return changes
}

/** Returns an Identify that computes the text of each value once. */
function createIdentify(): Identify {
  const known = new WeakMap<ScimObject, string>()
  return (value) => {
    if (!isObject(value)) return JSON.stringify(value)
    const found = known.get(value) ?? JSON.stringify(Object.entries(value).toSorted())
    known.set(value, found)
    return found
  }
}

/** Merges old and new values without duplicates. If several are primary, the new one stays primary (RFC 7644 3.5.2.1). */
function joined(old: readonly ScimValue[], added: readonly ScimValue[], { path, identify }: { path: string; identify: Identify }): ScimValue {
  const known = new Set(old.map(identify))
  const fresh = added.filter((value) => !known.has(identify(value)))
  const isPrimary = fresh.some((value) => isObject(value) && value['primary'] === true)
  const kept = isPrimary ? old.map((value) => (isObject(value) && value['primary'] === true ? { ...value, primary: false } : value)) : old
  const all = [...kept, ...fresh]
  if (all.length > maxValues) throw scimError('invalidValue', `${path} must not have more than ${maxValues} values`)
  assertOnePrimary(all, path)
  return all
}

/**
 * Returns a complex value after the change. Members that the change does not name stay, also for `replace` (RFC 7644 3.5.2.3). A member
 * with null is removed.
 */
function partsAfter(parts: ReadonlyMap<string, ScimAttribute>, change: ScimChange & { value: Readonly<Record<string, unknown>> }, old: ScimObject): ScimObject {
  const next: ScimDraft = { ...old }
  for (const [name, member] of Object.entries(change.value)) {
    const part = parts.get(name.toLowerCase())
    if (part === undefined) continue
    const read = readValue(part, member, `${change.path}.${part.name}`)
    if (read !== undefined || change.op === 'replace') put(next, part.name, read)
  }
  return next
}

/** Returns the value of the attribute after the change; undefined if none is left. */
function changed(change: ScimChange, attribute: ScimAttribute, { old, identify }: { old: ScimValue | undefined; identify: Identify }): ScimValue | undefined {
  const { op, value, path } = change
  if (op === 'remove') return undefined
  const { subAttributes, multiValued } = attribute
  if (subAttributes !== undefined && !multiValued && isObject(value) && isObject(old)) {
    const next = partsAfter(subAttributes, { ...change, value }, old)
    return Object.keys(next).length === 0 ? undefined : next
  }
  const read = readValue(attribute, value, path)
  if (op === 'replace' || old === undefined) return read
  if (read === undefined) return old
  // a cast: readValue returned both as lists
  return multiValued ? joined(old as readonly ScimValue[], read as readonly ScimValue[], { path, identify }) : read
}

function put(holder: ScimDraft, name: string, value: ScimValue | undefined): void {
  if (value === undefined) delete holder[name]
  else holder[name] = value
}

/** Returns a copy of the object in the member `name`. */
function copyOf(holder: ScimObject, name: string): ScimDraft {
  const held = holder[name]
  // Callers pass only complex attributes and the extension.
  return isObject(held) ? { ...held } : {}
}

function putPart(holder: ScimDraft, name: string, part: ScimObject): void {
  put(holder, name, Object.keys(part).length === 0 ? undefined : part)
}

function applyTo(holder: ScimDraft, change: ScimChange, identify: Identify): void {
  const { target, path } = change
  const { attribute, sub } = target
  if (attribute === undefined) return
  if (sub === undefined) {
    const next = changed(change, attribute, { old: holder[attribute.name], identify })
    if (next === undefined && attribute.required) throw scimError('mutability', `${path} cannot be removed`)
    put(holder, attribute.name, next)
    return
  }
  const part = copyOf(holder, attribute.name)
  put(part, sub.name, changed(change, sub, { old: part[sub.name], identify }))
  putPart(holder, attribute.name, part)
}

function apply(user: ScimDraft, change: ScimChange, identify: Identify): void {
  const { op, target } = change
  if (!target.enterprise) {
    applyTo(user, change, identify)
    return
  }
  const extension = copyOf(user, enterpriseUrn)
  // The extension as a whole can only be removed or set to null. Other changes are changes of its attributes.
  if (target.attribute !== undefined) applyTo(extension, change, identify)
  else if (op !== 'add') put(user, enterpriseUrn, undefined)
  if (target.attribute !== undefined) putPart(user, enterpriseUrn, extension)
}

/**
 * Applies all operations of a patch, or none. Accepts requests of Okta and Entra (docs/spec/scim.md#scim-patches): capitalised operations,
 * booleans as strings, and values without a path whose keys are paths or schema URNs. Throws `invalidSyntax`, `invalidPath`,
 * `invalidValue`, `mutability`, `noTarget`.
 */
export function patched(user: ScimObject, body: Readonly<Record<string, unknown>>): ScimObject {
  const operations: unknown = Object.entries(body).find(([name]) => name.toLowerCase() === 'operations')?.[1]
  if (!Array.isArray(operations) || operations.length === 0) throw scimError('invalidSyntax', 'Operations must be a list')
  const changes: ScimChange[] = []
  for (const operation of operations.slice(0, maxChanges + 1)) changes.push(...changesOf(operation))
  if (operations.length > maxChanges || changes.length > maxChanges)
    throw scimError('invalidSyntax', `a patch must not have more than ${maxChanges} operations, nor change more than ${maxChanges} attributes`)
  const draft: ScimDraft = { ...user }
  const identify = createIdentify()
  for (const change of changes) apply(draft, change, identify)
  return draft
}
