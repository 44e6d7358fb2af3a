import { scimError } from './scim-error.ts'
import { enterpriseUrn, findTarget, userUrn, type ScimTarget } from './scim-schema.ts'
import type { ScimUserView } from './scim-users.ts'
import { isObject, type ScimObject, type ScimValue } from './scim-values.ts'

/** Returns the `meta.version` of a user, which is also its etag (RFC 7644 3.14). */
export function versionOf({ etag }: Pick<ScimUserView, 'etag'>): string {
  return `W/"${etag}"`
}

/** Returns the URL of a user at the SCIM server of the provider. */
export function locationOf(endpoint: string, { uid }: Pick<ScimUserView, 'uid'>): string {
  return `${endpoint}/Users/${uid.slice(uid.lastIndexOf('/') + 1)}`
}

/** Returns all attributes of a user for a response. `endpoint` is the URL of the provider's SCIM server. */
export function shownUser(view: ScimUserView, endpoint: string): ScimObject {
  const { uid, attributes, createMs, updateMs } = view
  const meta = {
    resourceType: 'User',
    created: new Date(createMs).toISOString(),
    lastModified: new Date(updateMs).toISOString(),
    location: locationOf(endpoint, view),
    version: versionOf(view),
  }
  const schemas = attributes[enterpriseUrn] === undefined ? [userUrn] : [userUrn, enterpriseUrn]
  return { schemas, id: uid.slice(uid.lastIndexOf('/') + 1), ...attributes, meta }
}

/** Selection of attributes in a response (RFC 7644 3.9). */
export interface Projection {
  /** If present, only these attributes are returned, and those that are always returned. */
  readonly only?: readonly ScimTarget[]
  readonly without: readonly ScimTarget[]
}

const maxNames = 100

/** Parses the selection of attributes. Throws `invalidValue` if both lists are given, or for too many names. Unknown names are ignored. */
export function projectionOf(attributes: readonly string[] | undefined, excluded: readonly string[] | undefined): Projection {
  if (attributes !== undefined && excluded !== undefined)
    throw scimError('invalidValue', 'attributes and excludedAttributes cannot be combined: send one of them')
  if ((attributes ?? excluded ?? []).length > maxNames) throw scimError('invalidValue', `at most ${maxNames} attributes can be named`)
  const targets = (names: readonly string[]): ScimTarget[] => names.map((name) => findTarget(name.trim())).filter((target) => target !== undefined)
  return { ...(attributes === undefined ? {} : { only: targets(attributes) }), without: targets(excluded ?? []) }
}

/** Returns a copy of the value with the parts that `keeps` selects. */
function partsOf(value: ScimValue, keeps: (name: string) => boolean): ScimValue {
  if (Array.isArray(value)) return (value as readonly ScimValue[]).map((item) => partsOf(item, keeps))
  return isObject(value) ? Object.fromEntries(Object.entries(value).filter(([name]) => keeps(name))) : value
}

/** Returns the selected members of an object. */
function projectMembers(object: ScimObject, { only, without }: Projection, isAlways: (name: string) => boolean): ScimObject {
  const shown = Object.entries(object).flatMap(([name, value]): [string, ScimValue][] => {
    if (isAlways(name)) return [[name, value]]
    const wanted = only?.filter(({ attribute }) => attribute?.name === name)
    if (wanted?.length === 0) return []
    const unwanted = without.filter(({ attribute }) => attribute?.name === name)
    if (unwanted.some(({ sub }) => sub === undefined)) return []
    const isWhole = wanted === undefined || wanted.some(({ sub }) => sub === undefined)
    const keeps = (part: string): boolean => (isWhole || wanted.some(({ sub }) => sub?.name === part)) && !unwanted.some(({ sub }) => sub?.name === part)
    return [[name, isWhole && unwanted.length === 0 ? value : partsOf(value, keeps)]]
  })
  return Object.fromEntries(shown)
}

/** Returns the selected members of the extension; undefined if there are none. */
function projectEnterprise(extension: ScimObject, { only, without }: Projection): ScimObject | undefined {
  const isNamed = (targets: readonly ScimTarget[]): boolean => targets.some(({ attribute }) => attribute === undefined)
  if (isNamed(without)) return undefined
  const whole = only === undefined || isNamed(only)
  const shown = projectMembers(extension, { ...(whole ? {} : { only }), without }, () => false)
  return Object.keys(shown).length === 0 ? undefined : shown
}

const always: ReadonlySet<string> = new Set(['id', 'schemas'])

/** Returns the selected attributes of a user. */
export function projected(user: ScimObject, { only, without }: Projection): ScimObject {
  if (only === undefined && without.length === 0) return user
  const { [enterpriseUrn]: extension, ...top } = user
  const side = (targets: readonly ScimTarget[], enterprise: boolean): ScimTarget[] => targets.filter((target) => target.enterprise === enterprise)
  const of = (enterprise: boolean): Projection => ({ ...(only === undefined ? {} : { only: side(only, enterprise) }), without: side(without, enterprise) })
  const shown = projectMembers(top, of(false), (name) => always.has(name))
  // shownUser created the value: the extension is an object.
  const added = isObject(extension) ? projectEnterprise(extension, of(true)) : undefined
  return added === undefined ? shown : { ...shown, [enterpriseUrn]: added }
}
