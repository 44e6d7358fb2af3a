import fc from 'fast-check'
import { PackageURL } from 'packageurl-js'
import { describe, expect, test } from 'vitest'
import { fromBinary } from '@bufbuild/protobuf'
import { AdvisorySchema, Severity_Type, type Advisory } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { assertAccepted, exportsOf, importedFrom } from './exported.ts'
import { advisoriesOf } from './formats/rows.ts'
import { samples } from './formats/samples.ts'

const forms = Object.entries(samples)
/** The ecosystem of OSV of samples about packages of distributions that they do not name. Without it, OSV has no name for these packages. */
const ecosystems: Readonly<Record<string, string>> = { packageAdvisories: 'Wolfi', apkDatabase: 'Alpine:v3.20' }

/** The samples that are about parts of artifacts only. OSV has no such statements. */
const ofParts: ReadonlySet<string> = new Set(['csaf', 'cyclonedx'])

interface OsvDocument {
  readonly id: string
  readonly affected: readonly { readonly package: Readonly<Record<string, string>>; readonly ranges?: unknown; readonly versions?: unknown }[]
}

async function osvOf(document: unknown, ecosystem?: string): Promise<OsvDocument[]> {
  return (await exportsOf(document, 'osv', { ecosystem })) as OsvDocument[] // checked with the schema below
}

// docs/spec/advisories.md#advisory-exports
describe.each(forms)('advisories from %s', (form, sample) => {
  test('as CSAF, they pass the schema and the mandatory tests', async () => {
    const documents = await exportsOf(sample, 'csaf')
    expect(documents).not.toEqual([])
    await assertAccepted('csaf', documents)
  })

  test('as OpenVEX, they say the same when they are imported again', async () => {
    const { byOrigin } = await importedFrom([sample])
    const before = [...byOrigin.values()].flat().map(({ body }) => fromBinary(AdvisorySchema, body))
    const after = (await exportsOf(sample, 'openvex')).flatMap((document) => advisoriesOf(document))
    const statuses = (advisories: readonly Advisory[]): string[] =>
      [...new Set(advisories.flatMap(({ advisoryId, events }) => events.map(({ type }) => `${advisoryId} ${statusNames[type.case ?? ''] ?? ''}`)))].sort()
    expect(statuses(after)).toEqual(statuses(before))
  })

  test('as OSV, they can be imported again', async () => {
    const ecosystem = ecosystems[form]
    if (ecosystem !== undefined) expect(await osvOf(sample)).toEqual([])
    const documents = await osvOf(sample, ecosystem)
    expect(documents.length === 0).toBe(ofParts.has(form))
    for (const document of documents) expect(advisoriesOf(document)).not.toEqual([])
  })

  test.each(['openvex', 'osv'] as const)('as %s, they pass the schema', async (format) => {
    const documents = await exportsOf(sample, format, { ecosystem: ecosystems[form] })
    expect(documents.length === 0).toBe(format === 'osv' && ofParts.has(form))
    await assertAccepted(format, documents)
  })
})

// docs/spec/advisories.md#advisory-exports
test.each(['openvex', 'csaf'] as const)('as %s, statements about parts of two images name each image with its digest', async (format) => {
  const images = ['a', 'b'].map((digit) => `pkg:oci/shop@sha256%3A${digit.repeat(64)}?arch=amd64&repository_url=registry.example.com/acme/shop`)
  const statementOf = (image: string, status: object): object => ({
    vulnerability: { name: 'CVE-2026-1001' },
    products: [{ '@id': image, subcomponents: [{ '@id': 'pkg:apk/example/libpng@1.6.40-r0' }] }],
    ...status,
  })
  const [first = '', second = ''] = images
  const statements = [
    statementOf(first, { status: 'not_affected', impact_statement: 'It never decodes PNG.' }),
    statementOf(second, { status: 'affected', action_statement: 'Turn off uploads.' }),
  ]
  const documents = await exportsOf({ ...samples.openvex, statements }, format)
  await assertAccepted(format, documents)
  const pairs = documents.flatMap((document) => advisoriesOf(document)).map(({ artifactName, events }) => `${artifactName} ${events[0]?.type.case ?? ''}`)
  expect(pairs.toSorted()).toEqual(['shop falsePositiveDetermination', 'shop truePositiveDetermination'])
  for (const image of images) expect(JSON.stringify(documents)).toContain(PackageURL.fromString(image).toString())
})

/** The status of VEX that each type of event has. */
const statusNames: Readonly<Record<string, string>> = {
  detection: 'under investigation',
  truePositiveDetermination: 'affected',
  analysisNotPlanned: 'affected',
  fixNotPlanned: 'affected',
  pendingUpstreamFix: 'affected',
  falsePositiveDetermination: 'not affected',
  fixed: 'fixed',
  patched: 'fixed',
}

describe('CSAF', () => {
  const v31 = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H'
  const v30 = 'CVSS:3.0/AV:L/AC:H/PR:L/UI:R/S:C/C:L/I:L/A:N'
  const none = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N'
  const [v31Score, v30Score] = [
    { version: '3.1', vectorString: v31, baseScore: 9.8, baseSeverity: 'CRITICAL' },
    { version: '3.0', vectorString: v30, baseScore: 3.9, baseSeverity: 'LOW' },
  ]

  const vexOf = (severities: readonly string[], state: string): unknown => ({
    ...samples.cyclonedx,
    vulnerabilities: [
      {
        id: 'CVE-2026-1001',
        ratings: severities.map((vector) => ({ method: 'CVSSv31', vector })),
        analysis: { state },
        affects: [{ ref: 'png' }],
      },
    ],
  })

  // docs/spec/advisories.md#advisory-exports
  test.each([
    ['its vector', [v31], 'exploitable', [v31Score]],
    ['3.1 before 3.0', [v30, v31], 'in_triage', [v31Score]],
    ['3.0', [v30], 'exploitable', [v30Score]],
    ['0', [none], 'exploitable', [{ version: '3.1', vectorString: none, baseScore: 0, baseSeverity: 'NONE' }]],
    ['temporal metrics', [`${v31}/E:P`], 'exploitable', [{ ...v31Score, vectorString: `${v31}/E:P/RL:X/RC:X` }]],
    ['vectors that are not valid', ['CVSS:3.1/AV:N', 'CVSS:3.1/AV:Q/AC:L', 'CVSS:3.1/', '__proto__', 'CVSS:9.9/AV:N'], 'exploitable', []],
    ['a product that is not affected', [v31], 'not_affected', []],
    ['a fixed product', [v31], 'resolved', []],
  ])('has the score of CVSS 3 for %s', async (_, severities, state, expected) => {
    const documents = (await exportsOf(vexOf(severities, state), 'csaf')) as { vulnerabilities: { scores?: { cvss_v3: unknown }[] }[] }[] // checked below
    await assertAccepted('csaf', documents)
    expect(documents.flatMap(({ vulnerabilities }) => vulnerabilities.flatMap(({ scores = [] }) => scores.map((score) => score.cvss_v3)))).toEqual(expected)
  })

  test('has the scores of the vulnerability for advisories without their own', async () => {
    const scores = new Map([['CVE-2026-1001', [{ type: Severity_Type.CVSS_V3, score: v30 }]]])
    for (const [own, expected] of [
      [[], v30Score],
      [[v31], v31Score],
    ] as const) {
      const [document] = await exportsOf(vexOf(own, 'exploitable'), 'csaf', { scores })
      await assertAccepted('csaf', [document])
      expect(document).toMatchObject({ vulnerabilities: [{ scores: [{ cvss_v3: expected }] }] })
    }
  })
})

describe('OSV', () => {
  const vexOf = (purl: string): unknown => ({
    '@context': 'https://openvex.dev/ns/v0.2.0',
    author: 'Example',
    timestamp: '2026-01-02T10:00:00Z',
    statements: [{ vulnerability: { name: 'CVE-2026-1' }, products: [{ '@id': purl }], status: 'affected' }],
  })

  // docs/spec/advisories.md#osv-ecosystems
  test.each([
    ['package advisories', samples.packageAdvisories, 'Wolfi', ['Wolfi pkg:apk/wolfi/nginx']],
    ['an APK database', samples.apkDatabase, 'Alpine:v3.20', ['Alpine:v3.20 pkg:apk/alpine/nginx']],
    ['a distribution that OSV does not know', samples.apkDatabase, 'Example Linux:3', ['Example Linux:3 pkg:apk/nginx']],
    ['VEX', vexOf('pkg:rpm/example/openssl@3.2.1'), 'Red Hat:enterprise_linux:9', ['Red Hat:enterprise_linux:9 pkg:rpm/redhat/openssl']],
    ['a distribution with packages of another type', vexOf('pkg:rpm/example/openssl@3.2.1'), 'Wolfi', []],
    // Its database says which repository it is.
    [
      'the database of a known distribution',
      { ...samples.apkDatabase, urlprefix: 'https://dl-cdn.alpinelinux.org/alpine', distroversion: 'v3.20' },
      undefined,
      ['Alpine:v3.20 pkg:apk/alpine/nginx'],
    ],
    ['a known distribution and the option', { ...samples.apkDatabase, urlprefix: 'https://packages.wolfi.dev' }, 'Alpine:v3.20', ['Wolfi pkg:apk/wolfi/nginx']],
  ])('has the ecosystem of the import for %s', async (_, sample, ecosystem, expected) => {
    const named = (await osvOf(sample, ecosystem)).flatMap(({ affected }) =>
      affected.map(({ package: { ecosystem: name, purl } }) => `${String(name)} ${String(purl)}`),
    )
    expect([...new Set(named)]).toEqual(expected)
  })

  test.each([
    ['another distribution', 'pkg:apk/wolfi/a@1', 'Wolfi', 'pkg:apk/wolfi/a'],
    ['the same distribution, without its release', 'pkg:apk/alpine/a@1', 'Alpine:v3.20', 'pkg:apk/alpine/a'],
    ['no distribution', 'pkg:apk/a@1', 'Alpine:v3.20', 'pkg:apk/alpine/a'],
    ['a distribution that OSV does not know', 'pkg:apk/example/a@1', 'Alpine:v3.20', 'pkg:apk/alpine/a'],
    ['a package of no distribution', 'pkg:npm/a@1', 'npm', 'pkg:npm/a'],
  ])('takes the ecosystem of the import only where a package URL has none: %s', async (_, purl, ecosystem, exported) => {
    const [document] = await osvOf(vexOf(purl), 'Alpine:v3.20')
    expect(document?.affected).toEqual([{ package: { ecosystem, name: 'a', purl: exported }, versions: ['1'] }])
  })

  type Event = readonly [type: string, data: object]
  const detected: Event = ['detection', { type: 'manual' }]
  const affected: Event = ['true-positive-determination', { note: 'yes' }]
  const fixedIn = (version: string): Event => ['fixed', { 'fixed-version': version }]
  const rangeTo = (...fixed: object[]): object => ({ type: 'ECOSYSTEM', events: [{ introduced: '0' }, ...fixed] })

  // docs/spec/advisories.md#advisory-exports
  test.each<readonly [string, Event[], object[]]>([
    ['a detection', [detected], []],
    ['a fix, then a detection', [fixedIn('8.5.0-r0'), detected], []],
    ['a fix', [affected, fixedIn('8.5.0-r0')], [rangeTo({ fixed: '8.5.0-r0' })]],
    ['two fixes', [fixedIn('8.4.0-r0'), fixedIn('8.5.0-r0')], [rangeTo({ fixed: '8.4.0-r0' }), rangeTo({ fixed: '8.5.0-r0' })]],
    ['a fix that did not hold', [fixedIn('8.5.0-r0'), affected], [rangeTo()]],
    ['a second fix, after the first did not hold', [fixedIn('8.5.0-r0'), affected, fixedIn('8.6.0-r0')], [rangeTo({ fixed: '8.6.0-r0' })]],
  ])('says what the newest status says: %s', async (_, events, expected) => {
    const dated = events.map(([type, data], at) => ({ type, timestamp: `2026-03-0${at + 1}T00:00:00Z`, data }))
    const document = { 'schema-version': '2.0.2', package: { name: 'curl' }, advisories: [{ id: 'CVE-2026-1', events: dated }] }
    const found = await osvOf(document, 'Wolfi')
    expect(found.flatMap((one) => one.affected.flatMap(({ ranges }) => ranges))).toEqual(expected)
    await assertAccepted('osv', found)
  })

  // docs/spec/advisories.md#advisory-exports
  test.each([
    ['a part of an image', [{ '@id': 'pkg:oci/shop@sha256%3Aabc', subcomponents: [{ '@id': 'pkg:npm/left' }] }], 'affected'],
    ['a part of a package', [{ '@id': 'pkg:npm/right', subcomponents: [{ '@id': 'pkg:npm/left' }] }], 'affected'],
    ['a part of a package of the same name', [{ '@id': 'pkg:npm/left@1.0.0', subcomponents: [{ '@id': 'pkg:npm/left@2.0.0' }] }], 'affected'],
    ['a fix without a version', [{ '@id': 'pkg:npm/left' }], 'fixed'],
  ])('leaves out %s', async (_, products, status) => {
    expect(await osvOf({ ...samples.openvex, statements: [{ vulnerability: { name: 'CVE-2026-1' }, products, status }] })).toEqual([])
  })

  test.each([
    ['wolfi', 'there is no ecosystem wolfi: write Wolfi'],
    ['PyPI', 'PyPI is no distribution'],
    ['Alpine:', 'is no ecosystem'],
    ['a/b', 'is no ecosystem'],
  ])('no import with the ecosystem %s', async (ecosystem, reason) => {
    await expect(importedFrom([samples.apkDatabase], ecosystem)).rejects.toThrow(reason)
  })

  const version = fc.constantFrom('0', '1', '1.5', '2.0', '3.0b1', '10')
  const eventsNamed = (...names: string[]): fc.Arbitrary<Record<string, string>[]> =>
    fc.uniqueArray(
      fc.constantFrom(...names).chain((name) => version.map((value) => ({ [name]: value }))),
      { maxLength: 3, selector: (one) => JSON.stringify(one) },
    )
  const range = fc.record({
    type: fc.constantFrom('SEMVER', 'ECOSYSTEM'),
    events: fc.oneof(eventsNamed('introduced', 'fixed', 'limit'), eventsNamed('introduced', 'last_affected')).map((more) => [{ introduced: '0.1' }, ...more]),
  })
  const commits = fc.record({
    type: fc.constant('GIT'),
    repo: fc.constant('https://example.com/a.git'),
    events: fc.constant([{ introduced: '0' }, { fixed: 'a'.repeat(40) }]),
  })
  const ranges = fc.uniqueArray(fc.oneof({ weight: 3, arbitrary: range }, commits), { minLength: 1, maxLength: 3, selector: (one) => JSON.stringify(one) })
  const versions = fc.uniqueArray(version, { minLength: 1, maxLength: 4 })
  const statement = fc.oneof(fc.record({ ranges }), fc.record({ versions }), fc.record({ ranges, versions }))

  // docs/spec/advisories.md#advisory-exports
  test('gives back all ranges and versions of an OSV document', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(statement, { minLength: 1, maxLength: 3, selector: (one) => JSON.stringify(one) }), async (statements) => {
        const named = { ecosystem: 'PyPI', name: 'example' }
        const [document] = await osvOf({ ...samples.osv, affected: statements.map((one) => ({ package: named, ...one })) })
        expect(document?.affected).toEqual(statements.map((one) => ({ package: { ...named, purl: 'pkg:pypi/example' }, ...one })))
        await assertAccepted('osv', [document])
      }),
      { numRuns: 60 },
    )
  })

  test('says that all versions are affected if a document names none', async () => {
    const [document] = await osvOf({ ...samples.osv, affected: [{ package: { ecosystem: 'PyPI', name: 'example' } }] })
    expect(document?.affected.map((one) => one.ranges)).toEqual([[{ type: 'ECOSYSTEM', events: [{ introduced: '0' }] }]])
  })
})
