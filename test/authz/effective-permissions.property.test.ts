import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  capabilitiesAt,
  decide,
  everywhere,
  holdsAnywhere,
  mergeGrants,
  restrict,
  visibilityOf,
  type Grant,
  type EffectivePermissions,
} from '../../src/authz/effective-permissions.ts'
import { containsAll, emptySet, namesOf, setOf, union, type CapabilitySet } from '../../src/base/capability.ts'
import { isWithin, trustedUid, type Uid } from '../../src/base/uid.ts'
import type { Visibility } from '../../src/cache/lists/places.ts'

const names = ['groups.list', 'repo.list', 'roles.list']
const sets = fc.subarray(names).map((some) => setOf(some))
/** Groups of small trees, so that ancestors and duplicates occur. */
const groups = fc
  .tuple(fc.constantFrom('a', 'b'), fc.array(fc.constantFrom('0', '1'), { maxLength: 3 }))
  .map(([root, path]) => trustedUid([root.repeat(40), ...path.map((digit) => digit.repeat(16))].join('/')))
const grants = fc.array(
  fc.record({ group: fc.oneof({ arbitrary: groups, weight: 19 }, { arbitrary: fc.constant<typeof everywhere>(everywhere), weight: 1 }), capabilities: sets }),
  { maxLength: 40 },
)
const reaches: fc.Arbitrary<EffectivePermissions> = grants.map((some) => ({ operator: false, grants: some }))

/** Compares every grant with every other. */
function naiveVisibility(permissions: EffectivePermissions, needed: CapabilitySet): Visibility {
  const open = permissions.grants.map(({ group }) => group).filter((group) => containsAll(capabilitiesAt(permissions, group), needed))
  if (open.includes(everywhere)) return { everywhere: true, groups: [], roots: true }
  const topmost = open.filter((group) => !open.some((other) => other !== group && isWithin(group, other)))
  return { everywhere: false, groups: ([...new Set(topmost)] as Uid[]).sort(), roots: false } // a cast: `everywhere` is not one of them
}

/** Compares every grant with every scope. */
function naivePlaced(all: readonly Grant[], scopes: readonly Uid[]): Grant[] {
  return scopes.map((group) => {
    const above = scopes.filter((other) => other !== group && isWithin(group, other))
    const counting = all.filter((grant) => !above.some((other) => grant.group === everywhere || isWithin(other, grant.group)))
    return { group, capabilities: capabilitiesAt({ operator: false, grants: counting }, group) }
  })
}

const plain = (some: readonly Grant[]): unknown[] => some.map(({ group, capabilities }) => [group, namesOf(capabilities)]).sort()

describe('effective permissions over many groups', () => {
  test('effective permissions over many groups equal those of comparing every grant with every group', () => {
    fc.assert(
      fc.property(reaches, sets, groups, (permissions, needed, place) => {
        expect(visibilityOf(permissions, needed)).toEqual(naiveVisibility(permissions, needed))
        expect(holdsAnywhere(permissions, needed)).toBe(permissions.grants.some(({ group }) => containsAll(capabilitiesAt(permissions, group), needed)))
        const covering = permissions.grants.filter(({ group }) => group === everywhere || isWithin(place, group))
        expect(namesOf(capabilitiesAt(permissions, place))).toEqual(namesOf(covering.reduce((held, grant) => union(held, grant.capabilities), emptySet)))
        expect(decide(permissions, place, emptySet).kind).toBe(covering.length === 0 ? 'hidden' : 'allowed')
      }),
      { numRuns: 3_000 },
    )
  })

  test('effective permissions restricted to some groups are those granted there and above, up to the next of these groups', () => {
    fc.assert(
      fc.property(reaches, fc.uniqueArray(groups, { maxLength: 6 }), (permissions, scopes) => {
        expect(plain(restrict(permissions, { scopes }).grants)).toEqual(plain(mergeGrants(naivePlaced(mergeGrants(permissions.grants), scopes))))
      }),
      { numRuns: 3_000 },
    )
  })

  test('effective permissions over many groups are found without comparing every grant with every group', () => {
    const count = 2_000
    let looks = 0
    const uids = Array.from({ length: count }, (_, at) => trustedUid(`${'a'.repeat(40)}/${((at * 7919) % count).toString(16).padStart(16, '0')}`))
    const counted = uids.map((uid) => ({
      capabilities: setOf(['groups.list']),
      get group() {
        looks += 1
        return uid
      },
    }))
    const permissions: EffectivePermissions = { operator: false, grants: counted }
    expect(visibilityOf(permissions, setOf(['groups.list'])).groups).toEqual([...uids].sort())
    expect(holdsAnywhere(permissions, setOf(['groups.list', 'repo.list']))).toBe(false)
    for (const uid of uids) expect(capabilitiesAt(permissions, uid)).not.toBe(emptySet)
    expect(restrict(permissions, { scopes: uids.slice(0, 50) }).grants).toHaveLength(50)
    expect(looks).toBeLessThan(count * 200)
  })
})
