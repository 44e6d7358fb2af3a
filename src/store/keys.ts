import type { Uid } from '../base/uid.ts'

/**
 * Returns the first key, in byte order, after all keys that start with `prefix`; undefined for the empty prefix. Keys are ASCII, so the order of UTF-16 units
 * is the order of bytes.
 */
export function prefixEnd(prefix: string): string | undefined {
  if (prefix === '') return undefined
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
}

/**
 * The key space (docs/spec/storage.md#keys). The adapters add the configured prefix, by default `/taproot`; keys here start below it. `r/`, `i/` and `meta/`
 * are watched and mirrored in memory; `x/` never is.
 */
export const watchedPrefixes = ['i/', 'meta/', 'r/'] as const

/** A record: `r/<kind>/<uid path>`. Descendants of X are the keys with prefix `r/<kind>/X/`. */
export function recordKey(kind: string, uid: Uid): string {
  return `r/${kind}/${uid}`
}

/** The prefix of all records of `kind` below `uid`. */
export function belowPrefix(kind: string, uid: Uid): string {
  return `r/${kind}/${uid}/`
}

/** Returns the kind and uid of a record key. */
export function parseRecordKey(key: string): { kind: string; uid: string } {
  const slash = key.indexOf('/', 2)
  return { kind: key.slice(2, slash), uid: key.slice(slash + 1) }
}

/** A unique name within a parent (`/` for roots). Its value is the holder's uid. */
export function nameKey(kind: string, parent: string, name: string): string {
  return `i/name/${kind}/${parent === '/' ? '' : parent}:${encodeURIComponent(name)}`
}

/** A reverse key: `by` uses `from`, a record of one kind. `empty` guards on its prefix prevent the removal of a record in use. */
export function usedByKey(relation: string, from: string, by: string): string {
  return `i/used/${relation}/${from}:${by}`
}

/** The prefix of all reverse keys of `from`. */
export function usedByPrefix(relation: string, from: string): string {
  return `i/used/${relation}/${from}:`
}

/** The record of `kind` that the Kubernetes object `managedBy` owns: at most one. Its value is the record's uid. */
export function managedKey(kind: string, managedBy: string): string {
  return `${managedPrefix}${kind}/${managedBy}`
}

/** The prefix of all `managedKey` keys. */
export const managedPrefix = 'i/managed/'

/** A deletion mark: dependents of this removed record count as absent and must still be removed. */
export function cascadeKey(uid: Uid): string {
  return `i/sweep/${uid}`
}

/** The prefix of all deletion marks. */
export const cascadePrefix = 'i/sweep/'

/** Rewritten whenever the set of owners of a root group changes; guards the last owner. */
export function ownersKey(root: Uid): string {
  return `i/owners/${root}`
}

/** Rewritten whenever the limits or the status of an organisation are set: creates guard it (docs/adr/0024). Never deleted while the organisation exists. */
export function quotaKey(root: Uid): string {
  return `${quotaPrefix}${root}`
}

/** The state of one limit of an organisation: `near` or `far`. Like `quotaKey`, for this limit alone. */
export function limitKey(root: Uid, limit: string): string {
  return `${quotaKey(root)}/${limit}`
}

/** The prefix of the states of limits. */
export const quotaPrefix = 'i/quota/'

/** Rewritten whenever a manifest of the repo is deleted. This invalidates everything remembered about its manifests. */
export function manifestsKey(repo: Uid): string {
  return `i/manifests/${repo}`
}

/** The SCIM credentials of an identity provider: ScimState bytes. Absent before the first token. */
export function scimKey(provider: Uid): string {
  return `${scimPrefix}${provider}`
}

/** The prefix of all SCIM credentials. */
export const scimPrefix = 'i/scim/'

/** Set if others bound a role to the person in the organisation `root`, and the person has not joined it. */
export function pendingKey(person: Uid, root: Uid): string {
  return `${pendingPrefix}${person}/${root}`
}

/** The prefix of all `pendingKey` keys. */
export const pendingPrefix = 'i/pending/'

/** The root groups that the person created for themselves, possibly including deleted ones: JSON. */
export function founderKey(person: Uid): string {
  return `${founderPrefix}${person}`
}

/** The prefix of all `founderKey` keys. */
export const founderPrefix = 'i/founder/'

/** A name that a root group gave up, reserved for its former owners: HeldName bytes. */
export function heldNameKey(name: string): string {
  return `${heldNamePrefix}${encodeURIComponent(name)}`
}

/** The prefix of all reserved names. */
export const heldNamePrefix = 'i/held/'

/** The names that the root group reserved by renames, oldest first: JSON. */
export function releasedNamesKey(root: Uid): string {
  return `${releasedNamesPrefix}${root}`
}

/** The prefix of all `releasedNamesKey` keys. */
export const releasedNamesPrefix = 'i/released/'

/** The pause of a subscription: SubscriptionPause bytes. Absent unless it is paused. */
export function pauseKey(subscription: Uid): string {
  return `${pausePrefix}${subscription}`
}

/** The prefix of all `pauseKey` keys. */
export const pausePrefix = 'i/paused/'

/** Key spaces below `i/` in which the rest of a key is a uid. The whole key belongs to that uid's root. */
const spacesOfUids: ReadonlySet<string> = new Set(['sweep', 'owners', 'manifests', 'released', 'scim', 'quota', 'paused'])

/**
 * Returns the root uid (organisation, person or built-in role) to whose data a watched key belongs. Undefined for keys of the whole platform: names of root
 * records, the records that Kubernetes objects own, and `meta/`. All watched keys of one transaction have one root, or none. The only exceptions are the
 * deletion marks of persons and built-in roles, which bindings of other roots read. Keys below `x/` belong to the root of their transaction. So the key space
 * can be divided by root (docs/scaling.md).
 */
export function rootOfKey(key: string): string | undefined {
  const [space, first = '', second = '', third = ''] = key.split('/')
  if (space === 'r') return second
  if (space !== 'i') return undefined
  if (spacesOfUids.has(first)) return second
  // A person may have bindings in every organisation.
  if (first === 'pending') return third
  // The holder's parent is before the colon: empty if the holder is a root.
  if (first === 'name') return third.split(':', 1)[0] || undefined
  // The user is after the colon: the used record may be a person, whom every organisation may use.
  if (first === 'used') return key.slice(key.lastIndexOf(':') + 1).split('/', 1)[0]
  return undefined
}
