import { compare as comparePep440, valid } from '@renovatebot/pep440'
import fc from 'fast-check'
import { SemVer } from 'semver'
import { describe, expect, test } from 'vitest'
import { cudaVersionOf, cudaVersionsIn, isRemediated } from '../../../src/catalogue/libraries/artifact-facts.ts'
import { versionOrders, type KnownEcosystem } from '../../../src/catalogue/libraries/version-orders.ts'
import { Ecosystem } from '../../../src/gen/taproot/libraries/v2/artifacts_pb.ts'

/** Lists in ascending order. Texts that are joined by a space are equal. */
const ascending: readonly (readonly [what: string, ecosystem: KnownEcosystem, versions: readonly string[]])[] = [
  [
    'PEP 440: releases with their parts',
    Ecosystem.PYTHON,
    [
      '1.0.dev456',
      '1.0a1',
      '1.0a2.dev456',
      '1.0a12.dev456',
      '1.0a12',
      '1.0b1.dev456',
      '1.0b2',
      '1.0b2.post345.dev456',
      '1.0b2.post345',
      '1.0rc1.dev456',
    ].concat(['1.0rc1', '1.0 1.0.0', '1.0+abc.5', '1.0+abc.7', '1.0+5', '1.0.post456.dev34', '1.0.post456', '1.0.15', '1.1.dev1']),
  ],
  [
    'PEP 440: spellings, and epochs',
    Ecosystem.PYTHON,
    ['odd', '1.0a1 1.0-alpha1 1.0.ALPHA.1', '1.0c1 1.0rc1 1.0-preview_1', '1.0-1 1.0.post1', '2013.10', '1!1.0'],
  ],
  [
    'PEP 440: local labels',
    Ecosystem.PYTHON,
    ['2.1.0', '2.1.0+cpu', '2.1.0+cu118', '2.1.0+cu121', '2.1.0+remediated', '2.1.0+remediated.1', '2.1.0+remediated.10'],
  ],
  [
    'semantic versions',
    Ecosystem.NPM,
    ['1.0', '1.0.0-0', '1.0.0-alpha', '1.0.0-alpha.1', '1.0.0-alpha.beta', '1.0.0-beta', '1.0.0-beta.2', '1.0.0-beta.11', '1.0.0-rc.1', '1.0.0'],
  ],
  ['semantic versions: build metadata', Ecosystem.NPM, ['9.9.9', '10.0.0', '10.0.0+build', '10.0.0+remediated.1', '10.0.0+remediated.2', '10.0.1-0']],
  // The examples of https://maven.apache.org/pom.html#version-order-specification.
  ['Maven: numbers', Ecosystem.JAVA, ['1 1.0 1-0 1.ga 1-ga 1.final 1-release 01', '1.1', '1.2', '1.10', '1.11.0', '2', '10', '99999999999999999999']],
  [
    'Maven: qualifiers',
    Ecosystem.JAVA,
    ['1-alpha', '1-a1 1-alpha-1', '1-beta', '1-milestone', '1-m3', '1-rc 1-cr', '1-snapshot', '1 1-final', '1-sp', '1-sp-1', '1-x', '1-y'],
  ],
  ['Maven: separators', Ecosystem.JAVA, ['1-snapshot', '1', '1-sp', '1.foo 1-foo', '1-foo2', '1-foo10', '1-1', '1.1']],
  ['Maven: what is at the end', Ecosystem.JAVA, ['1-sp-1', '1-ga-1 1-1']],
  ['Maven: prereleases of a later release', Ecosystem.JAVA, ['2.0.0-alpha-1', '2.0.0-alpha-2', '2.0.0-beta1', '2.0.0-rc1', '2.0.0-SNAPSHOT', '2.0.0', '2.0.1']],
  ['Maven: letters after numbers', Ecosystem.JAVA, ['31.0-android', '31.0-jre', '31.1-android', '31.1-jre']],
]

test.each(ascending)('%s', (_, ecosystem, versions) => {
  const { compare, ranked } = versionOrders[ecosystem]
  const groups = versions.map((text) => text.split(' '))
  for (const [at, group] of groups.entries())
    for (const [other, others] of groups.entries())
      for (const a of group) for (const b of others) expect(Math.sign(compare(a, b)), `${a} and ${b}`).toBe(Math.sign(at - other))
  const expected = new Map(groups.flatMap((group, at) => group.map((version) => [version, at] as const)))
  const found = ranked(groups.flat().reverse())
  expect(found.map(({ version }) => expected.get(version))).toEqual(groups.flatMap((group, at) => group.map(() => at)))
})

describe('any versions', () => {
  const part = fc.constantFrom('1', '0', '10', '2', '.', '-', '+', 'a', 'rc', 'post', 'dev', 'alpha', 'sp', 'snapshot', 'final', '_', 'x', '!', 'v', '١')
  const texts = fc.array(part, { minLength: 1, maxLength: 7 }).map((parts) => parts.join(''))

  test.each(Object.keys(versionOrders).map(Number))('of ecosystem %i have a total order', (number) => {
    const { compare, ranked } = versionOrders[number as KnownEcosystem] // a key of the table
    fc.assert(
      fc.property(texts, texts, texts, (a, b, c) => {
        expect(Math.sign(compare(a, b))).toBe(-Math.sign(compare(b, a)) + 0)
        if (compare(a, b) <= 0 && compare(b, c) <= 0) expect(compare(a, c)).toBeLessThanOrEqual(0)
        const [first, second] = ranked([a, b])
        expect(Math.sign((first?.rank ?? 0) - (second?.rank ?? 0))).toBe(Math.sign(compare(first?.version ?? '', second?.version ?? '')))
      }),
      { numRuns: 2_000 },
    )
  })

  test('are compared as the library of PEP 440 does', () => {
    const digits = fc.integer({ min: 0, max: 20 }).map(String)
    const optional = (text: fc.Arbitrary<string>): fc.Arbitrary<string> => fc.oneof(fc.constant(''), text)
    const version = fc
      .tuple(
        optional(digits.map((epoch) => `${epoch}!`)),
        fc.array(digits, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('.')),
        optional(fc.tuple(fc.constantFrom('a', 'b', 'rc'), digits).map((parts) => parts.join(''))),
        optional(digits.map((post) => `.post${post}`)),
        optional(digits.map((dev) => `.dev${dev}`)),
        optional(fc.array(fc.oneof(digits, fc.constantFrom('abc', 'cu')), { minLength: 1, maxLength: 3 }).map((parts) => `+${parts.join('.')}`)),
      )
      .map((parts) => parts.join(''))
    fc.assert(
      fc.property(version, version, (a, b) => {
        expect([valid(a), valid(b)]).toEqual([a, b])
        expect(Math.sign(versionOrders[Ecosystem.PYTHON].compare(a, b))).toBe(Math.sign(comparePep440(a, b)))
      }),
      { numRuns: 2_000 },
    )
  })

  test('a text that is no version is older than any version', () => {
    expect(versionOrders[Ecosystem.NPM].compare('latest', '0.0.0-0')).toBeLessThan(0)
    expect(() => new SemVer('latest')).toThrow()
    expect(versionOrders[Ecosystem.PYTHON].ranked(['b', '1', 'a']).map(({ rank }) => rank)).toEqual([0, 0, 1])
  })
})

test.each([
  ['12.1', '12.1'],
  ['12.1.105', '12.1'],
  ['cu121', '12.1'],
  ['CUDA-11.8', '11.8'],
  ['118', '11.8'],
  ['cu92', '9.2'],
  ['12', '12'],
  ['cu12', '12'],
  ['none', 'none'],
  ['', ''],
])('the CUDA version %j is %j', (text, expected) => {
  expect(cudaVersionOf(text)).toBe(expected)
})

test.each([
  ['2.1.0+cu121', ['12.1']],
  ['2.1.0+cu118.with.pypi', ['11.8']],
  ['2.1.0+cpu', []],
  ['cu121', []],
])('the build label of %j names the CUDA versions %j', (version, expected) => {
  expect(cudaVersionsIn(version)).toEqual(expected)
})

test.each([
  ['1.2.3+remediated', true],
  ['1.2.3+remediated.1', true],
  ['1.2.3-remediated-1', true],
  ['1.2.3.remediated1', true],
  ['1.2.3-REMEDIATED', true],
  ['1.2.3+unremediated', false],
  ['1.2.3+remediatedly', false],
  ['remediated', false],
])('%j is remediated: %j', (version, expected) => {
  expect(isRemediated(version)).toBe(expected)
})
