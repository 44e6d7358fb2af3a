import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isFurtherEcosystem, osvIdOf } from '../../src/catalogue/exports/osv-names.ts'
import { packagesOfEcosystem } from '../../src/base/versions/ecosystems.ts'
import { hasPypaData, osvDocument, pypaDocuments } from '../support/import-advisories.ts'
import { requirePart } from '../support/parts/require-part.ts'
import { assertAccepted, exportsFrom, exportsOf, importedFrom, type ExportFormat } from './exported.ts'

const formats = ['openvex', 'csaf', 'osv'] as const satisfies ExportFormat[]

/** Exports a document as OSV, and checks what it makes. Returns it. */
async function osvOf(document: unknown): Promise<unknown[]> {
  const exported = await exportsOf(document, 'osv')
  await assertAccepted('osv', exported)
  return exported
}

/** Exports documents in all forms, and checks them. Returns the number of documents in each form. */
async function acceptedExports(documents: readonly unknown[]): Promise<number[]> {
  const imported = await importedFrom(documents)
  const counts = []
  for (const format of formats) {
    const exported = exportsFrom(imported, format)
    await assertAccepted(format, exported)
    counts.push(exported.length)
  }
  return counts
}

/** An OSV document about one package, with more members of what is affected. */
function osvAbout(affected: object, more: object = {}): unknown {
  return osvDocument('PYSEC-2026-1', { affected: [{ package: { ecosystem: 'PyPI', name: 'example' }, ...affected }], ...more })
}

function vexOf(...statements: object[]): unknown {
  const base = { vulnerability: { name: 'CVE-2026-1' }, products: [{ '@id': 'pkg:pypi/example@1' }] }
  const head = {
    '@context': 'https://openvex.dev/ns/v0.2.0',
    '@id': 'https://vex.example.com/1',
    author: 'Example',
    timestamp: '2026-01-02T10:00:00Z',
    version: 1,
  }
  return { ...head, statements: statements.map((one) => ({ ...base, ...one })) }
}

const vector3 = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H'
const vector4 = 'CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N'
const severity = (type: string, score: string): object => ({ severity: [{ type, score }] })
interface Ranges {
  readonly ranges: readonly object[]
}
const range = (...events: object[]): Ranges => ({ ranges: [{ type: 'ECOSYSTEM', events }] })
const commit = 'a'.repeat(40)
const commits = (repo: object, ...events: object[]): Ranges => ({ ranges: [{ type: 'GIT', ...repo, events }] })
const repo = { repo: 'https://example.com/a.git' }
const trouble = 'First\nline\tof "text" \u0085\u2028\u202e <script>&amp; \\u0000 \u{1f600}'

// docs/spec/advisories.md#advisory-exports
test.each<[string, unknown]>([
  ['no fix', osvAbout(range({ introduced: '0' }))],
  ['no versions', osvAbout({})],
  [
    'many ranges',
    osvAbout({ ranges: Array.from({ length: 900 }, (_, at) => ({ type: 'ECOSYSTEM', events: [{ introduced: `${at}` }, { fixed: `${at}.5` }] })) }),
  ],
  ['one range with many events', osvAbout(range(...Array.from({ length: 400 }, (_, at) => ({ [at % 2 === 0 ? 'introduced' : 'fixed']: `${at}` }))))],
  ['many versions', osvAbout({ versions: Array.from({ length: 5_000 }, (_, at) => `1.${at}`) })],
  ['a range without a begin', osvAbout(range({ fixed: '1' }))],
  ['a range that has two kinds of ends', osvAbout(range({ introduced: '0' }, { last_affected: '1' }, { introduced: '2' }, { fixed: '3' }))],
  ['commits', osvAbout(commits(repo, { introduced: '0' }, { fixed: commit }))],
  ['short commits', osvAbout(commits(repo, { introduced: '0' }, { fixed: 'abc' }))],
  ['commits without a repository', osvAbout(commits({}, { introduced: '0' }, { fixed: commit }))],
  ['a range of an unknown type', osvAbout({ ranges: [{ type: 'LUNAR', events: [{ introduced: '0' }] }] })],
  ['a score of CVSS 2', osvAbout({}, severity('CVSS_V2', 'AV:N/AC:L/Au:N/C:P/I:P/A:P'))],
  ['a score of CVSS 3', osvAbout({}, severity('CVSS_V3', `${vector3}/E:P`))],
  ['a score of CVSS 4 in another order', osvAbout({}, severity('CVSS_V4', `${vector4}/U:Red/E:A/MSI:S`))],
  ['a score of CVSS 4 with a value of other metrics', osvAbout({}, severity('CVSS_V4', vector4.replace('SA:N', 'SA:S')))],
  ['a score in brackets', osvAbout({}, severity('CVSS_V2', '(AV:N/AC:L/Au:N/C:P/I:P/A:P)'))],
  ['a score of another type', osvAbout({}, severity('CVSS_V3', vector4))],
  ['a part of a score', osvAbout({}, severity('CVSS_V3', 'CVSS:3.1/AV:N'))],
  ['a score that is no vector', osvAbout(severity('CVSS_V3', '9.8'))],
  ['the first and the last time', osvAbout({}, { published: '0001-01-01T00:00:00Z', modified: '9999-12-31T23:59:59.999Z' })],
  ['a name with odd characters', osvAbout({ package: { ecosystem: 'PyPI', name: ' a/b@c?d#e%41 "é"\u0085\u2028\u202e ' } })],
  ['a name of dots and slashes', osvAbout({ package: { ecosystem: 'npm', name: '../../' } })],
  ['a name of one slash', osvAbout({ package: { ecosystem: 'Go', name: '/' } })],
  ['a name of blanks', osvAbout({ package: { ecosystem: 'PyPI', name: '  ' } })],
  ['a long name', osvAbout({ package: { ecosystem: 'PyPI', name: 'n'.repeat(512) } })],
  ['a Maven package', osvAbout({ package: { ecosystem: 'Maven', name: 'org.example:a' } })],
  ['a distribution', osvAbout({ package: { ecosystem: 'Debian:12', name: 'nginx' } })],
  ['an ecosystem without package URLs', osvAbout({ package: { ecosystem: 'GitHub Actions', name: 'example/action' } })],
  ['a version with odd characters', osvAbout({ versions: [' 1 "é"\u2028%'], ...range({ introduced: '0' }, { fixed: '1 / 2@3' }) })],
  ['aliases with odd characters', osvAbout({}, { aliases: ['CVE-2026-1', ' <b>', 'CVE-2026-1 '] })],
  ['all statuses', vexOf(...['under_investigation', 'fixed'].map((status) => ({ status })), { status: 'affected', action_statement: 'Update.' })],
  ['no justification', vexOf({ status: 'not_affected', impact_statement: trouble })],
  ['a justification alone', vexOf({ status: 'not_affected', justification: 'component_not_present' })],
  ['a justification and an impact', vexOf({ status: 'not_affected', justification: 'inline_mitigations_already_exist', impact_statement: trouble })],
  ['notes with odd characters', vexOf({ status: 'affected', action_statement: trouble })],
  ['notes of a blank', vexOf({ status: 'affected', action_statement: ' ' }, { status: 'fixed', status_notes: '\n', vulnerability: { name: 'CVE-2026-2' } })],
  [
    'products that are no package URLs',
    vexOf(...['a b', 'https://example.com/?a=b c', 'urn:x', ' '].map((id) => ({ status: 'fixed', products: [{ '@id': id }] }))),
  ],
  ['the same thing said twice', vexOf({ status: 'fixed' }, { status: 'fixed' })],
  ['a package of a distribution', vexOf({ status: 'fixed', products: [{ '@id': 'pkg:deb/debian/nginx@1%3A2.0-1?arch=amd64' }] })],
  [
    'an id of another database',
    {
      'schema-version': '2.0.2',
      package: { name: 'nginx' },
      advisories: [{ id: 'EXA-1', events: [{ timestamp: '2026-01-01T08:00:00Z', type: 'detection', data: { type: 'manual' } }] }],
    },
  ],
])('exports of a document with %s are accepted', async (_, document) => {
  await acceptedExports([document])
})

const osvRanges = async (affected: object): Promise<unknown> => {
  const [document] = (await osvOf(osvAbout(affected))) as { affected: { ranges: unknown }[] }[] // accepted by the schema
  return document?.affected.map(({ ranges }) => ranges)
}

// docs/spec/advisories.md#advisory-exports
describe('OSV', () => {
  test.each([
    ['begins at the first version', range({ fixed: '1' }), [range({ introduced: '0' }, { fixed: '1' })]],
    [
      'is split where it has two kinds of ends',
      range({ introduced: '0' }, { last_affected: '1' }, { introduced: '2' }, { fixed: '3' }, { last_affected: '4' }),
      [{ ranges: [range({ introduced: '0' }, { last_affected: '1' }), range({ introduced: '2' }, { fixed: '3' })].flatMap(({ ranges }) => ranges) }],
    ],
    ['of short commits is left out', commits(repo, { introduced: '0' }, { fixed: 'abc' }), undefined],
  ])('a range %s', async (_, affected, expected) => {
    expect(await osvRanges(affected)).toEqual(expected?.map(({ ranges }) => ranges))
  })

  const names = ['introduced', 'fixed', 'last_affected'] as const
  type Event = Partial<Record<(typeof names)[number], string>>
  /** Says whether the events, which are in the order of their versions, affect a version. */
  const affects = (events: readonly Event[], version: number): boolean =>
    events.reduce((was, { introduced, fixed, last_affected: last }) => {
      if (introduced !== undefined) return was || version >= Number(introduced)
      return was && (fixed === undefined || version < Number(fixed)) && (last === undefined || version <= Number(last))
    }, false)

  test('any range is accepted, and affects the same versions', async () => {
    const event = fc.record({ name: fc.constantFrom(...names), at: fc.nat({ max: 9 }) })
    const events = fc
      .uniqueArray(event, { minLength: 1, maxLength: 6, selector: ({ at }) => at })
      .map((all) => all.sort((one, other) => one.at - other.at).map(({ name, at }): Event => ({ [name]: String(at) })))
    await fc.assert(
      fc.asyncProperty(events, async (all) => {
        const [exported = []] = (await osvRanges(range(...all))) as { events: Event[] }[][] // one statement
        const whole = all.some(({ introduced }) => introduced !== undefined) ? all : [{ introduced: '0' }, ...all]
        for (let version = 0; version < 10; version += 1) {
          const isAffected = exported.some(({ events: part }) => affects(part, version))
          expect([version, isAffected]).toEqual([version, affects(whole, version)])
        }
      }),
      { numRuns: 100 },
    )
  })

  test('an ecosystem without package URLs', async () => {
    const named = { ecosystem: 'GitHub Actions', name: 'example/action' }
    expect(await osvOf(osvAbout({ package: named }))).toMatchObject([{ affected: [{ package: named }] }])
  })

  test('an ecosystem that the schema does not list is exported if it came from OSV: the schema refuses nothing else', async () => {
    const named = { ecosystem: 'Lunar:3', name: 'example' }
    const document = osvAbout({ package: named, ...range({ introduced: '0' }, { fixed: '1' }) })
    const [exported] = (await exportsOf(document, 'osv')) as { affected: { package: object }[] }[] // checked below
    expect(exported).toMatchObject({ affected: [{ package: named, ...range({ introduced: '0' }, { fixed: '1' }) }] })
    const listed = { ...exported, affected: exported?.affected.map((one) => ({ ...one, package: { ...one.package, ecosystem: 'PyPI' } })) }
    await assertAccepted('osv', [listed])
  })

  test.each([
    ['EXA-1', 'x_EXA-1'],
    ['CVE-2026-1', 'CVE-2026-1'],
    ['SUSE-SU-2026:1', 'SUSE-SU-2026:1'],
    ['x_EXA-1', 'x_EXA-1'],
    ['GHSA', 'x_GHSA'],
    ['SUSE-1', 'x_SUSE-1'],
  ])('the id %s is %s', (id, expected) => {
    expect(osvIdOf(id)).toBe(expected)
  })

  test('all databases and ecosystems of its schema are known', () => {
    const schema = JSON.parse(readFileSync(requirePart('osv-schema'), 'utf8')) as {
      $defs: Record<'prefix' | 'ecosystemName', { pattern: string; enum: string[] }>
    } // the published schema
    const { prefix, ecosystemName } = schema.$defs
    const databases = /\|\((.*)\)-/.exec(prefix.pattern)?.[1]?.replace('SUSE-[SRFO]U', 'SUSE-SU|SUSE-RU|SUSE-FU|SUSE-OU').split('|') ?? []
    expect(databases.length).toBeGreaterThan(50)
    expect(databases.filter((name) => osvIdOf(`${name}-1`) !== `${name}-1`)).toEqual([])
    expect(ecosystemName.enum.length).toBeGreaterThan(40)
    expect(ecosystemName.enum.filter((name) => packagesOfEcosystem(name) === undefined && !isFurtherEcosystem(name))).toEqual([])
  })

  // Metrics of every version in any order, with values that some of them do not have.
  const metric = fc.constantFrom(
    'AV:N',
    'AC:L',
    'AC:M',
    'Au:N',
    'PR:N',
    'UI:N',
    'UI:P',
    'S:U',
    'C:H',
    'C:P',
    'I:P',
    'I:H',
    'A:H',
    'E:A',
    'MSI:S',
    'U:Red',
    'av:n',
    '',
  )
  const start = fc.constantFrom('', 'CVSS:2.0/', 'CVSS:3.0/', `${vector3}/`, `${vector4}/`, 'AV:N/AC:L/Au:N/C:P/I:P/A:P/')

  test('has no score that its schema refuses', async () => {
    const score = fc.tuple(start, fc.array(metric, { maxLength: 5 })).map(([first, rest]) => `${first}${rest.join('/')}`)
    const severities = fc.array(fc.record({ type: fc.constantFrom('CVSS_V2', 'CVSS_V3', 'CVSS_V4'), score }), { minLength: 200, maxLength: 200 })
    await fc.assert(
      fc.asyncProperty(severities, async (all) => void (await osvOf(osvAbout({}, { severity: all })))),
      { numRuns: 5 },
    )
  })
})

// docs/spec/advisories.md#advisory-exports
test.skipIf(!hasPypaData)('exports of the PyPA advisory database are accepted', async () => {
  const counts = await acceptedExports(await pypaDocuments({ nth: 15 }))
  for (const count of counts) expect(count).toBeGreaterThan(30)
})
