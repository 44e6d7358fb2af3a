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
 * The top-level prefixes of the key space (docs/spec/storage.md#keys) that are watched and kept in memory. Keys below `x/` are neither. The stores put the
 * configured prefix, by default `/taproot`, in front of every key.
 */
export const watchedPrefixes = ['i/', 'meta/', 'r/'] as const

/** Returns the key of a record: `r/<kind>/<uid path>`. The keys of the records below X start with `r/<kind>/X/`. */
export function recordKey(kind: string, uid: Uid): string {
  return `r/${kind}/${uid}`
}

/** Returns the prefix of the keys of all records of `kind` below `uid`. */
export function belowPrefix(kind: string, uid: Uid): string {
  return `r/${kind}/${uid}/`
}

/** Returns the kind and uid of a record key. */
export function parseRecordKey(key: string): { kind: string; uid: string } {
  const slash = key.indexOf('/', 2)
  return { kind: key.slice(2, slash), uid: key.slice(slash + 1) }
}

/** Returns the key that reserves a unique name among the children of a parent (`/` for roots). Its value is the uid of the record with that name. */
export function nameKey(kind: string, parent: string, name: string): string {
  return `i/name/${kind}/${parent === '/' ? '' : parent}:${encodeURIComponent(name)}`
}

/**
 * Returns a reverse key, which says that the record `by` refers to the record `from`. A transaction that removes `from` guards that no key with this prefix
 * exists.
 */
export function usedByKey(relation: string, from: string, by: string): string {
  return `i/used/${relation}/${from}:${by}`
}

/** Returns the prefix of all reverse keys of the record `from`. */
export function usedByPrefix(relation: string, from: string): string {
  return `i/used/${relation}/${from}:`
}

/** Returns the key of the record of `kind` that the Kubernetes object `managedBy` owns, at most one. Its value is the record's uid. */
export function managedKey(kind: string, managedBy: string): string {
  return `${managedPrefix}${kind}/${managedBy}`
}

/** The prefix of all `managedKey` keys. */
export const managedPrefix = 'i/managed/'

/** Returns the key of a deletion mark. While it exists, dependents of the removed record `uid` count as absent and must still be removed. */
export function cascadeKey(uid: Uid): string {
  return `i/sweep/${uid}`
}

/** The prefix of all deletion marks. */
export const cascadePrefix = 'i/sweep/'

/** Returns the key that is rewritten when the owners of a root group change. Guards on it prevent two removals that together leave no owner. */
export function ownersKey(root: Uid): string {
  return `i/owners/${root}`
}

/**
 * Returns the key that is rewritten when the limits or the status of an organisation are set. Transactions that create records guard it (docs/adr/0024). It is
 * never deleted while the organisation exists.
 */
export function quotaKey(root: Uid): string {
  return `${quotaPrefix}${root}`
}

/** Returns the key for the state of one limit of an organisation: `near` or `far` from its maximum. Transactions that count towards this limit guard it. */
export function limitKey(root: Uid, limit: string): string {
  return `${quotaKey(root)}/${limit}`
}

/** Prefix of the keys for limits of organisations. */
export const quotaPrefix = 'i/quota/'

/** Returns the key that is rewritten when a manifest of the repo is deleted. Caches of the repo's manifests are valid only while it stays the same. */
export function manifestsKey(repo: Uid): string {
  return `i/manifests/${repo}`
}

/** Returns the key that is rewritten when an index is pushed to the repo. What is known of the indexes of the repo is valid only while it stays the same. */
export function indexesKey(repo: Uid): string {
  return `i/indexes/${repo}`
}

/** Returns the key that is rewritten when a manifest with a subject is pushed to the repo, such as a signature. */
export function referrersKey(repo: Uid): string {
  return `i/referrers/${repo}`
}

/** Returns the key of the SCIM credentials of an identity provider. Its value is an encoded ScimState. It does not exist before the first token is issued. */
export function scimKey(provider: Uid): string {
  return `${scimPrefix}${provider}`
}

/** The prefix of all SCIM credentials. */
export const scimPrefix = 'i/scim/'

/** Returns a key that exists if others bound a role to the person in the organisation `root`, and the person has not joined it. */
export function pendingKey(person: Uid, root: Uid): string {
  return `${pendingPrefix}${person}/${root}`
}

/** The prefix of all `pendingKey` keys. */
export const pendingPrefix = 'i/pending/'

/** Returns the key of the list of root groups that the person created for themselves, as JSON. The list may include deleted groups. */
export function founderKey(person: Uid): string {
  return `${founderPrefix}${person}`
}

/** The prefix of all `founderKey` keys. */
export const founderPrefix = 'i/founder/'

/** Returns the key of a name that a root group gave up and that is reserved for its former owners. Its value is an encoded HeldName. */
export function heldNameKey(name: string): string {
  return `${heldNamePrefix}${encodeURIComponent(name)}`
}

/** The prefix of all reserved names. */
export const heldNamePrefix = 'i/held/'

/** Returns the key of the list of names that the root group gave up by renames, oldest first, as JSON. */
export function releasedNamesKey(root: Uid): string {
  return `${releasedNamesPrefix}${root}`
}

/** The prefix of all `releasedNamesKey` keys. */
export const releasedNamesPrefix = 'i/released/'

/** Returns the key of the pause of a subscription. Its value is an encoded SubscriptionPause. It exists only while the subscription is paused. */
export function pauseKey(subscription: Uid): string {
  return `${pausePrefix}${subscription}`
}

/** The prefix of all `pauseKey` keys. */
export const pausePrefix = 'i/paused/'

/** Key spaces below `i/` whose keys end with a uid. Such a key belongs to that uid's root. */
const spacesOfUids: ReadonlySet<string> = new Set(['sweep', 'owners', 'manifests', 'indexes', 'released', 'scim', 'quota', 'paused'])

/**
 * Returns the uid of the root (organisation, person or built-in role) to whose data a watched key belongs. Undefined for data of the whole platform: names of
 * root records, records that Kubernetes objects own, and `meta/`. All watched keys of one transaction belong to one root or to none. The only exceptions are
 * deletion marks of persons and built-in roles, which transactions on bindings in other roots read. Keys below `x/` belong to the root of their transaction.
 * So the key space can be divided by root (docs/scaling.md).
 */
export function rootOfKey(key: string): string | undefined {
  const [space, first = '', second = '', third = ''] = key.split('/')
  if (space === 'r') return second
  if (space !== 'i') return undefined
  if (spacesOfUids.has(first)) return second
  // The first uid is the person, who may have bindings in every organisation; the second one is the organisation.
  if (first === 'pending') return third
  // The parent of the named record is before the colon; it is empty if the record is a root.
  if (first === 'name') return third.split(':', 1)[0] || undefined
  // The record that refers to another one is after the colon. The other one may be a person, to whom every organisation may refer.
  if (first === 'used') return key.slice(key.lastIndexOf(':') + 1).split('/', 1)[0]
  return undefined
}
