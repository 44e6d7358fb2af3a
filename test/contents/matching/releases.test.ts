import { describe, expect, test } from 'vitest'
import { matchPackage, subjectOf, type ReadAdvisory } from '../../../src/contents/index.ts'
import { advisoriesOf, falsePositive, matchesOf, osvDocument, ownDocument, packageAt, ranged, vexDocument, type Case } from '../advisories.ts'

const opensslOf = (ecosystem: string, version: string): object =>
  osvDocument(ecosystem, 'openssl', ranged('ECOSYSTEM', { introduced: '0' }, { fixed: version }))

/** Each row is a sentence: the package, what the advisories are, and its state. Undefined: they are not about the package. */
const rows: readonly (readonly [sentence: string, Case, state: string | undefined])[] = [
  [
    'Debian: another release is not meant',
    { documents: [opensslOf('Debian:11', '9')], found: packageAt('pkg:deb/debian/openssl@3'), image: { id: 'debian', version: '12' } },
    undefined,
  ],
  [
    'Debian: the package URL names the release',
    { documents: [opensslOf('Debian:11', '9')], found: packageAt('pkg:deb/debian/openssl@3?distro=debian-11') },
    'affected',
  ],
  [
    'Debian: the package URL has a codename',
    { documents: [opensslOf('Debian:12', '9')], found: packageAt('pkg:deb/debian/openssl@3?distro=bookworm') },
    'affected',
  ],
  [
    'Debian: without a release, a fix that one of them does not have counts',
    { documents: [opensslOf('Debian:11', '1.1.1'), opensslOf('Debian:12', '3.0.11-1~deb12u2')], found: packageAt('pkg:deb/debian/openssl@3.0.11-1~deb12u1') },
    'under_investigation',
  ],
  [
    'Debian: without a release, the fixes of all releases are enough',
    { documents: [opensslOf('Debian:11', '1.1.1'), opensslOf('Debian:12', '3.0.11')], found: packageAt('pkg:deb/debian/openssl@3.0.12') },
    'fixed',
  ],
  [
    'Debian: sid has no release in os-release',
    { documents: [opensslOf('Debian:12', '3.0.11-1')], found: packageAt('pkg:deb/debian/openssl@3.0.9-1'), image: { id: 'debian', version: '' } },
    'under_investigation',
  ],
  [
    'Debian: the release of another distribution says nothing',
    { documents: [opensslOf('Debian:12', '9')], found: packageAt('pkg:deb/debian/openssl@3'), image: { id: 'ubuntu', version: '22.04' } },
    'under_investigation',
  ],
  [
    'Debian: without a release, a statement about all of them decides',
    {
      documents: [opensslOf('Debian:12', '9'), vexDocument('pkg:deb/debian/openssl', { status: 'not_affected', impact_statement: 'no' })],
      found: packageAt('pkg:deb/debian/openssl@3'),
    },
    'not_affected',
  ],
  [
    'Ubuntu: without a release, fixes of a subscription are for its packages',
    { documents: [opensslOf('Ubuntu:Pro:22.04:LTS', '9')], found: packageAt('pkg:deb/ubuntu/openssl@3') },
    undefined,
  ],
  [
    'Red Hat: without a release, other products are not meant',
    { documents: [opensslOf('Red Hat:openshift:4.5::el8', '9-1')], found: packageAt('pkg:rpm/redhat/openssl@3-1') },
    undefined,
  ],
  [
    'SUSE: without a release, each product may be meant',
    { documents: [opensslOf('SUSE:Linux Enterprise Server 15 SP5', '9-1')], found: packageAt('pkg:rpm/suse/openssl@3-1') },
    'under_investigation',
  ],
  [
    'Tumbleweed has one release',
    { documents: [opensslOf('openSUSE:Tumbleweed', '9-1')], found: packageAt('pkg:rpm/openssl@3-1'), image: { id: 'opensuse-tumbleweed', version: '' } },
    'affected',
  ],
]

// docs/spec/registry.md#vulnerabilities-of-images
describe('a package of a distribution', () => {
  test.each(rows)('%s', (_, given, state) => {
    expect(matchesOf(given).map((match) => match.state)).toEqual(state === undefined ? [] : [state])
  })

  test('of a release that is not known says so, and no determination about one release ends what another has', () => {
    const events = (ecosystem: string, event: readonly [string, object]): readonly ReadAdvisory[] => advisoriesOf([ownDocument('tool', event)], ecosystem)
    const fix = events('Alpine:v3.19', ['fixed', { 'fixed-version': '2-r0', note: 'see there' }])
    for (const other of [falsePositive, ['fixed', { 'fixed-version': '1-r0' }]] as const) {
      const [match, ...more] = matchPackage(subjectOf(packageAt('pkg:apk/alpine/tool@1-r0')), [...events('Alpine:v3.20', other), ...fix])
      expect(more).toEqual([])
      expect(match).toMatchObject({ state: 'under_investigation', fixedVersion: '' })
      expect(match?.why.note).toMatch(/^The release of the distribution is not known. This is about v3.19./)
    }
  })
})
