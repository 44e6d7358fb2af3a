import { DomainError } from './errors.ts'

declare const uidBrand: unique symbol

/**
 * A resource's identifier: 40 lowercase hex digits, then any number of `/` + 16 lowercase hex digits. A root has no `/`. A child is its parent's uid + `/` +
 * its own segment, so the ancestor test is a prefix test (docs/spec/resources.md#uid-hierarchy).
 */
export type Uid = string & { readonly [uidBrand]: true }

const uidPattern = /^[0-9a-f]{40}(?:\/[0-9a-f]{16})*$/

/**
 * Maximum length of an accepted uid, in characters. The name of a repository in the upstream registry contains the uid and has at most 255
 * (docs/spec/resources.md#uid-shape).
 */
export const maxUidLength = 255

/** The value that stands for the parent of a root record, as in the filter `children_of` and in events. */
export const rootParent = '/'

/** True if `text` has the form of a uid. */
export function isUid(text: string): text is Uid {
  return text.length <= maxUidLength && uidPattern.test(text)
}

/** Returns `text` as a uid. Throws code 3 for `field` if it is not one. */
export function parseUid(text: string, field: string): Uid {
  if (isUid(text)) return text
  throw DomainError.invalid(field, 'must be a uid: 40 hex digits, then a slash and 16 hex digits for each level below the root')
}

/** Returns text that this program created or stored as a uid, without a check. */
export function trustedUid(text: string): Uid {
  return text as Uid
}

/** Returns the uid of the parent, or `/` for a root. */
export function parentOf(uid: Uid): Uid | typeof rootParent {
  const slash = uid.lastIndexOf('/')
  return slash < 0 ? rootParent : trustedUid(uid.slice(0, slash))
}

/** Returns the first segment: the organisation, person or built-in role of `uid`. */
export function rootOf(uid: Uid): Uid {
  const slash = uid.indexOf('/')
  return slash < 0 ? uid : trustedUid(uid.slice(0, slash))
}

/** True if the resource `uid` is below `ancestor` in the tree, at any depth. */
export function isBelow(uid: string, ancestor: string): boolean {
  return uid.length > ancestor.length && uid.charCodeAt(ancestor.length) === 47 && uid.startsWith(ancestor)
}

/** True if the resource `uid` is `ancestor` itself or below it in the tree. */
export function isWithin(uid: string, ancestor: string): boolean {
  return uid === ancestor || isBelow(uid, ancestor)
}

/** Yields `uid` and then the uids of all its ancestors, nearest first. */
export function* lineage(uid: Uid): Generator<Uid> {
  let at: string = uid
  for (;;) {
    yield trustedUid(at)
    const slash = at.lastIndexOf('/')
    if (slash < 0) return
    at = at.slice(0, slash)
  }
}
