import { create } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { matchPackage, readAdvisory, subjectOf } from '../../../src/contents/index.ts'
import type { Distribution } from '../../../src/contents/package.ts'
import { AdvisorySchema, ReviewState } from '../../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import {
  apkAt,
  falsePositive,
  manual,
  ownDocument,
  matchesOf,
  npmAt,
  npmRange,
  osvDocument,
  own,
  packageAt,
  ranged,
  vexDocument,
  wolfi,
  type Case,
} from '../advisories.ts'

const debian: Distribution = { id: 'debian', version: '12' }
const fixedIn = (version: string): object => ranged('ECOSYSTEM', { introduced: '0' }, { fixed: version })
const python = (name: string): object => osvDocument('PyPI', name, fixedIn('2.0'))
const opensslOf = (ecosystem: string, version: string): object => osvDocument(ecosystem, 'openssl', fixedIn(version))

/** A database of an APK repository about one package. */
const apkDatabase = (secfixes: object): object => ({
  apkurl: '{{urlprefix}}/{{pkg.name}}.apk',
  urlprefix: 'https://packages.wolfi.dev',
  reponame: 'os',
  packages: [{ pkg: { name: 'tool', secfixes } }],
})

/** Each row is a sentence: the package, what the advisories are, and its state. Undefined: they are not about the package. */
const rows: readonly (readonly [sentence: string, Case, state: string | undefined])[] = [
  [
    'Debian: a binary package is found by its source',
    { documents: [opensslOf('Debian:12', '3.0.11-1')], found: packageAt('pkg:deb/debian/libssl3@3.0.9-1', { origin: 'openssl' }), image: debian },
    'affected',
  ],
  [
    'Debian: the fix is a newer version',
    {
      documents: [opensslOf('Debian:12', '3.0.11-1~deb12u2')],
      found: packageAt('pkg:deb/debian/libssl3@3.0.11-1~deb12u1', { origin: 'openssl' }),
      image: debian,
    },
    'affected',
  ],
  [
    'Debian: a rebuild of the fixed version has the fix',
    { documents: [osvDocument('Debian:12', 'openssl', { versions: ['3.0.9-1'] })], found: packageAt('pkg:deb/debian/openssl@3.0.9-1%2Bb2'), image: debian },
    'affected',
  ],
  [
    'Debian: a binary package that has the name of another source is not found',
    { documents: [opensslOf('Debian:12', '9')], found: packageAt('pkg:deb/debian/openssl@3', { origin: 'other' }), image: debian },
    undefined,
  ],
  [
    'Debian: the version of the source counts',
    { documents: [opensslOf('Debian:12', '5')], found: packageAt('pkg:deb/debian/libx@9?upstream=openssl%404', { origin: 'openssl' }), image: debian },
    'affected',
  ],
  ['Debian: an epoch is newer', { documents: [opensslOf('Debian:12', '1:1')], found: packageAt('pkg:deb/debian/openssl@9'), image: debian }, 'affected'],
  [
    'Ubuntu: a release with LTS',
    { documents: [opensslOf('Ubuntu:22.04:LTS', '9')], found: packageAt('pkg:deb/ubuntu/openssl@3?distro=ubuntu-22.04') },
    'affected',
  ],
  [
    'Ubuntu: fixes of a subscription are for its packages',
    { documents: [opensslOf('Ubuntu:Pro:22.04:LTS', '9')], found: packageAt('pkg:deb/ubuntu/openssl@3?distro=ubuntu-22.04') },
    undefined,
  ],
  [
    'Alpine: a subpackage of its origin',
    {
      documents: [opensslOf('Alpine:v3.20', '3.3.1-r1')],
      found: packageAt('pkg:apk/alpine/libcrypto3@3.3.1-r0', { origin: 'openssl' }),
      image: { id: 'alpine', version: '3.20.2' },
    },
    'affected',
  ],
  [
    'Alpine: the fixed release',
    { documents: [opensslOf('Alpine:v3.20', '3.3.1-r1')], found: packageAt('pkg:apk/alpine/openssl@3.3.1-r1?distro=alpine-3.20.2') },
    'fixed',
  ],
  [
    'Alpine: another release is not meant',
    { documents: [opensslOf('Alpine:v3.19', '9-r0')], found: packageAt('pkg:apk/alpine/openssl@3.3.1-r1?distro=alpine-3.20.2') },
    undefined,
  ],
  [
    'Wolfi: a prerelease comes before the fix',
    { documents: [opensslOf('Wolfi', '3.3.1-r0')], found: packageAt('pkg:apk/wolfi/openssl@3.3.1_rc1-r4'), image: wolfi },
    'affected',
  ],
  ['Wolfi is not Chainguard', { documents: [opensslOf('Chainguard', '9')], found: packageAt('pkg:apk/wolfi/openssl@3.3.1-r4'), image: wolfi }, undefined],
  [
    'an own distribution has the ecosystem of its id',
    {
      documents: [ownDocument('tool', ['fixed', { 'fixed-version': '2-r0' }])],
      found: packageAt('pkg:apk/tool@1-r0'),
      image: { id: 'acme', version: '1' },
      ecosystem: 'acme',
    },
    'affected',
  ],
  [
    'advisories without a distribution are about unknown ones',
    { documents: [ownDocument('tool', ['fixed', { 'fixed-version': '2-r0' }])], found: packageAt('pkg:apk/tool@1-r0'), image: { id: 'acme', version: '1' } },
    'affected',
  ],
  [
    'advisories without a distribution are not about known ones',
    { documents: [ownDocument('tool', ['fixed', { 'fixed-version': '2-r0' }])], found: apkAt('1-r0'), image: wolfi },
    undefined,
  ],
  [
    'Red Hat: the epoch of the package URL counts',
    {
      documents: [opensslOf('Red Hat:enterprise_linux:9::baseos', '1:3.0.7-27.el9')],
      found: packageAt('pkg:rpm/redhat/openssl@3.0.7-27.el9?epoch=1&distro=rhel-9.4'),
    },
    'fixed',
  ],
  [
    'Red Hat: before the fix',
    {
      documents: [opensslOf('Red Hat:enterprise_linux:9::baseos', '1:3.0.7-27.el9')],
      found: packageAt('pkg:rpm/redhat/openssl@3.0.7-25.el9_3?epoch=1&distro=rhel-9.4'),
    },
    'affected',
  ],
  [
    'Rocky Linux: os-release names the release',
    { documents: [opensslOf('Rocky Linux:9', '9-1')], found: packageAt('pkg:rpm/openssl@3-1'), image: { id: 'rocky', version: '9.4' } },
    'affected',
  ],
  [
    'SUSE: a service pack',
    { documents: [opensslOf('SUSE:Linux Enterprise Server 15 SP5', '9-1')], found: packageAt('pkg:rpm/openssl@3-1'), image: { id: 'sles', version: '15.5' } },
    'affected',
  ],
  [
    'npm: a package of a scope',
    { documents: [osvDocument('npm', '@scope/left', ranged('SEMVER', { introduced: '0' }))], found: packageAt('pkg:npm/%40scope/left@1.0.0') },
    'affected',
  ],
  ['npm: a prerelease of the fix is before it', { documents: [npmRange], found: npmAt('1.2.0-rc.1') }, 'affected'],
  [
    'npm: build metadata is no newer version',
    { documents: [osvDocument('npm', 'left', ranged('SEMVER', { introduced: '0' }, { last_affected: '1.2.0' }))], found: npmAt('1.2.0+build') },
    'affected',
  ],
  [
    'npm: another build is not a listed version',
    { documents: [osvDocument('npm', 'left', { versions: ['1.2.0'] })], found: npmAt('1.2.0+remediated.1') },
    'not_affected',
  ],
  [
    'npm: a version at a limit is outside',
    { documents: [osvDocument('npm', 'left', ranged('SEMVER', { introduced: '0' }, { limit: '2.0.0' }))], found: npmAt('2.0.0') },
    'not_affected',
  ],
  [
    'npm: a vulnerability that came back',
    {
      documents: [osvDocument('npm', 'left', ranged('SEMVER', { introduced: '3.0.0' }, { fixed: '3.1.0' }, { introduced: '1.0.0' }, { fixed: '1.1.0' }))],
      found: npmAt('3.0.5'),
    },
    'affected',
  ],
  [
    'Go: a pseudo-version before the fix',
    {
      documents: [osvDocument('Go', 'example.com/Mod', ranged('SEMVER', { introduced: '0' }, { fixed: '0.3.8' }))],
      found: packageAt('pkg:golang/example.com/mod@v0.3.8-0.20260101000000-abcdef012345'),
    },
    'affected',
  ],
  [
    'Go: incompatible is the same version',
    {
      documents: [osvDocument('Go', 'example.com/mod', ranged('SEMVER', { introduced: '0' }, { fixed: '4.0.0+incompatible' }))],
      found: packageAt('pkg:golang/example.com/mod@v4.0.0%2Bincompatible'),
    },
    'fixed',
  ],
  [
    'Go: the standard library',
    {
      documents: [osvDocument('Go', 'stdlib', ranged('SEMVER', { introduced: '1.22.0-0' }, { fixed: '1.22.1' }))],
      found: packageAt('pkg:golang/stdlib@go1.22rc2'),
    },
    'affected',
  ],
  [
    'Go: a binary that was built without a version',
    { documents: [osvDocument('Go', 'example.com/mod', ranged('SEMVER', { introduced: '0' }))], found: packageAt('pkg:golang/example.com/mod@(devel)') },
    'under_investigation',
  ],
  [
    'Maven: group and artifact',
    { documents: [osvDocument('Maven', 'org.example:core', fixedIn('2.17.1'))], found: packageAt('pkg:maven/org.example/core@2.17.1-rc1') },
    'affected',
  ],
  [
    'Maven: the release',
    { documents: [osvDocument('Maven', 'org.example:core', fixedIn('2.17.1'))], found: packageAt('pkg:maven/org.example/core@2.17.1.Final') },
    'fixed',
  ],
  ['PyPI: names are normalised on both sides', { documents: [python('Some.Name')], found: packageAt('pkg:pypi/some_name@1.9') }, 'affected'],
  ['PyPI: a postrelease of the fix has it', { documents: [python('x')], found: packageAt('pkg:pypi/x@2.0.post1') }, 'fixed'],
  ['PyPI is not npm', { documents: [python('left')], found: npmAt('1.0.0') }, undefined],
  [
    'a package without ranges and versions: all are affected',
    { documents: [osvDocument('crates.io', 'left')], found: packageAt('pkg:cargo/left@1.0.0') },
    'affected',
  ],
  ['RubyGems: a prerelease', { documents: [osvDocument('RubyGems', 'left', fixedIn('7.0.0'))], found: packageAt('pkg:gem/left@7.0.0.rc1') }, 'affected'],
  [
    'NuGet: names without regard to case',
    { documents: [osvDocument('NuGet', 'Left.Right', fixedIn('7.0.0'))], found: packageAt('pkg:nuget/left.right@7.0.0') },
    'fixed',
  ],
  [
    'Packagist: a v means nothing',
    { documents: [osvDocument('Packagist', 'Vendor/left', fixedIn('v2.1'))], found: packageAt('pkg:composer/vendor/left@2.1.0') },
    'fixed',
  ],
  [
    'a range with a bound that is no version is not known',
    { documents: [osvDocument('npm', 'left', ranged('SEMVER', { introduced: 'x' }))], found: npmAt('1.0.0') },
    'under_investigation',
  ],
  [
    'a time before 1970 is one as well',
    { documents: [osvDocument('npm', 'left', {}, { published: undefined, modified: '0001-01-01T00:00:00Z' })], found: npmAt('1.0.0') },
    'affected',
  ],
  [
    'VEX takes a range away',
    {
      documents: [npmRange, vexDocument('pkg:npm/left@1.1.0', { status: 'not_affected', justification: 'inline_mitigations_already_exist' })],
      found: npmAt('1.1.0'),
    },
    'not_affected',
  ],
  [
    'VEX about another version does not',
    {
      documents: [npmRange, vexDocument('pkg:npm/left@1.0.0', { status: 'not_affected', justification: 'inline_mitigations_already_exist' })],
      found: npmAt('1.1.0'),
    },
    'affected',
  ],
  [
    'VEX confirms what no range has',
    { documents: [npmRange, vexDocument('pkg:npm/left', { status: 'affected', action_statement: 'wait' })], found: npmAt('0.1.0') },
    'affected',
  ],
  [
    'an investigation takes no range away',
    { documents: [npmRange, vexDocument('pkg:npm/left', { status: 'under_investigation' })], found: npmAt('1.1.0') },
    'affected',
  ],
  [
    'the newest determination of an advisory decides',
    { ...own(falsePositive, ['true-positive-determination', { note: '' }]), found: apkAt('1.0-r0') },
    'affected',
  ],
  [
    'a fix that is no version of APK fixes nothing',
    { documents: [apkDatabase({ '1.2_final-r0': ['CVE-2026-1'] })], found: apkAt('1.0-r0'), ecosystem: 'Wolfi' },
    'under_investigation',
  ],
  [
    'of several fixes, those that are versions count',
    { documents: [apkDatabase({ '1.2_final-r0': ['CVE-2026-1'], '1.1-r0': ['CVE-2026-1'] })], found: apkAt('1.0-r0'), ecosystem: 'Wolfi' },
    'affected',
  ],
  ['a later fix ends a false positive', { ...own(falsePositive, ['fixed', { 'fixed-version': '1.0-r3' }]), found: apkAt('1.0-r0') }, 'affected'],
]

describe('a package', () => {
  test.each(rows)('%s', (_, given, state) => {
    expect(matchesOf(given).map((match) => match.state)).toEqual(state === undefined ? [] : [state])
  })

  test('has one match for each vulnerability, with what all advisories say', () => {
    const severity = (score: string): object => ({ severity: [{ type: 'CVSS_V3', score }] })
    const first = osvDocument('PyPI', 'x', fixedIn('2.0'), { id: 'GHSA-1', aliases: ['CVE-2026-1', 'CVE-2026-2'], ...severity('CVSS:3.1/AV:N') })
    const second = osvDocument('PyPI', 'x', fixedIn('2.1'), { id: 'PYSEC-1', aliases: ['GHSA-1'], ...severity('CVSS:3.1/AV:L') })
    const third = osvDocument('PyPI', 'x', fixedIn('1.0'), { id: 'PYSEC-2' })
    const matches = [
      [first, second, third],
      [third, second, first],
    ].map((documents) => matchesOf({ documents, found: packageAt('pkg:pypi/x@1.5') }))
    expect(matches[0]?.map(({ id, aliases, fixedVersion, state, severities }) => [id, aliases, fixedVersion, state, severities.length])).toEqual([
      ['CVE-2026-1', ['GHSA-1', 'PYSEC-1'], '2.1', 'affected', 2],
      ['CVE-2026-2', ['GHSA-1', 'PYSEC-1'], '2.1', 'affected', 2],
      ['PYSEC-2', [], '1.0', 'fixed', 0],
    ])
    expect(matches[1]).toEqual(matches[0])
  })

  test('says why', () => {
    const [match] = matchesOf({ ...own(manual, falsePositive), found: apkAt('1.0-r0') })
    expect(match?.why).toEqual({
      rule: 'false positive',
      advisory: expect.stringMatching(/^a{40}\/[0-9a-f]{16}$/) as string,
      author: 'OWN',
      note: 'not built',
      justification: 4,
    })
  })
  test.each([
    [['1.2.x'], 'under_investigation'],
    [['1.2.x', '1.2.0'], 'affected'],
    [[], 'fixed'],
  ])('with a hand-made advisory that says fixed in %j is %s', (patchedVersions, state) => {
    const about = { name: 'left', type: 'npm' }
    const read = readAdvisory(
      create(AdvisorySchema, {
        uid: 'made',
        advisoryId: 'CVE-2026-1',
        artifactName: about.name,
        artifactType: about.type,
        componentName: about.name,
        componentType: about.type,
        events: [{ reviewState: ReviewState.APPROVED, type: { case: 'patched', value: { patchedVersions } } }],
      }),
    )
    expect(read && matchPackage(subjectOf(npmAt('1.1.0')), [read]).map((match) => match.state)).toEqual([state])
  })
})
