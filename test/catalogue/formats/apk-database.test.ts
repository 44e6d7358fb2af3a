import { expect, test } from 'vitest'
import { fileOf, importPaths } from '../documents.ts'
import { advisoriesOf, eventsOf, pairOf } from './rows.ts'
import { samples } from './samples.ts'

// docs/spec/advisories.md#advisories-of-apk-repositories
test('one advisory for each package and vulnerability', () => {
  const advisories = advisoriesOf(samples.apkDatabase)
  expect(advisories.map((advisory) => [pairOf(advisory), advisory.aliases, eventsOf(advisory)])).toEqual([
    ['CVE-2026-1004: nginx (apk, ) / nginx (apk, https://packages.example.com/v3/main)', [], ['no time: falsePositiveDetermination {}']],
    [
      'CVE-2026-1001: nginx (apk, ) / nginx (apk, https://packages.example.com/v3/main)',
      ['GHSA-aaaa-bbbb-cccc'],
      ['no time: fixed {"fixedVersion":"1.27.1-r0"}', 'no time: fixed {"fixedVersion":"1.27.2-r1"}'],
    ],
    ['CVE-2026-1002: nginx (apk, ) / nginx (apk, https://packages.example.com/v3/main)', [], ['no time: fixed {"fixedVersion":"1.27.1-r0"}']],
  ])
})

test('two repositories with the same package have advisories of their own', () => {
  const uids = [samples.apkDatabase, { ...samples.apkDatabase, reponame: 'edge' }].flatMap((document) =>
    advisoriesOf(document).flatMap(({ events }) => events.map(({ uid }) => uid)),
  )
  expect(new Set(uids).size).toBe(uids.length)
})

test('a database of 100,000 vulnerabilities', async () => {
  const packages = Array.from({ length: 1_000 }, (_, at) => ({
    pkg: { name: `package-${String(at)}`, secfixes: { '1.0-r0': Array.from({ length: 100 }, (__, number) => `CVE-2026-${String(number)}`) } },
  }))
  const { counts, refusals } = await importPaths([await fileOf('security.json', JSON.stringify({ ...samples.apkDatabase, packages }))])
  expect([counts.added, refusals]).toEqual([100_000, []])
})

test.each([
  ['no repository', { urlprefix: '', reponame: undefined, distroversion: undefined }, 'urlprefix is missing or no text'],
  ['neither prefix nor name', { urlprefix: undefined, reponame: undefined, distroversion: undefined }, 'they say which repository this is'],
  ['a package that is a text', { packages: [{ pkg: 'nginx' }] }, 'packages.pkg is no object'],
  ['ids that are no list', { packages: [{ pkg: { name: 'a', secfixes: { 1: 'CVE-1' } } }] }, 'secfixes of a is no list'],
  ['an item without an id', { packages: [{ pkg: { name: 'a', secfixes: { 1: [' '] } } }] }, 'secfixes of a has an item without an id'],
  [
    'a version with a control character',
    { packages: [{ pkg: { name: 'a', secfixes: { '1\n': ['CVE-1'] } } }] },
    'a version in secfixes has a control character',
  ],
])('refused: %s', (_, members, reason) => {
  expect(() => advisoriesOf({ ...samples.apkDatabase, ...members })).toThrow(reason)
})
