import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { makeImageWorld, pushAnnotated as push, pushManifest, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { descriptorOf, indexType, manifestOf } from '../../../registry/oci/oci-client.ts'
import { importProduct } from '../../../support/import-advisories.ts'
import type { Reply } from '../../../support/api-clients.ts'
import { makeMember, ok } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite } from '../spec-suite.ts'

specSuite('life cycles of tags', (spec) => {
  const tagsOf = async ({ repo, token }: ImageWorld, request: JsonObject = {}): Promise<JsonObject> =>
    spec.ok('ListEolTags', { repoUid: repo, ...request }, { token })

  // docs/spec/registry.md#life-cycle-of-tags
  test('a tag has the life cycle of its product, or of its base image; else its status is not known', async () => {
    const world = await makeImageWorld(spec.server)
    const cycles = [
      { cycle: '3', releaseDate: '2099-01-01', eol: '2100-10-31', latest: '3.9', lts: true },
      { cycle: '2', releaseDate: '2010-01-01', eol: '2020-01-01', extendedSupport: '2100-01-01', latest: '2.7' },
      { cycle: '1', releaseDate: '2000-01-01', eol: '2010-01-01', latest: '1.5' },
    ]
    const product = await importProduct(spec.server, world.group, cycles)
    const { digest } = await push(world, 'active', { title: product, version: 'v3.1' })
    await push(world, '2.7', { title: product })
    await push(world, 'based', { title: 'an-app', version: '9', 'base.name': `docker.io/library/${product}:1.5-slim` })
    await push(world, 'none', {})
    await push(world, 'other', { title: product, version: '4' })
    const image = await push(world, '', { title: product, version: '1' })
    await pushManifest(world, 'index', manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(image)] }))
    const answer = await tagsOf(world)
    expect(answer).toMatchObject({ totalCount: '6', hasLifeCycles: true })
    const byName = Object.fromEntries(itemsOf(answer, 'eolTags').map(({ name, ...tag }) => [String(name), tag]))
    expect(byName).toMatchObject({
      active: {
        digest,
        mainPackageName: product,
        tagStatus: 'TAG_ACTIVE',
        graceStatus: 'GRACE_NOT_ELIGIBLE',
        mainPackageVersion: {
          cycle: '3',
          version: 'v3.1',
          releaseDate: '2099-01-01',
          eolDate: '2100-10-31',
          lts: true,
          latestVersion: '3.9',
          baseImage: false,
        },
      },
      '2.7': { tagStatus: 'TAG_IN_GRACE', graceStatus: 'GRACE_ACTIVE', gracePeriodExpiryTime: '2100-01-02T00:00:00.000Z', mainPackageVersion: { cycle: '2' } },
      based: { mainPackageName: product, tagStatus: 'TAG_INACTIVE', mainPackageVersion: { cycle: '1', version: '1.5-slim', baseImage: true } },
      none: { mainPackageName: '', tagStatus: 'TAG_UNKNOWN' },
      other: { mainPackageName: '', tagStatus: 'TAG_UNKNOWN' },
      index: { tagStatus: 'TAG_INACTIVE', mainPackageVersion: { version: '1' } },
    })
    // docs/spec/version-1.md#tags
    const inVersion1 = itemsOf(await spec.ok('Registry/ListEolTags', { uidp: { descendantsOf: world.group } }, { token: world.token }), 'items')
    const unknown = { exists: false, version: '', eolDate: '' }
    expect(Object.fromEntries(inVersion1.map(({ name, ...tag }) => [String(name), tag]))).toMatchObject({
      active: {
        mainPackageName: product,
        tagStatus: 'TAG_ACTIVE',
        graceStatus: 'GRACE_NOT_ELIGIBLE',
        mainPackageVersion: { exists: true, version: '3', releaseDate: '2099-01-01', eolDate: '2100-10-31', lts: true, latestVersion: '3.9' },
      },
      '2.7': { tagStatus: 'TAG_IN_GRACE', graceStatus: 'GRACE_ACTIVE', gracePeriodExpiryDate: '2100-01-02T00:00:00.000Z' },
      based: { tagStatus: 'TAG_INACTIVE', mainPackageVersion: { exists: true, version: '1' } },
      none: { mainPackageName: '', tagStatus: 'TAG_ACTIVE', mainPackageVersion: unknown },
      other: { mainPackageName: '', tagStatus: 'TAG_ACTIVE', mainPackageVersion: unknown },
      index: { tagStatus: 'TAG_INACTIVE' },
    })
  })

  // docs/spec/version-1.md#versions-of-products
  test('a product has its versions, newest first, those whose support has ended apart', async () => {
    const world = await makeImageWorld(spec.server)
    const product = await importProduct(spec.server, world.group, [
      { cycle: '9', releaseDate: '2015-01-01', eol: true },
      { cycle: '10', releaseDate: '2016-01-01', eol: '2020-01-01', latest: '10.4' },
      { cycle: '8', releaseDate: '2014-01-01', eol: '2019-01-01', latest: '8.7' },
      { cycle: '11', releaseDate: '2017-01-01', eol: '2100-01-01', latest: '11.2', lts: true },
      { cycle: '12', releaseDate: '2018-01-01', eol: false, latest: '12.1' },
      { cycle: '2', eol: false },
    ])
    const read = (name: string, token = world.token): Promise<Reply> => spec.call('Registry/GetPackageVersionMetadata', { package: name }, { token })
    const found = ok(await read(product))
    expect(found).toMatchObject({
      latestVersion: '12',
      versions: [
        { version: '12', exists: true, releaseDate: '2018-01-01', latestVersion: '12.1' },
        { version: '11', exists: true, eolDate: '2100-01-01', lts: true },
        { version: '9', releaseDate: '2015-01-01' },
        { version: '2', exists: true },
      ],
      eolVersions: [
        { version: '10', exists: true, releaseDate: '2016-01-01', eolDate: '2020-01-01', latestVersion: '10.4' },
        { version: '8', eolDate: '2019-01-01' },
      ],
    })
    expect(itemsOf(found, 'versions')[2]?.['exists'] ?? false).toBe(false)
    expect(Date.now() - Date.parse(String(found['lastUpdatedTimestamp']))).toBeLessThan(600_000)
    expect(ok(await read(product.toUpperCase()))).toEqual(found)
    expectFailure(await read(`${product}-x`), { code: 5 })
    expectFailure(await read(product, (await makeMember(spec.server, world.group)).token), { code: 7 })
  })

  test('tags come in pages, without families that are hidden, and by name', async () => {
    const world = await makeImageWorld(spec.server)
    const manifest = await push(world, 'one', {})
    for (const name of ['two', 'three', 'old-20260101']) await pushManifest(world, name, manifest)
    const names: unknown[] = []
    for (let pageToken = ''; ;) {
      const page = await tagsOf(world, { pageSize: 2, pageToken })
      expect(page).toMatchObject({ totalCount: '3' })
      names.push(...itemsOf(page, 'eolTags').map(({ name }) => name))
      pageToken = String(page['nextPageToken'] ?? '')
      if (pageToken === '') break
    }
    expect(names.sort()).toEqual(['one', 'three', 'two'])
    expect(await tagsOf(world, { includeDates: true })).toMatchObject({ totalCount: '4' })
    expect(itemsOf(await tagsOf(world, { name: 'two' }), 'eolTags').map(({ name }) => name)).toEqual(['two'])
    // docs/spec/version-1.md#tags
    const inVersion1 = async (request: JsonObject = {}): Promise<JsonObject> =>
      spec.ok('Registry/ListEolTags', { uidp: { childrenOf: world.repo }, ...request }, { token: world.token })
    const namesIn = (page: JsonObject): unknown[] => itemsOf(page, 'items').map(({ name }) => name)
    const first = await inVersion1({ pageSize: '3' })
    const second = await inVersion1({ pageSize: '3', pageToken: String(first['nextPageToken']) })
    expect([...namesIn(first), ...namesIn(second)].sort()).toEqual(['old-20260101', 'one', 'three', 'two'])
    expect(second).not.toHaveProperty('nextPageToken')
    expect(namesIn(await inVersion1({ excludeDates: true, pageSize: '9007199254740993' })).sort()).toEqual(['one', 'three', 'two'])
    expect(namesIn(await inVersion1({ name: 'two' }))).toEqual(['two'])
  })

  test('a repo of another organisation is not found', async () => {
    const [world, other] = [await makeImageWorld(spec.server), await makeImageWorld(spec.server)]
    expectFailure(await spec.call('ListEolTags', { repoUid: world.repo }, { token: other.token }), { code: 5 })
    const inVersion1 = await spec.ok('Registry/ListEolTags', { uidp: { childrenOf: world.repo } }, { token: other.token })
    expect(inVersion1).toEqual({ items: [] })
  })
})
