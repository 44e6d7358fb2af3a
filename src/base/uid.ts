import { DomainError } from './errors.ts'

declare const uidBrand: unique symbol

/**
 * A resource's identifier: 40 lowercase hex digits, then any number of `/` + 16 lowercase hex digits. A root has no `/`;
 * a child is its parent's uid + `/` + a segment of its own, so the ancestor test is a prefix test (docs/spec/resources.md#uid-hierarchy).
 */
export type Uid = string & { readonly [uidBrand]: true }

const uidPattern = /^[0-9a-f]{40}(?:\/[0-9a-f]{16})*$/

/** The longest uid accepted, in characters: the registry host's upstream repositories allow 255 (docs/spec/resources.md#uid-shape). */
export const maxUidLength = 255

/** The parent of a root record, as `children_of` and events spell it. */
export const rootParent = '/'

/** True where `text` has the shape of a uid. */
export function isUid(text: string): text is Uid {
  return text.length <= maxUidLength && uidPattern.test(text)
}

/** Returns `text` as a uid, or throws code 3 on `field` where it is none. */
export function parseUid(text: string, field: string): Uid {
  if (isUid(text)) return text
  throw DomainError.invalid(field, 'must be a uid: 40 hex digits, then any number of /16 hex digits')
}

/** Marks text as a uid that this program itself made or stored. */
export function trustedUid(text: string): Uid {
  return text as Uid
}

/** The uid one level up, or `/` for a root. */
export function parentOf(uid: Uid): Uid | typeof rootParent {
  const slash = uid.lastIndexOf('/')
  return slash < 0 ? rootParent : trustedUid(uid.slice(0, slash))
}

/** The first segment: the organisation (or person, or built-in role) that `uid` belongs to. */
export function rootOf(uid: Uid): Uid {
  const slash = uid.indexOf('/')
  return slash < 0 ? uid : trustedUid(uid.slice(0, slash))
}

/** True where `uid` lies strictly below `ancestor`. */
export function isBelow(uid: string, ancestor: string): boolean {
  return uid.length > ancestor.length && uid.charCodeAt(ancestor.length) === 47 && uid.startsWith(ancestor)
}

/** True where `uid` is `ancestor` or lies below it. */
export function isWithin(uid: string, ancestor: string): boolean {
  return uid === ancestor || isBelow(uid, ancestor)
}

/** `uid` and all above it, nearest first. */
export function* lineage(uid: Uid): Generator<Uid> {
  let at: string = uid
  for (;;) {
    yield trustedUid(at)
    const slash = at.lastIndexOf('/')
    if (slash < 0) return
    at = at.slice(0, slash)
  }
}
