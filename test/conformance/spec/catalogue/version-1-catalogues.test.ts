import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { importDocuments, osvDocument, pypiDocument } from '../../../support/import-advisories.ts'
import { freshName, makeOrganisation } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

specSuite('catalogues in version 1', (spec) => {
  const cvss = { type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }
  const about = (name: string): JsonObject => ({
    affected: [{ package: { ecosystem: 'PyPI', name }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.2.3' }] }] }],
  })
  const idsOf = (body: JsonObject): unknown[] => itemsOf(body, 'items').map(({ id }) => id)

  // docs/spec/version-1.md#advisories
  test('a list of advisories has pages, filters, an order, and the fields of version 1', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('pkg')
    const documents = ['A', 'B', 'C'].map((id, at) =>
      osvDocument(`${id}-${name}`, { ...about(name), aliases: [`CVE-${name}-${at}`], modified: `2026-02-0${3 - at}T00:00:00Z` }),
    )
    await importDocuments(spec.server, group, documents)
    const list = (request: JsonObject = {}) => spec.ok('Advisories/List', { artifactName: [name], ...request }, { token })
    const all = await list()
    const [first = {}] = itemsOf(all, 'items')
    expect(all['totalCount']).toBe('3')
    expect(idsOf(all)).toEqual(idsOf(all).toSorted())
    expect(first).toMatchObject({
      artifactName: name,
      artifactType: 'PyPI',
      createdAt: '2026-01-02T03:04:05.678Z',
      events: [
        { timestamp: '2026-01-02T03:04:05.678Z', status: 'APPROVED', detection: { manual: {} } },
        { status: 'APPROVED', fixed: { fixedVersion: '1.2.3' } },
      ],
    })
    expect(first).not.toHaveProperty('severities')
    const advisoryIds = (body: JsonObject): unknown[] => itemsOf(body, 'items').map(({ advisoryId }) => advisoryId)
    const one = await list({ orderBy: 'UPDATED_AT_ASC', pageSize: 2 })
    expect(advisoryIds(one)).toEqual([`C-${name}`, `B-${name}`])
    const two = await list({ orderBy: 'UPDATED_AT_ASC', pageSize: 2, pageToken: String(one['nextPageToken']) })
    expect(advisoryIds(two)).toEqual([`A-${name}`])
    expect(two['nextPageToken'] ?? '').toBe('')
    expect(advisoryIds(await list({ aliases: [`CVE-${name}-1`] }))).toEqual([`B-${name}`])
    expect(idsOf(await list({ id: String(first['id']) }))).toEqual([first['id']])
    expect(idsOf(await list({ id: String(first['id']), aliases: ['none'] }))).toEqual([])
  })

  // docs/spec/version-1.md#advisories
  test('a list of advisories by id answers alike for a missing, a hidden and a withdrawn one', async () => {
    const [{ group, token }, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const name = freshName('pkg')
    await importDocuments(spec.server, group, [osvDocument(`A-${name}`, about(name))])
    const [shown = {}] = itemsOf(await spec.ok('ListAdvisories', { artifactNames: [name] }, { token }), 'advisories')
    const id = uidOf(shown)
    const hidden = await spec.call('Advisories/List', { id }, { token: other.token, requestId: 'v1' })
    const missing = await spec.call('Advisories/List', { id: `${group}/${'0'.repeat(16)}` }, { token, requestId: 'v1' })
    expect(idsOf(hidden.body)).toEqual([])
    expect(hidden.raw).toBe(missing.raw)
    expect(idsOf(await spec.ok('Advisories/List', { id: 'none' }, { token }))).toEqual([])
    const withdrawn = { ...about(name), withdrawn: '2026-03-01T00:00:00Z', modified: '2026-03-01T00:00:00Z' }
    await importDocuments(spec.server, group, [osvDocument(`A-${name}`, withdrawn)])
    expect((await spec.call('Advisories/List', { id }, { token, requestId: 'v1' })).raw).toBe(missing.raw)
  })

  // docs/spec/version-1.md#libraries
  test('artifacts have the ecosystems of version 1, and a list of versions has all of them', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('library')
    const versions = Array.from({ length: 205 }, (_, at) => `1.${at}`)
    // All versions have one time.
    const releases = Object.fromEntries(
      versions.map((version) => [version, [{ filename: 'a.tar.gz', size: 1, upload_time_iso_8601: '2026-01-01T00:00:00.000Z' }]]),
    )
    await importDocuments(spec.server, group, [{ ...pypiDocument(name, []), releases }, pypiDocument(`${name}-more`, ['1.0'])])
    const found = await spec.ok('Artifacts/List', { ecosystems: ['PYTHON', 'JAVASCRIPT'], query: name }, { token })
    expect(found).toMatchObject({ totalArtifacts: 2, skipped: 0, items: [{ id: `python:${name}`, ecosystem: 'PYTHON', versionCount: 205 }, {}] })
    expect(await spec.ok('Artifacts/List', { ecosystems: ['PYTHON'], query: name, skip: 1, pageSize: 1 }, { token })).toMatchObject({
      totalArtifacts: 2,
      skipped: 1,
      items: [{ name: `${name}-more` }],
    })
    const listed = itemsOf(await spec.ok('Artifacts/ListVersions', { id: `python:${name}` }, { token }), 'items')
    expect(listed.map(({ version }) => version)).toEqual(versions.toReversed())
    expect(listed[0]).toMatchObject({ id: `python:${name}:1.204`, name })
    expectFailure(await spec.call('Artifacts/ListVersions', { id: 'python:no-such-thing' }, { token }), { code: 5, domain: 'libraries.taproot.dev' })
    expect(await spec.ok('Artifacts/GetArtifactCount', { ecosystems: ['JAVASCRIPT'] }, { token })).toMatchObject({ counts: [{ ecosystem: 'JAVASCRIPT' }] })
  })

  // docs/spec/version-1.md#advisories
  test('documents and metadata of vulnerabilities have the names of version 1', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('feed')
    await importDocuments(spec.server, group, [
      osvDocument(`A-${name}`, { ...about(name), summary: 'in short', severity: [cvss], references: [{ type: 'FIX', url: 'https://example.com/fix' }] }),
    ])
    const documents = await spec.ok('SecurityAdvisory/ListDocuments', { id: name }, { token })
    expect(itemsOf(documents, 'items')).toMatchObject([{ id: name, advisories: [{ id: `A-${name}`, events: [{ detection: { manual: {} } }, { fixed: {} }] }] }])
    const metadata = await spec.ok('SecurityAdvisory/ListVulnerabilityMetadata', { id: `A-${name}` })
    expect(metadata).toMatchObject({
      totalCount: '1',
      items: [{ id: `A-${name}`, summary: 'in short', severity: [cvss], references: [{ type: 'FIX', url: 'https://example.com/fix' }] }],
    })
  })
})
