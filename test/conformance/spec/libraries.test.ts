import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { importDocuments, pypiDocument } from '../../support/import-advisories.ts'
import { suspend } from '../../support/suspend.ts'
import { freshName, makeMember, makeOrganisation, type Organisation } from '../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, type Spec } from './spec-suite.ts'

const python = ['ECOSYSTEM_PYTHON']

/** An organisation, and artifacts whose names start with a prefix of their own. */
interface Imported extends Organisation {
  readonly spec: Spec
  readonly prefix: string
}

async function imported(spec: Spec, documents: (prefix: string) => readonly JsonObject[]): Promise<Imported> {
  const organisation = await makeOrganisation(spec.server)
  const prefix = freshName('lib').toLowerCase()
  await importDocuments(spec.server, organisation.group, documents(prefix))
  return { ...organisation, spec, prefix }
}

async function names({ spec, token, prefix }: Imported, request: JsonObject = {}): Promise<string[]> {
  const body = await spec.ok('ListArtifacts', { ecosystems: python, query: prefix, ...request }, { token })
  return itemsOf(body, 'artifacts').map(({ name }) => String(name).slice(prefix.length + 1))
}

specSuite('libraries', (spec) => {
  // docs/spec/libraries.md#artifacts
  test('an artifact has the values of its source', async () => {
    const world = await imported(spec, (prefix) => [pypiDocument(`${prefix}_One`, ['1.9', '1.10', '2.0rc1'])])
    const body = await spec.ok('ListArtifacts', { ecosystems: python, query: world.prefix.toUpperCase() }, { token: world.token })
    expect(itemsOf(body, 'artifacts')).toEqual([
      {
        uid: `python:${world.prefix}-one`,
        name: `${world.prefix}-one`,
        description: `about ${world.prefix}_One`,
        ecosystem: 'ECOSYSTEM_PYTHON',
        latestVersion: '1.10',
        versionCount: 3,
        createTime: '2026-01-01T00:00:00.000Z',
        updateTime: '2026-01-03T00:00:00.000Z',
      },
    ])
    expect([Number(body['totalCount']), body['skipped'], body['nextPageToken'] ?? '']).toEqual([1, 0, ''])
  })

  // docs/spec/libraries.md#artifact-filters
  test('filters are joined, and the ecosystem is required', async () => {
    const world = await imported(spec, (prefix) => [
      pypiDocument(`${prefix}-plain`, ['1.0']),
      pypiDocument(`${prefix}-cuda`, ['1.0', '1.0+cu121']),
      pypiDocument(`${prefix}-classified`, ['1.0'], { classifiers: ['Environment :: GPU :: NVIDIA CUDA :: 12 :: 12.1'] }),
      pypiDocument(`${prefix}-patched`, ['1.0', '1.0+remediated.1']),
    ])
    expect(await names(world)).toEqual(['classified', 'cuda', 'patched', 'plain'])
    expect(await names(world, { query: `${world.prefix}-P` })).toEqual(['patched', 'plain'])
    expect(await names(world, { ecosystems: ['ECOSYSTEM_JAVA'] })).toEqual([])
    expect(await names(world, { ecosystems: ['ECOSYSTEM_JAVA', 'ECOSYSTEM_PYTHON', 'ECOSYSTEM_PYTHON'], cudaVersion: '12.1' })).toEqual(['classified', 'cuda'])
    expect(await names(world, { cudaVersion: 'cu121' })).toEqual(['classified', 'cuda'])
    expect(await names(world, { cudaVersion: '11.8' })).toEqual([])
    expect(await names(world, { cudaVersion: '' })).toEqual(['classified', 'cuda', 'patched', 'plain'])
    expect(await names(world, { remediated: true })).toEqual(['patched'])
    expect(await names(world, { remediated: true, cudaVersion: '12.1' })).toEqual([])
    const { token } = world
    for (const rpc of ['ListArtifacts', 'GetArtifactCount'])
      expectFailure(await spec.call(rpc, {}, { token }), { code: 3, domain: 'libraries.taproot.dev', fields: ['ecosystems'] })
    for (const ecosystem of [0, 9]) {
      const reply = await spec.call('ListArtifacts', { ecosystems: [ecosystem] }, { token })
      expectFailure(reply, { code: 3, domain: 'libraries.taproot.dev', fields: ['ecosystems[0]'] })
    }
  })

  // docs/spec/libraries.md#artifact-lists
  test('pages keep their order, and the envelope counts all of them', async () => {
    const world = await imported(spec, (prefix) => ['c', 'a', 'e', 'b', 'd'].map((letter) => pypiDocument(`${prefix}-${letter}`, ['1.0'])))
    const { token, prefix } = world
    const page = (more: JsonObject): Promise<JsonObject> => spec.ok('ListArtifacts', { ecosystems: python, query: prefix, pageSize: 2, ...more }, { token })
    const letters = (body: JsonObject): string[] => itemsOf(body, 'artifacts').map(({ name }) => String(name).slice(-1))
    const first = await page({})
    expect([letters(first), Number(first['totalCount']), first['skipped']]).toEqual([['a', 'b'], 5, 0])
    // The token names a place: a new artifact after it is on the next page.
    await importDocuments(spec.server, world.group, [pypiDocument(`${prefix}-bb`, ['1.0'])])
    const second = await page({ pageToken: String(first['nextPageToken']) })
    expect(letters(second)).toEqual(['b', 'c'])
    const last = await page({ pageToken: String(second['nextPageToken']) })
    expect([letters(last), last['nextPageToken'] ?? '']).toEqual([['d', 'e'], ''])
    expect(await names(world, { orderBy: 'name desc', pageSize: 2 })).toEqual(['e', 'd'])
    expect(await names(world, { orderBy: 'uid desc', pageSize: 2, skip: 2 })).toEqual(['c', 'bb'])
    expect(await names(world, { orderBy: 'created_at desc, name desc', pageSize: 1 })).toEqual(['e'])
    for (const request of [{ query: 'other' }, { orderBy: 'updated_at' }, { remediated: true }, { cudaVersion: '12' }]) {
      const reply = await spec.call('ListArtifacts', { ecosystems: python, query: prefix, pageToken: String(first['nextPageToken']), ...request }, { token })
      expectFailure(reply, { code: 3, domain: 'libraries.taproot.dev', fields: ['page_token'] })
    }
    expectFailure(await spec.call('ListArtifacts', { ecosystems: python, orderBy: 'version' }, { token }), {
      code: 3,
      domain: 'libraries.taproot.dev',
      fields: ['order_by'],
    })
  })

  // docs/spec/libraries.md#versions
  test('versions are listed newest first, by the order of the ecosystem', async () => {
    const { prefix, token, group } = await imported(spec, (one) => [pypiDocument(`${one}-lib`, ['1.9', '1.10', 'odd', '1.10rc1', '2.0.dev1'])])
    const artifactId = `python:${prefix}-lib`
    const page = (more: JsonObject): Promise<JsonObject> => spec.ok('ListArtifactVersions', { artifactId, ...more }, { token })
    const versions = (body: JsonObject): unknown[] => itemsOf(body, 'artifactVersions').map(({ version }) => version)
    const all = await page({})
    expect([versions(all), Number(all['totalCount']), all['skipped']]).toEqual([['2.0.dev1', '1.10', '1.10rc1', '1.9', 'odd'], 5, 0])
    expect(itemsOf(all, 'artifactVersions')[1]).toEqual({
      uid: `${artifactId}:1.10`,
      name: `${prefix}-lib`,
      version: '1.10',
      description: `about ${prefix}-lib`,
      createTime: '2026-01-02T00:00:00.000Z',
      updateTime: '2026-01-02T00:00:00.000Z',
      sizeBytes: '101',
    })
    const first = await page({ pageSize: 2 })
    // The token names a place: it goes on after the version, which the newer catalogue does not have.
    await importDocuments(spec.server, group, [pypiDocument(`${prefix}-lib`, ['1.9', '1.10rc2', 'odd', '1.10rc1', '2.0.dev1'])])
    expect(versions(await page({ pageSize: 2, pageToken: String(first['nextPageToken']) }))).toEqual(['1.10rc2', '1.10rc1'])
    expect(versions(await page({ orderBy: 'version', skip: 3 }))).toEqual(['1.10rc2', '2.0.dev1'])
    expect(versions(await page({ orderBy: 'uid', pageSize: 2 }))).toEqual(['1.10rc1', '1.10rc2'])
    expect(versions(await page({ orderBy: 'created_at desc', pageSize: 1 }))).toEqual(['2.0.dev1'])
    const wrong = await spec.call('ListArtifactVersions', { artifactId, orderBy: 'version', pageToken: String(first['nextPageToken']) }, { token })
    expectFailure(wrong, { code: 3, domain: 'libraries.taproot.dev', fields: ['page_token'] })
  })

  test('an unknown artifact has no versions', async () => {
    const { token } = await makeOrganisation(spec.server)
    for (const artifactId of ['python:no-such', 'nothing', 'npm:@none/none']) {
      const reply = await spec.call('ListArtifactVersions', { artifactId }, { token })
      expectFailure(reply, { code: 5, domain: 'libraries.taproot.dev' })
      expect(reply.details['ResourceInfo']).toMatchObject({ resourceType: 'libraries.taproot.dev/Artifact', resourceName: artifactId })
    }
  })

  // docs/spec/libraries.md#artifact-counts
  test('counts have one entry for each requested ecosystem', async () => {
    const { token } = await imported(spec, (prefix) => [pypiDocument(prefix, ['1.0'])])
    const { counts } = await spec.ok('GetArtifactCount', { ecosystems: ['ECOSYSTEM_JAVA', 'ECOSYSTEM_PYTHON'] }, { token })
    const { totalCount } = await spec.ok('ListArtifacts', { ecosystems: python }, { token })
    expect(counts).toEqual([
      { ecosystem: 'ECOSYSTEM_JAVA', totalCount: expect.stringMatching(/^\d+$/) as unknown },
      { ecosystem: 'ECOSYSTEM_PYTHON', totalCount },
    ])
  })

  // docs/spec/libraries.md#library-rights
  test('the capability in any one group is enough, and without it nothing is shown', async () => {
    const world = await imported(spec, (prefix) => [pypiDocument(`${prefix}-lib`, ['1.0'])])
    const member = await makeMember(spec.server, world.group, { role: 'viewer' })
    const other = await makeOrganisation(spec.server)
    expect(await names({ ...world, token: member.token })).toEqual(['lib'])
    expect(await names({ ...world, token: other.token })).toEqual(['lib'])
    const puller = await makeMember(spec.server, world.group, { role: 'registry.pull' })
    const requests: [string, JsonObject][] = [
      ['ListArtifacts', { ecosystems: python }],
      ['ListArtifactVersions', { artifactId: `python:${world.prefix}-lib` }],
      ['GetArtifactCount', { ecosystems: python }],
    ]
    for (const [rpc, request] of requests) expectFailure(await spec.call(rpc, request, { token: puller.token }), { code: 7, domain: 'libraries.taproot.dev' })
    await suspend(spec.server, other.group)
    expectFailure(await spec.call('ListArtifacts', { ecosystems: python }, { token: other.token }), { code: 7, domain: 'libraries.taproot.dev' })
  })
})

specSuite(
  'without an upstream there are no artifacts',
  (spec) => {
    test('lists are empty, and counts are 0', async () => {
      const { token } = await makeOrganisation(spec.server)
      const body = await spec.ok('ListArtifacts', { ecosystems: python }, { token })
      expect([itemsOf(body, 'artifacts'), Number(body['totalCount'])]).toEqual([[], 0])
      expectFailure(await spec.call('ListArtifactVersions', { artifactId: 'python:none' }, { token }), { code: 5, domain: 'libraries.taproot.dev' })
      const { counts } = await spec.ok('GetArtifactCount', { ecosystems: python }, { token })
      expect(counts).toEqual([{ ecosystem: 'ECOSYSTEM_PYTHON', totalCount: '0' }])
    })
  },
  { keepsContent: false },
)
