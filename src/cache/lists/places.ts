import { isBelow, isWithin, lineage, parentOf, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import type { KindIndex } from '../records/cached-record.ts'
import type { ViewScope } from './view.ts'

/**
 * The places in the tree where a caller may see records. They are these groups with everything below them, and root-level records if `roots`. No group is
 * inside another.
 */
export interface Visibility {
  readonly everywhere: boolean
  readonly groups: readonly Uid[]
  readonly roots: boolean
}

/** The `uidp` filter of a list. All fields that are set must match (docs/spec/conventions.md#list-filters). An empty text counts as not set. */
export interface UidFilter {
  readonly descendantsOf: string
  readonly childrenOf: string
  readonly ancestorsOf: string
  readonly inRoot: boolean
  readonly ids: readonly string[]
}

/** Part of the records of a list: those in one place of the tree. A view can hold them. */
export type ListPart = Pick<ViewScope, 'place' | 'uid' | 'uids'>

/** Up to this number of groups, a list reads each group separately. */
const fewGroups = 16
/** Maximum number of places that a list reads separately. Above it, the list reads views that hold several places. */
const maxPlaces = 256

/** True if the record `uid` is in a visible place. */
export function isVisible(visibility: Visibility, { seenAtUid }: Pick<KindIndex, 'seenAtUid'>, uid: string): boolean {
  if (visibility.everywhere) return true
  if (visibility.roots && !uid.includes('/')) return true
  const covers = seenAtUid === true ? isWithin : isBelow
  const { groups } = visibility
  if (groups.length <= fewGroups) return groups.some((group) => covers(uid, group))
  return lineage(trustedUid(uid)).some((place) => (seenAtUid === true || place !== uid) && hasGroup(groups, place))
}

/** True if the filter names the record `uid` of a kind that is seen below groups, for example of a repo (docs/spec/conventions.md#list-filters). */
export function isNamed(uidp: UidFilter, uid: string): boolean {
  const base = basePlace(uidp)
  const parent = parentOf(trustedUid(uid))
  if (base === undefined || (base.place === 'child' && parent !== base.uid) || (base.place === 'below' && !isBelow(uid, base.uid))) return false
  if (uidp.ancestorsOf !== '' && !isBelow(uidp.ancestorsOf, parent)) return false
  return uidp.ids.length === 0 || uidp.ids.includes(uid)
}

/** True if the groups, which are in uid order, contain `uid`. */
function hasGroup(groups: readonly string[], uid: string): boolean {
  let low = 0
  let high = groups.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((groups[middle] ?? '') < uid) low = middle + 1
    else high = middle
  }
  return groups[low] === uid
}

/** Returns the place that the uidp filter names, before any restriction to visible groups. Undefined if no record can match. */
export function basePlace(uidp: UidFilter): ListPart | undefined {
  const { descendantsOf, inRoot } = uidp
  const child = inRoot ? rootParent : uidp.childrenOf
  if (inRoot && uidp.childrenOf !== '' && uidp.childrenOf !== rootParent) return undefined
  if (child === '') return descendantsOf === '' ? { place: 'all', uid: '' } : { place: 'below', uid: descendantsOf }
  if (descendantsOf !== '' && !isWithin(child, descendantsOf)) return undefined
  return { place: 'child', uid: child }
}

/** Returns the part of the place `base` that lies in one visible group; undefined if they do not overlap. */
function placeInGroup(base: ListPart, { seenAtUid }: KindIndex, group: Uid): ListPart | undefined {
  const whole: ListPart = { place: seenAtUid === true ? 'within' : 'below', uid: group }
  if (base.place === 'all') return whole
  if (isWithin(base.uid, group)) return base
  if (base.place === 'below') return isBelow(group, base.uid) ? whole : undefined
  // `base` holds the children of a place above the group. Of these, only the group itself can be visible.
  return seenAtUid === true && parentOf(group) === base.uid ? { place: 'self', uid: group } : undefined
}

/** Caches the places of lists for callers who see many groups. The key is the caller's list of groups, so an entry is valid while that stays the same object. */
const placesOfMany = new WeakMap<readonly Uid[], Map<string, readonly ListPart[]>>()
/** Maximum number of cached lists of places per caller. */
const maxRemembered = 32

/** Returns places that do not overlap and together hold all records that match the filter and are visible. */
export function partsOf(index: KindIndex, { uidp, visibility }: { readonly uidp: UidFilter; readonly visibility: Visibility }): readonly ListPart[] {
  const base = basePlace(uidp)
  if (base === undefined) return []
  if (visibility.everywhere) return [base]
  if (visibility.groups.length <= maxPlaces) return placesIn(base, index, visibility)
  const known = placesOfMany.get(visibility.groups) ?? new Map<string, readonly ListPart[]>()
  placesOfMany.set(visibility.groups, known)
  const key = JSON.stringify([index.seenAtUid, visibility.roots, base.place, base.uid])
  let places = known.get(key)
  if (places === undefined) {
    places = withSeveral(placesIn(base, index, visibility))
    if (known.size >= maxRemembered) known.clear()
    known.set(key, places)
  }
  return places
}

/** Merges places of the same sort into few places with several uids each. */
function withSeveral(places: readonly ListPart[]): readonly ListPart[] {
  if (places.length <= maxPlaces) return places
  return [...Map.groupBy(places, ({ place }) => place).values()].flatMap((alike): readonly ListPart[] => {
    const [first] = alike
    if (first === undefined || alike.length === 1 || first.place === 'child') return alike
    // The groups are in uid order.
    return [{ place: first.place, uid: first.uid, uids: alike.map(({ uid }) => uid) }]
  })
}

function placesIn(base: ListPart, index: KindIndex, visibility: Visibility): ListPart[] {
  const places = visibility.groups.map((group) => placeInGroup(base, index, group)).filter((place) => place !== undefined)
  if (visibility.roots && (base.place === 'all' || (base.place === 'child' && base.uid === rootParent))) {
    // If groups are visible themselves, a root group is already one of the places.
    if (index.seenAtUid !== true) places.push({ place: 'child', uid: rootParent })
  }
  return places
}
