import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  allCapabilities,
  capabilities,
  capabilityByEnumNumber,
  capabilityByName,
  containsAll,
  decodeCapabilities,
  emptySet,
  encodeCapabilities,
  equals,
  fromEnumNumbers,
  has,
  intersect,
  isEmpty,
  membersOf,
  missing,
  namesOf,
  setOf,
  union,
  withoutOwn,
} from '../../src/base/capability.ts'
import { builtInRoles } from '../../src/base/roles.ts'

const names = fc.subarray(capabilities.map(({ name }) => name))
const ordered = (list: Iterable<string>): string[] => {
  const wanted = new Set(list)
  return capabilities.map(({ name }) => name).filter((name) => wanted.has(name))
}

describe('the capability table', () => {
  it('the capability table has no retired bit or number', () => {
    for (const { bit, number } of capabilities) {
      expect([0, 40, 41, 135, 136, 143]).not.toContain(bit)
      expect([1, 1601, 1602, 1873]).not.toContain(number)
    }
    expect(capabilityByEnumNumber(0)).toBeUndefined()
  })

  it('the capability table finds a capability by either of its names', () => {
    expect(capabilityByName('identity_providers.scim.manage')).toEqual({
      name: 'identity_providers.scim.manage',
      enumName: 'CAP_IAM_SCIM_MANAGE',
      number: 1305,
      bit: 191,
      internal: false,
      own: false,
    })
    expect(capabilityByName('CAP_IAM_SCIM_MANAGE')).toBe(capabilityByName('identity_providers.scim.manage'))
  })
})

describe('capability sets', () => {
  it('capability sets hold names', () => {
    fc.assert(
      fc.property(names, names, (left, right) => {
        const [a, b] = [setOf(left), setOf(right)]
        const [inLeft, inRight] = [new Set(left), new Set(right)]
        expect(namesOf(a)).toEqual(ordered(left))
        expect(namesOf(union(a, b))).toEqual(ordered([...left, ...right]))
        expect(namesOf(intersect(a, b))).toEqual(ordered(left.filter((name) => inRight.has(name))))
        expect(missing(a, b)).toEqual(ordered(right.filter((name) => !inLeft.has(name))))
        expect(containsAll(a, b)).toBe(right.every((name) => inLeft.has(name)))
        expect(isEmpty(a)).toBe(left.length === 0)
        expect(equals(a, b)).toBe(namesOf(a).join() === namesOf(b).join())
        for (const { name } of capabilities) expect(has(a, name)).toBe(inLeft.has(name))
        expect(equals(fromEnumNumbers(membersOf(a).map(({ number }) => number)), a)).toBe(true)
      }),
    )
  })

  it('capability sets of public clients lack the additions of Taproot, which allCapabilities has', () => {
    expect(namesOf(intersect(allCapabilities, setOf(['audit.list'])))).toEqual(['audit.list'])
    expect(missing(withoutOwn(allCapabilities), allCapabilities)).toEqual(capabilities.filter(({ own }) => own).map(({ name }) => name))
  })

  it('capability sets in allCapabilities have all but the internal ones', () => {
    expect(missing(allCapabilities, setOf(capabilities.map(({ name }) => name)))).toEqual(['internal'])
    expect(isEmpty(emptySet)).toBe(true)
  })

  it('capability sets grant nothing for unknown numbers, and never meet a required unknown name', () => {
    expect(isEmpty(fromEnumNumbers([0, 1, 1873, 99_999, -1]))).toBe(true)
    expect(has(allCapabilities, 'vuln.list')).toBe(false)
    expect(() => setOf(['groups.list', 'vuln.list'])).toThrow(RangeError)
  })
})

describe('the cap claim of a token', () => {
  it.each([
    [['advisories.list'], 'AAAAAAAAAFwAAAAAAAAAAAAAAAAIAAAA'],
    [['groups.list'], 'AAAAAAAAADIAAAAAAAAACA=='],
    [[], 'AAAAAAAAADIAAAAAAAAAAA=='],
  ])('the cap claim of a token for %j is %s', (members, claim) => {
    expect(encodeCapabilities(setOf(members))).toBe(claim)
    const decoded = decodeCapabilities(claim)
    expect(decoded && namesOf(decoded)).toEqual(members)
    expect(decodeCapabilities(claim.replace(/=+$/, ''))).toEqual(decoded)
  })

  it('the cap claim of a token is the same after encoding and decoding', () => {
    fc.assert(fc.property(names, (members) => equals(decodeCapabilities(encodeCapabilities(setOf(members))) ?? emptySet, setOf(members))))
  })

  it('the cap claim of a token is readable in its older form, where unknown numbers grant nothing', () => {
    expect(decodeCapabilities([103, 99_999])).toEqual(setOf(['groups.list']))
  })

  it('the cap claim of a token ignores bits of later versions', () => {
    const bytes = Buffer.alloc(8 + 8 * 4, 0xff)
    bytes.writeBigUInt64BE(256n)
    expect(decodeCapabilities(bytes.toString('base64url'))).toEqual(setOf(capabilities.map(({ name }) => name)))
  })

  it.each([
    [''],
    ['AAAA'],
    ['not base64!'],
    ['AAAAAAAAAFwAAAAAAAAAAA=='],
    ['//////////8AAAAAAAAACA=='],
    ['_________________w=='],
    [12],
    [null],
    [{}],
    [['groups.list']],
  ])('the cap claim of a token is refused if it is %j', (claim) => {
    expect(decodeCapabilities(claim)).toBeUndefined()
  })
})

describe('built-in roles', () => {
  it('built-in roles have fixed uids and descriptions', () => {
    expect(builtInRoles.find(({ name }) => name === 'viewer')).toMatchObject({
      uid: '8712b6fe35a511c5cbad2de513fa86733fe78365',
      description: 'Viewer Role (built-in)',
    })
    expect(builtInRoles.find(({ name }) => name === 'registry.pull_token_creator')?.description).toBe('Registry Pull Token Creator Role (built-in)')
  })

  it('built-in roles give an owner everything, and never grant an internal capability', () => {
    expect(equals(builtInRoles.find(({ name }) => name === 'owner')?.capabilities ?? emptySet, allCapabilities)).toBe(true)
    for (const role of builtInRoles) expect(has(role.capabilities, 'internal'), role.name).toBe(false)
  })
})
