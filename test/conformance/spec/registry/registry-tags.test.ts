import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { freshName, makeMember, makeOrganisation, type Organisation } from '../../../support/test-server.ts'
import { descriptorOf, indexType, manifestOf, OciClient } from '../../../registry/oci/oci-client.ts'
import { makeRole, swept } from '../../walk/world.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

/** An organisation with a repo that holds images. */
interface Registry extends Organisation {
  readonly repo: string
  /** The repo's path at the registry host. */
  readonly path: string
  readonly client: OciClient
  /** Pushes a fresh image by its digest alone. */
  image(): Promise<string>
}

specSuite('tags', (spec) => {
  const registry = async (): Promise<Registry> => {
    const name = freshName('org')
    const organisation = await makeOrganisation(spec.server, name)
    const repo = uidOf(await spec.ok('CreateRepo', { parent: organisation.group, repo: { name: 'nginx' } }, { token: organisation.token }))
    const { host, port } = spec.server.config.registry
    const act = { issuer: 'https://issuer.example', subject: 'test', audience: host }
    const source = { identityUid: trustedUid(organisation.owner), audiences: [host], act, restrictions: {} }
    const client = new OciClient(port, (await spec.server.running.signIn.tokens.mint(source)).token)
    const path = `${name}/nginx`
    const image = async (): Promise<string> => {
      const manifest = await client.image(path)
      expect((await client.putManifest(path, manifest.digest, manifest)).status).toBe(201)
      return manifest.digest
    }
    return { ...organisation, repo, path, client, image }
  }
  const put = ({ repo, token }: Registry, tag: JsonObject) => spec.ok('CreateTag', { parent: repo, tag }, { token })
  const list = async ({ repo, token }: Registry, request: JsonObject = {}) =>
    itemsOf(await spec.ok('ListTags', { uidp: { childrenOf: repo }, orderBy: 'name', ...request }, { token }), 'tags')
  const namesOf = (tags: readonly JsonObject[]): unknown[] => tags.map((tag) => tag['name'])
  const history = async ({ repo, token }: Registry, tag: string, request: JsonObject = {}) =>
    itemsOf(await spec.ok('ListTagHistory', { repoUid: repo, tag, ...request }, { token }), 'history')
  const digestsOf = (records: readonly JsonObject[]): unknown[] => records.map((record) => record['digest'])

  // docs/spec/resources.md#record-fields
  test('a tag has name, digest, deprecated, updateTime and the common fields', async () => {
    const at = await registry()
    const digest = await at.image()
    const made = await put(at, { name: '1.27', digest })
    expect(made).toMatchObject({ name: '1.27', digest, deprecated: false, bundles: [] })
    expect(uidOf(made)).toMatch(new RegExp(`^${at.repo}/[0-9a-f]{16}$`))
    for (const time of ['createTime', 'updateTime']) expect(made[time]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    expect(await spec.ok('GetTag', { uid: uidOf(made) }, { token: at.token })).toEqual(made)
    at.client.close()
  })

  // docs/spec/conventions.md#list-filters
  test('GET /registry/v2/tags with uidp.children_of lists the tags of that repo alone', async () => {
    const at = await registry()
    const other = uidOf(await spec.ok('CreateRepo', { parent: at.group, repo: { name: 'other' } }, { token: at.token }))
    for (const name of ['1.26', '1.27', 'latest']) await put(at, { name, digest: await at.image() })
    expect(namesOf(await list(at))).toEqual(['1.26', '1.27', 'latest'])
    expect(namesOf(await list({ ...at, repo: other }))).toEqual([])
    expect(namesOf(await list(at, { uidp: { descendantsOf: at.group } }))).toEqual(['1.26', '1.27', 'latest'])
    expect(namesOf(await list(at, { orderBy: 'name desc', pageSize: 2 }))).toEqual(['latest', '1.27'])
    expect(namesOf(await list(at, { skip: 2 }))).toEqual(['latest'])
    if (spec.transport === 'rest') {
      const headers = { authorization: `Bearer ${at.token}` }
      const response = await fetch(`http://127.0.0.1:${spec.server.config.api.port}/registry/v2/tags?uidp.children_of=${at.repo}&order_by=name%20desc`, {
        headers,
      })
      expect(namesOf(((await response.json()) as { tags: JsonObject[] }).tags)).toEqual(['latest', '1.27', '1.26'])
    }
    at.client.close()
  })

  // docs/spec/conventions.md#tag-end-of-life
  test('end-of-life tags are found by listing 200 tags on a page and selecting deprecated ones', async () => {
    const at = await registry()
    const digest = await at.image()
    const names = Array.from({ length: 205 }, (_, n) => `v${String(n).padStart(3, '0')}`)
    await Promise.all(names.map((name, n) => put(at, { name, digest, deprecated: n % 50 === 0 })))
    const found: unknown[] = []
    const sizes: number[] = []
    for (let pageToken = ''; ;) {
      const page = await spec.ok('ListTags', { uidp: { childrenOf: at.repo }, pageSize: 200, pageToken }, { token: at.token })
      const tags = itemsOf(page, 'tags')
      sizes.push(tags.length)
      found.push(...namesOf(tags.filter((tag) => tag['deprecated'] === true)))
      pageToken = String(page['nextPageToken'] ?? '')
      if (pageToken === '') break
    }
    expect(sizes).toEqual([200, 5])
    expect(found.sort()).toEqual(['v000', 'v050', 'v100', 'v150', 'v200'])
    at.client.close()
  })

  // docs/spec/registry.md#deprecated-tags
  test('deprecated is true or false, and may be set and cleared', async () => {
    const at = await registry()
    const digest = await at.image()
    expect(await put(at, { name: 'old', digest, deprecated: true })).toMatchObject({ deprecated: true })
    expect(await put(at, { name: 'old', digest })).toMatchObject({ deprecated: false })
    expect(digestsOf(await history(at, 'old'))).toEqual([digest])
    at.client.close()
  })

  // docs/spec/registry.md#tag-creation
  test('creating an existing tag moves it; history grows only if the digest changes', async () => {
    const at = await registry()
    const [one, two] = [await at.image(), await at.image()]
    const first = await put(at, { name: 'latest', digest: one })
    const same = await put(at, { name: 'latest', digest: one })
    expect(uidOf(same)).toBe(uidOf(first))
    const moved = await put(at, { name: 'latest', digest: two })
    expect(moved).toMatchObject({ uid: uidOf(first), digest: two, createTime: first['createTime'] })
    await put(at, { name: 'latest', digest: one })
    expect(digestsOf(await history(at, 'latest'))).toEqual([one, two, one])
    const refused = await spec.call('CreateTag', { parent: at.repo, tag: { name: 'latest', digest: two } }, { token: at.token, ifNoneMatch: '*' })
    expectFailure(refused, { code: 6, domain: 'registry.taproot.dev' })
    at.client.close()
  })

  // docs/spec/registry.md#tag-creation
  test("a tag's digest must be in the repo: code 9 DIGEST_NOT_FOUND", async () => {
    const [mine, theirs] = [await registry(), await registry()]
    const foreign = await theirs.image()
    for (const digest of [foreign, `sha256:${'0'.repeat(64)}`]) {
      const reply = await spec.call('CreateTag', { parent: mine.repo, tag: { name: 'stolen', digest } }, { token: mine.token })
      expectFailure(reply, { code: 9, reason: 'DIGEST_NOT_FOUND' })
    }
    for (const { client } of [mine, theirs]) client.close()
  })

  // docs/spec/registry.md#tag-families
  test('referrer, dated and epoch tags are hidden by default; an exact name finds them', async () => {
    const at = await registry()
    const digest = await at.image()
    const families = {
      plain: ['1.27', '20260101', 'r1'],
      referrers: [`sha256-${'0'.repeat(8)}`],
      dates: ['1.27-20260101', '1.27-202601011230'],
      epochs: ['1.27-r0'],
    }
    for (const name of Object.values(families).flat()) await put(at, { name, digest })
    const names = async (request: JsonObject) => namesOf(await list(at, request)).sort()
    expect(await names({})).toEqual([...families.plain].sort())
    expect(await names({ includeReferrers: true })).toEqual([...families.plain, ...families.referrers].sort())
    expect(await names({ includeDates: true })).toEqual([...families.plain, ...families.dates].sort())
    expect(await names({ includeEpochs: true })).toEqual([...families.plain, ...families.epochs].sort())
    expect(await names({ includeReferrers: true, includeDates: true, includeEpochs: true })).toEqual(Object.values(families).flat().sort())
    expect(await names({ name: '1.27-r0' })).toEqual(['1.27-r0'])
    at.client.close()
  })

  // docs/spec/registry.md#tag-families
  test('a deprecated tag is listed and counted in every family, and hidden again once it is not deprecated', async () => {
    const at = await registry()
    const digest = await at.image()
    const hidden = [`sha256-${'0'.repeat(8)}`, '1.27-20260101', '1.27-r0']
    await put(at, { name: '1.27', digest })
    for (const name of hidden) await put(at, { name, digest })
    const listed = async (request: JsonObject = {}): Promise<unknown> => {
      const page = await spec.ok('ListTags', { uidp: { childrenOf: at.repo }, ...request }, { token: at.token })
      return [namesOf(itemsOf(page, 'tags')).sort(), page['totalCount']]
    }
    expect(await listed()).toEqual([['1.27'], '1'])
    for (const name of hidden) await put(at, { name, digest, deprecated: true })
    expect(await listed()).toEqual([['1.27', ...hidden].sort(), '4'])
    expect(await listed({ includeDates: true, orderBy: 'name desc', pageSize: 200 })).toEqual([['1.27', ...hidden].sort(), '4'])
    await put(at, { name: '1.27-r0', digest, deprecated: false })
    expect(await listed()).toEqual([['1.27', ...hidden.slice(0, 2)].sort(), '3'])
    at.client.close()
  })

  // docs/spec/registry.md#tag-filters
  test('the filter digest finds tags with that digest, updated_since tags changed strictly later', async () => {
    const at = await registry()
    const [one, two] = [await at.image(), await at.image()]
    const first = await put(at, { name: 'a', digest: one })
    await put(at, { name: 'b', digest: two })
    const last = await put(at, { name: 'c', digest: one })
    expect(namesOf(await list(at, { digest: one }))).toEqual(['a', 'c'])
    const since = async (updatedSince: unknown) => namesOf(await list(at, { updatedSince: String(updatedSince) }))
    expect(await since(last['updateTime'])).toEqual([])
    expect(await since('2001-01-01T00:00:00Z')).toEqual(['a', 'b', 'c'])
    expect(await since(first['updateTime'])).not.toContain('a')
    at.client.close()
  })

  // docs/spec/conventions.md#deletion-order
  test('tags of a deleted repo disappear at once, their history is kept', async () => {
    const at = await registry()
    const digest = await at.image()
    const tag = uidOf(await put(at, { name: 'latest', digest }))
    await spec.ok('DeleteRepo', { uid: at.repo }, { token: at.token })
    expectFailure(await spec.call('GetTag', { uid: tag }, { token: at.token }), { code: 5 })
    expect(await list(at)).toEqual([])
    expect(digestsOf(await history(at, 'latest'))).toEqual([digest])
    const { store } = spec.server.running.engine
    await swept(spec.server)
    for (const prefix of [`r/Tag/${at.repo}/`, `i/name/Tag/${at.repo}:`, `i/sweep/${at.repo}`])
      expect((await store.range({ prefix, limit: 1 }, AbortSignal.timeout(60_000))).entries, prefix).toEqual([])
    at.client.close()
  })

  // docs/spec/registry.md#tag-history
  test('history lists former digests oldest first, in pages, start inclusive, end exclusive', async () => {
    const at = await registry()
    const digests = [await at.image(), await at.image(), await at.image()]
    for (const digest of digests) await put(at, { name: 'latest', digest })
    const all = await history(at, 'latest')
    expect(digestsOf(all)).toEqual(digests)
    const [first = '', second = '', third = ''] = all.map((record) => String(record['updateTimestamp']))
    for (const time of [first, second, third]) expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    expect([first, second, third]).toEqual([first, second, third].toSorted())
    expect(digestsOf(await history(at, 'latest', { start: second }))).toEqual(digests.slice(1))
    expect(digestsOf(await history(at, 'latest', { end: third }))).toEqual(digests.slice(0, 2))
    expect(await history(at, 'latest', { start: '2100-01-01T00:00:00Z' })).toEqual([])
    const page = await spec.ok('ListTagHistory', { repoUid: at.repo, tag: 'latest', pageSize: 2 }, { token: at.token })
    expect(digestsOf(itemsOf(page, 'history'))).toEqual(digests.slice(0, 2))
    expect(digestsOf(await history(at, 'latest', { pageSize: 2, pageToken: page['nextPageToken'] ?? '' }))).toEqual(digests.slice(2))
    at.client.close()
  })

  // docs/spec/conventions.md#page-tokens
  test('page tokens of repos, tags and histories are valid for three days; an expired one restarts from the beginning', async () => {
    const at = await registry()
    for (const name of ['second', 'third']) await spec.ok('CreateRepo', { parent: at.group, repo: { name } }, { token: at.token })
    for (const name of ['1.26', '1.27', 'latest']) await put(at, { name, digest: await at.image() })
    for (let moves = 0; moves < 2; moves++) await put(at, { name: 'latest', digest: await at.image() })
    const lists = [
      ['ListRepos', 'repos', { uidp: { childrenOf: at.group } }],
      ['ListTags', 'tags', { uidp: { childrenOf: at.repo } }],
      ['ListTagHistory', 'history', { repoUid: at.repo, tag: 'latest' }],
    ] as const
    for (const [rpc, items, request] of lists) {
      const ask = async (pageToken: string) => spec.call(rpc, { ...request, pageSize: 2, pageToken }, { token: await spec.server.tokenFor(at.owner) })
      const first = await ask('')
      const pageToken = String(first.body['nextPageToken'])
      spec.clock.advance(3 * 24 * 3_600_000 - 3_600_000)
      expect(itemsOf((await ask(pageToken)).body, items), `${rpc} goes on`).toHaveLength(1)
      spec.clock.advance(2 * 3_600_000)
      const expired = await ask(pageToken)
      expect(expired.header('page-token-restarted')).toBe('true')
      expect(itemsOf(expired.body, items), `${rpc} begins again`).toEqual(itemsOf(first.body, items))
    }
    at.client.close()
  })

  test('part D.5 a tag is restored to a digest of its history, by digest or by time, also after its deletion', async () => {
    const at = await registry()
    const [one, two] = [await at.image(), await at.image()]
    await put(at, { name: 'latest', digest: one })
    const moved = await put(at, { name: 'latest', digest: two })
    const restore = (request: JsonObject) => spec.call('RestoreTag', { repoUid: at.repo, tag: 'latest', ...request }, { token: at.token })
    const back = await restore({ digest: one })
    expect(back.body).toMatchObject({ uid: uidOf(moved), name: 'latest', digest: one })
    const [, second] = await history(at, 'latest')
    expect((await restore({ time: second?.['updateTimestamp'] ?? '' })).body).toMatchObject({ digest: two })
    await spec.ok('DeleteTag', { uid: uidOf(moved) }, { token: at.token })
    expect(await list(at)).toEqual([])
    expect((await restore({ digest: one })).body).toMatchObject({ name: 'latest', digest: one })
    expect(digestsOf(await history(at, 'latest'))).toEqual([one, two, one, two, one])
    expectFailure(await restore({ digest: `sha256:${'0'.repeat(64)}` }), { code: 9, reason: 'DIGEST_NOT_IN_HISTORY' })
    at.client.close()
  })

  test('part D.5 a digest whose content the upstream no longer has can not be restored (code 9)', async () => {
    const at = await registry()
    const [one, two] = [await at.image(), await at.image()]
    for (const digest of [one, two]) await put(at, { name: 'latest', digest })
    expect((await at.client.send('DELETE', `/v2/${at.path}/manifests/${one}`)).status).toBe(202)
    const files = join(spec.server.config.registry.upstream?.directory ?? '', 'repos', at.repo, 'manifests')
    await rm(files, { recursive: true })
    const reply = await spec.call('RestoreTag', { repoUid: at.repo, tag: 'latest', digest: one }, { token: at.token })
    expectFailure(reply, { code: 9, reason: 'DIGEST_NOT_FOUND' })
    at.client.close()
  })

  // docs/spec/version-1.md#tags
  test('a tag that version 1 creates without a digest has no content and no history, until a push gives it a digest', async () => {
    const at = await registry()
    const { client, path, repo, token } = at
    const tag = await spec.ok('Registry/CreateTag', { repoId: repo, tag: { name: 'soon', bundles: ['base'] } }, { token })
    const uid = String(tag['id'])
    expect(tag).toMatchObject({ name: 'soon', digest: '', bundles: ['base'] })
    expect(await spec.ok('GetTag', { uid }, { token })).toMatchObject({ name: 'soon', digest: '' })
    expect((await client.send('GET', `/v2/${path}/manifests/soon`)).status).toBe(404)
    const { digest: other } = await client.pushImage(path, 'other')
    const listed = async (query = ''): Promise<unknown> => JSON.parse((await client.send('GET', `/v2/${path}/tags/list${query}`)).body.toString())
    expect(await listed()).toMatchObject({ tags: ['other'] })
    expect(await listed('?n=1')).toMatchObject({ tags: ['other'] })
    expectFailure(await spec.call('ListTagHistory', { repoUid: repo, tag: 'soon' }, { token }), { code: 5 })
    const again = await spec.ok('Registry/CreateTag', { repoId: repo, tag: { name: 'soon', bundles: ['base'] } }, { token })
    expect(again).toEqual(tag)
    const { digest } = await client.pushImage(path, 'soon')
    expect(await spec.ok('Registry/UpdateTag', { id: uid, name: 'soon', deprecated: true }, { token })).toMatchObject({ digest, deprecated: true, bundles: [] })
    expect(digestsOf(await history(at, 'soon'))).toEqual([digest])
    expect(await listed()).toMatchObject({ tags: ['other', 'soon'] })
    const empty = await spec.ok('Registry/CreateTag', { repoId: repo, tag: { name: 'never' } }, { token })
    await spec.ok('DeleteTag', { uid: String(empty['id']) }, { token })
    expectFailure(await spec.call('ListTagHistory', { repoUid: repo, tag: 'never' }, { token }), { code: 5 })
    expectFailure(await spec.call('CreateTag', { parent: repo, tag: { name: 'never' } }, { token }), { code: 3, fields: ['digest'] })
    expect(other).not.toBe(digest)
    client.close()
  })

  // docs/spec/registry.md#images
  test('architectures are those of the index in its order; the size counts layers and config, of amd64 by default', async () => {
    const at = await registry()
    const { client, path, repo, token } = at
    const images = [await client.image(path, {}, 'arm64'), await client.image(path, {}, 'amd64'), await client.image(path, {}, 'unknown')]
    for (const each of images) await client.putManifest(path, each.digest, each)
    const platforms = ['arm64', 'amd64', 'unknown']
    const manifests = images.map((each, n) => ({ ...descriptorOf(each), platform: { architecture: platforms[n] ?? '', os: 'linux' } }))
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests })
    expect((await client.putManifest(path, 'latest', index)).status).toBe(201)
    const about = { repoUid: repo, digest: index.digest }
    expect(await spec.ok('GetArchitectures', about, { token })).toEqual({ architectures: ['arm64', 'amd64'] })
    const sizeOf = (bytes: Uint8Array): string => {
      const { config, layers } = JSON.parse(Buffer.from(bytes).toString()) as { config: { size: number }; layers: { size: number }[] } // an image manifest
      return String(layers.reduce((sum, layer) => sum + layer.size, config.size))
    }
    expect(await spec.ok('GetSize', about, { token })).toEqual({ size: sizeOf(images[1]?.bytes ?? Buffer.from('')), architecture: 'amd64' })
    expect(await spec.ok('GetSize', { ...about, architecture: 'arm64' }, { token })).toEqual({
      size: sizeOf(images[0]?.bytes ?? Buffer.from('')),
      architecture: 'arm64',
    })
    expectFailure(await spec.call('GetSize', { ...about, architecture: 's390x' }, { token }), { code: 5 })
    client.close()
  })

  // docs/spec/registry.md#tag-creation
  test('moving a tag needs tag.create alone, its history tag.list, an image size more than repo.list', async () => {
    const at = await registry()
    const [one, two] = [await at.image(), await at.image()]
    const member = async (...capabilities: string[]) =>
      (await makeMember(spec.server, at.group, { role: await makeRole(spec.server, at.group, capabilities) })).token
    const writer = await member('tag.create')
    for (const digest of [one, two]) await spec.ok('CreateTag', { parent: at.repo, tag: { name: 'latest', digest } }, { token: writer })
    expectFailure(await spec.call('ListTagHistory', { repoUid: at.repo, tag: 'latest' }, { token: writer }), { code: 7 })
    expect(await spec.call('ListTagHistory', { repoUid: at.repo, tag: 'latest' }, { token: await member('tag.list') })).toMatchObject({ code: 0 })
    expectFailure(await spec.call('GetSize', { repoUid: at.repo, digest: one }, { token: await member('repo.list') }), { code: 7 })
    at.client.close()
  })
})
