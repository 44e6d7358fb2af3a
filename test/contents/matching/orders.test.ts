import fc from 'fast-check'
import { SemVer } from 'semver'
import { describe, expect, test } from 'vitest'
import { apkOrder } from '../../../src/base/versions/apk-version.ts'
import { debianOrder } from '../../../src/base/versions/debian-version.ts'
import { composerOrder, gemOrder, numbersOrder } from '../../../src/base/versions/other-versions.ts'
import { rpmOrder } from '../../../src/base/versions/rpm-version.ts'
import { goOrder, nugetOrder, semanticOrder } from '../../../src/base/versions/semantic-version.ts'
import { slowness } from '../../budgets.ts'
import { leastCpuMs } from '../../support/cpu-time.ts'
import type { VersionOrder } from '../../../src/base/versions/version-order.ts'

const orders = { apkOrder, debianOrder, rpmOrder, semanticOrder, goOrder, nugetOrder, gemOrder, composerOrder, numbersOrder }

/** Lists in ascending order. Texts that are joined by a space are equal, and those of the last column are no versions. */
const ascending: readonly (readonly [what: string, order: VersionOrder, versions: string, unreadable: string])[] = [
  [
    'apk: suffixes',
    apkOrder,
    '1.0_alpha|1.0_alpha1|1.0_beta2|1.0_pre1|1.0_rc1-r5|1.0|1.0-r0|1.0-r1|1.0-r10|1.0_cvs1|1.0_git20260101|1.0_p1|1.0a|1.0b|1.0.1',
    '1.0_other|a|1..2|1.0-r',
  ],
  ['apk: zeros after a dot', apkOrder, '1.0|1.01|1.05|1.1|1.5|1.10', '1.'],
  ['apk: commits', apkOrder, '1.0_git1|1.0_git1~0a|1.0_git1~0b', '1.0~'],
  [
    'dpkg: tildes and letters',
    debianOrder,
    '1.0~~|1.0~rc1|1.0 1.0-0 0:1.0|1.0-1~bpo1|1.0-1|1.0-1+b1|1.0-1+deb12u2|1.0-1+deb12u10|1.0a|1.0+dfsg-1|1.0.1|1:0.1',
    'a b|1.0-|-1|x:1',
  ],
  ['rpm: tildes, carets, letters and numbers', rpmOrder, '1.0~rc1-1|1.0-1|1.0^git1-1|1.0.a-1|1.0.1-1|1.0.10-1.el9|1.0.10-1.el10|1:0.1-1', 'a b|1-2-3|'],
  ['rpm: separators mean nothing', rpmOrder, '1.0-1 1_0-1 1+0-1 01.00-1|1.1-1', '1.0 '],
  [
    'semver: prereleases',
    semanticOrder,
    '1.0.0-0|1.0.0-2|1.0.0-11|1.0.0-alpha|1.0.0-alpha.1|1.0.0-beta 1.0.0beta|1.0.0 v1.0.0 1 1.0.0+build|1.0.1-0',
    'latest|1.0.0-a..b|',
  ],
  [
    'Go: pseudo-versions',
    goOrder,
    'v0.0.0-20260101000000-abcdefabcdef|v0.0.0-20260102000000-000000000000|v1.2.3-0.20260101000000-abcdefabcdef|v1.2.3|v2.0.0+incompatible v2.0.0',
    '(devel)',
  ],
  ['Go: the toolchain', goOrder, '1.22.0-0|go1.22beta1|go1.22rc1 1.22.0-rc.1|go1.22rc10|go1.22 go1.22.0 1.22.0|go1.22.1 go1.22.1-custom|go1.100', 'gopher'],
  ['NuGet: case and four numbers', nugetOrder, '1.0.0-alpha|1.0.0-BETA 1.0.0-beta+x|1.0 1.0.0.0|1.0.0.1', 'x'],
  ['RubyGems: words come first', gemOrder, '1.0.a|1.0.a1 1.0.a.1|1.0.b1|1.0-1|1.0.rc2|1 1.0 1.0.0|1.0.1', '1.0.|a'],
  [
    'Composer: stabilities',
    composerOrder,
    '1.0-dev|1.0-alpha1 1.0a1|1.0-alpha2|1.0-beta1-dev|1.0-beta1 1.0b1|1.0-RC1|1.0 v1.0.0 1.0-stable|1.0-p1 1.0pl1|1.0.1',
    'dev-main|1.x',
  ],
  ['numbers', numbersOrder, '1|1.0 1-0|1.0.1|1.2|1.10', '1.a|'],
]

test.each(ascending)('%s', (_, { compare, read }, versions, unreadable) => {
  const groups = versions.split('|').map((text) => text.split(' '))
  for (const [at, group] of groups.entries())
    for (const [other, others] of groups.entries())
      for (const a of group) for (const b of others) expect(Math.sign(compare(a, b)), `${a} and ${b}`).toBe(Math.sign(at - other))
  for (const text of groups.flat()) expect(read(text), text).toBeDefined()
  for (const text of unreadable.split('|')) expect(read(text), `"${text}"`).toBeUndefined()
})

test('builds of one version are not the same', () => {
  expect(semanticOrder.read('1.0.0+a')?.isSameAs(semanticOrder.read('1.0.0+b') ?? expect.fail())).toBe(false)
  expect(semanticOrder.read('1.0.0')?.isSameAs(semanticOrder.read('v1.0') ?? expect.fail())).toBe(true)
  expect(() => semanticOrder.read('1')?.compareTo(apkOrder.read('1') ?? expect.fail())).toThrow(TypeError)
})

describe('any versions', () => {
  const part = fc.constantFrom('1', '0', '10', '2', '05', '.', '-', '+', '~', '^', '_', ':', 'a', 'rc', 'alpha', 'p', '-r', 'dev', 'git', 'pre', 'v', 'x', 'Z')
  const numbers = fc.array(fc.constantFrom('0', '1', '2', '10', '01', '00'), { minLength: 1, maxLength: 4 }).map((parts) => parts.join('.'))
  const texts = fc.tuple(numbers, fc.array(part, { maxLength: 5 })).map(([start, parts]) => start + parts.join(''))

  test.each(Object.entries(orders))('of %s have a total order', (_, { compare }) => {
    fc.assert(
      fc.property(texts, texts, texts, (a, b, c) => {
        expect(Math.sign(compare(a, b))).toBe(-Math.sign(compare(b, a)) + 0)
        expect(compare(a, a)).toBe(0)
        if (compare(a, b) <= 0 && compare(b, c) <= 0) expect(compare(a, c)).toBeLessThanOrEqual(0)
      }),
      { numRuns: 800 },
    )
  })

  test('are compared as the library of npm does', () => {
    const identifiers = fc
      .array(fc.constantFrom('alpha', 'beta', 'rc', '0', '1', '11', 'x-y', 'a1'), { minLength: 1, maxLength: 3 })
      .map((parts) => parts.join('.'))
    const version = fc
      .tuple(fc.tuple(fc.nat(12), fc.nat(12), fc.nat(12)), fc.option(identifiers), fc.option(identifiers))
      .map(([core, prerelease, build]) => `${core.join('.')}${prerelease === null ? '' : `-${prerelease}`}${build === null ? '' : `+${build}`}`)
    fc.assert(
      fc.property(version, version, (a, b) => {
        expect(Math.sign(semanticOrder.compare(a, b))).toBe(new SemVer(a).compare(b))
      }),
      { numRuns: 2_000 },
    )
  })

  test.each(Object.entries(orders))('of %s are read in time that grows with their length', (_, { read }) => {
    const limitMs = 300 * slowness()
    for (const text of ['1.', '1-', '1a', '1_p', '0', '~', '1.0-1+', '-r', 'a.', '1:']) {
      const [unreadable, readable] = [`1${text.repeat(50_000)}!`, text.repeat(50_000)]
      // In quadratic time it would take minutes.
      expect(
        leastCpuMs(() => [read(unreadable), read(readable)]),
        text,
      ).toBeLessThan(limitMs)
    }
  })
})
