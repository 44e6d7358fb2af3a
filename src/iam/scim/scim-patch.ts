import { scimError } from './scim-error.ts'
import { enterpriseUrn, findTarget, isUrn, userUrn, type ScimAttribute, type ScimTarget } from './scim-schema.ts'
import { assertOnePrimary, isObject, maxValues, readValue, type ScimObject, type ScimValue } from './scim-values.ts'

/** The URN of a patch (RFC 7644 3.5.2). */
export const patchUrn = 'urn:ietf:params:scim:api:messages:2.0:PatchOp'

/** The most operations, and the most changes of attributes in all of them together. */
const maxChanges = 500

/** Where values are written; a copy. */
type ScimDraft = Record<string, ScimValue>

type Op = 'add' | 'replace' | 'remove'

/** The change of one attribute, or the end of the whole extension. */
interface ScimChange {
  readonly op: Op
  readonly target: ScimTarget
  readonly value: unknown
  /** As the request names the target. */
  readonly path: string
}

/** What is equal for equal values, in whatever order their parts are. */
type Identify = (value: ScimValue) => string

function opOf(operation: Readonly<Record<string, unknown>>): Op {
  // Entra writes them with a capital.
  const op = typeof operation['op'] === 'string' ? operation['op'].toLowerCase() : ''
  if (op !== 'add' && op !== 'replace' && op !== 'remove') throw scimError('invalidSyntax', 'op must be add, replace or remove')
  return op
}

/** Throws `invalidPath` for a value filter (docs/spec/scim.md#scim-patches), a name that no schema has, and a sub-attribute of several values at once. */
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

/** The attributes of a whole schema, where the path is its URN; undefined for another path. Throws `invalidValue`. */
function wholeSchema(op: Op, path: string, value: unknown): ScimChange[] | undefined {
  if (!isUrn(path, userUrn) && !isUrn(path, enterpriseUrn)) return undefined
  // What is left is no attribute, or the end of the extension.
  if (op === 'remove' || value === null) return undefined
  if (!isObject(value)) throw scimError('invalidValue', `${path} must be an object`)
  return memberChanges(op, value, `${path}:`)
}

/** An object whose members are paths; those that no schema has, or that are read-only, are dropped. */
function memberChanges(op: Op, value: Readonly<Record<string, unknown>>, prefix: string): ScimChange[] {
  return Object.entries(value).flatMap(([name, member]) => {
    const path = `${prefix}${name}`
    const whole = wholeSchema(op, path, member)
    if (whole !== undefined) return whole
    const target = name.includes('[') || findTarget(path) !== undefined ? targetOf(path) : undefined
    return target === undefined || target.attribute?.mutability === 'readOnly' ? [] : [{ op, target, value: member, path }]
  })
}

/** Throws `invalidValue` where one value names an attribute twice: names have no case, and may stand behind a URN. */
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

/** The operation as changes of one attribute each, no attribute twice. */
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

/** Works the identity of each value out once. */
function createIdentify(): Identify {
  const known = new WeakMap<ScimObject, string>()
  return (value) => {
    if (!isObject(value)) return JSON.stringify(value)
    const found = known.get(value) ?? JSON.stringify(Object.entries(value).toSorted())
    known.set(value, found)
    return found
  }
}

/** Old and new values: equal ones once, and of several primary ones the new one (RFC 7644 3.5.2.1). */
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

/** A value with parts after the change. Parts that are not named stay, also where it is replaced (RFC 7644 3.5.2.3); one that is replaced by null goes. */
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

/** What the attribute has after the change; undefined for none. Of nothing there is nothing to add. */
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
  // Both are lists: readValue made them.
  return multiValued ? joined(old as readonly ScimValue[], read as readonly ScimValue[], { path, identify }) : read
}

function put(holder: ScimDraft, name: string, value: ScimValue | undefined): void {
  if (value === undefined) delete holder[name]
  else holder[name] = value
}

/** A copy of the object that lies under this name. */
function copyOf(holder: ScimObject, name: string): ScimDraft {
  const held = holder[name]
  // Only complex attributes and the extension are asked for.
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
  // As a whole it is only removed, or replaced by null; what else a request says of it is said of its attributes.
  if (target.attribute !== undefined) applyTo(extension, change, identify)
  else if (op !== 'add') put(user, enterpriseUrn, undefined)
  if (target.attribute !== undefined) putPart(user, enterpriseUrn, extension)
}

/**
 * The user after a patch: all of it, or nothing. Takes what Okta and Entra send (docs/spec/scim.md#scim-patches): operations with a capital, booleans as text, values without a path whose
 * members may be paths themselves, or a schema's URN. Throws `invalidSyntax`, `invalidPath`, `invalidValue`, `mutability`, `noTarget`.
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
