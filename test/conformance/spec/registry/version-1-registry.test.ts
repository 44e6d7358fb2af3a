import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { OciClient } from '../../../registry/oci/oci-client.ts'
import { freshName, makeOrganisation, type Organisation, type TestServer } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuiteEverywhere } from '../spec-suite.ts'

/** Pushes an image to a repo of the organisation, and returns its digest. */
async function pushTo(server: TestServer, { group, owner }: Organisation, repo: string): Promise<string> {
  const { host, port } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'test', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  const client = new OciClient(port, token)
  const { digest } = await client.pushImage(`${group}/${repo}`, 'latest')
  client.close()
  return digest
}

specSuiteEverywhere('version 1 of the registry', (spec) => {
  // docs/spec/version-1.md#repos
  test('a create of a repo that exists replaces it, with its readme, and keeps its overlay', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('repo')
    const first = { name, description: 'one', readme: '# One', catalogTier: 'BASE', bundles: ['base'], customOverlay: { environment: { A: 'b' } } }
    const made = await spec.ok('Registry/CreateRepo', { parentId: group, repo: first }, { token })
    expect(made).toMatchObject(first)
    const id = String(made['id'])
    const again = await spec.ok('Registry/CreateRepo', { parentId: group, repo: { name, readme: '# Two' } }, { token })
    expect(again).toMatchObject({
      id,
      description: '',
      readme: '# Two',
      catalogTier: 'UNKNOWN',
      bundles: [],
      createTime: made['createTime'],
      customOverlay: { environment: { A: 'b' } },
    })
    expectFailure(await spec.call('Registry/CreateRepo', { parentId: group, repo: { name }, preventExisting: true }, { token }), { code: 6 })
    expect(itemsOf(await spec.ok('Registry/ListRepos', { id }, { token }), 'items')).toEqual([again])
    expect(itemsOf(await spec.ok('Registry/ListRepos', { uidp: { childrenOf: group } }, { token }), 'items')).toMatchObject([{ id, readme: '' }])
    expect(await spec.ok('GetRepo', { uid: id }, { token })).toMatchObject({ name, catalogTier: 'CATALOG_TIER_UNSPECIFIED' })
    expect(await spec.ok('Registry/UpdateRepo', { id, name, description: 'three' }, { token })).toMatchObject({ id, description: 'three', readme: '' })
    expect(await spec.ok('GetRepoReadme', { uid: id }, { token })).toMatchObject({ content: '' })
  })

  // docs/spec/version-1.md#repos
  test('a create with If-None-Match replaces no repo, and a repeated one with an Idempotency-Key keeps a newer readme', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const repo = { name: freshName('repo'), readme: '# One' }
    const once = { token, idempotencyKey: freshName('key') }
    const made = await spec.call('Registry/CreateRepo', { parentId: group, repo }, once)
    expect(made.body).toMatchObject(repo)
    const id = String(made.body['id'])
    const other = { parentId: group, repo: { name: repo.name, readme: '# Other' } }
    expectFailure(await spec.call('Registry/CreateRepo', other, { token, ifNoneMatch: '*' }), { code: 6 })
    expectFailure(await spec.call('Registry/CreateRepo', other, { token: 'none' }), { code: 16 })
    const updated = await spec.ok('Registry/UpdateRepo', { id, name: repo.name, description: 'newer', readme: '# Two' }, { token })
    expect((await spec.call('Registry/CreateRepo', { parentId: group, repo }, once)).body).toEqual(updated)
    expect(itemsOf(await spec.ok('Registry/ListRepos', { id }, { token }), 'items')).toEqual([updated])
  })

  // docs/spec/version-1.md#repos
  test('a create that replaces a repo happens once for its Idempotency-Key, and so does one of its readme alone', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('repo')
    const made = await spec.ok('Registry/CreateRepo', { parentId: group, repo: { name, description: 'first', readme: '# One' } }, { token })
    const id = String(made['id'])
    for (const repo of [
      { name, description: 'second', readme: '# One' },
      { name, description: 'second', readme: '# Two' },
    ]) {
      const options = { token, idempotencyKey: freshName('key') }
      expect(await spec.ok('Registry/CreateRepo', { parentId: group, repo }, options)).toMatchObject({ id, ...repo })
      expectFailure(await spec.call('Registry/CreateRepo', { parentId: group, repo: { ...repo, description: 'other' } }, options), {
        code: 3,
        reason: 'IDEMPOTENCY_KEY_REUSED',
      })
      for (const other of [{ repo: { ...repo, readme: '# Other' } }, { repo, preventExisting: true }])
        expectFailure(await spec.call('Registry/CreateRepo', { parentId: group, ...other }, options), { code: 3, reason: 'IDEMPOTENCY_KEY_REUSED' })
      const newer = { description: freshName('newer'), readme: '# Newer' }
      await spec.ok('Registry/UpdateRepo', { id, name, ...newer }, { token })
      const { etag } = await spec.ok('GetRepo', { uid: id }, { token })
      expect(await spec.ok('Registry/CreateRepo', { parentId: group, repo }, options)).toMatchObject({ id, ...newer })
      expect(await spec.ok('GetRepo', { uid: id }, { token })).toMatchObject({ etag })
      expect(await spec.ok('GetRepoReadme', { uid: id }, { token })).toMatchObject({ content: newer.readme })
    }
  })

  // docs/spec/version-1.md#repos
  test('a create that ends the sync of a repo happens once for its Idempotency-Key', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const create = (repo: JsonObject, more: { idempotencyKey?: string } = {}) => spec.ok('Registry/CreateRepo', { parentId: group, repo }, { token, ...more })
    const { id: source = '' } = await create({ name: freshName('source'), readme: '# Source' })
    for (const readme of ['', '# Source']) {
      const name = freshName('repo')
      const { id = '' } = await create({ name, sync_config: { source } })
      const key = { idempotencyKey: freshName('key') }
      const repo = { name, description: 'own', readme }
      expect(await create(repo, key)).toMatchObject({ id, ...repo, sync_config: null })
      const newer = await spec.ok('Registry/UpdateRepo', { id, name, description: 'newer', readme: '# Newer' }, { token })
      expect(await create(repo, key)).toEqual(newer)
    }
  })

  // docs/spec/version-1.md#repos
  test('a readme that is refused is named as the field of the repo, and nothing is written', async () => {
    const [{ group, token }, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const [name, fields] = [freshName('repo'), ['readme']]
    const refused = ['<script>alert(1)</script>', 'x'.repeat(600 * 1024)]
    for (const readme of refused) {
      const request = { parentId: group, repo: { name, readme } }
      expectFailure(await spec.call('Registry/CreateRepo', request, { token }), { code: 3, fields })
      expectFailure(await spec.call('Registry/CreateRepo', request, { token, validateOnly: true }), { code: 3, fields })
      expectFailure(await spec.call('Registry/CreateRepo', request, { token: other.token }), { code: 5 })
    }
    expect(await spec.ok('Registry/ListRepos', { uidp: { childrenOf: group } }, { token })).toEqual({ items: [] })
    const made = await spec.ok('Registry/CreateRepo', { parentId: group, repo: { name, description: 'kept', readme: '# Kept' } }, { token })
    const id = String(made['id'])
    for (const readme of refused) {
      expectFailure(await spec.call('Registry/UpdateRepo', { id, name, description: 'lost', readme }, { token }), { code: 3, fields })
      expectFailure(await spec.call('Registry/CreateRepo', { parentId: group, repo: { name, readme } }, { token }), { code: 3, fields })
    }
    const missing = { id: `${group}/${'0'.repeat(16)}`, name, readme: refused[0] ?? '' }
    expectFailure(await spec.call('Registry/UpdateRepo', missing, { token }), { code: 5 })
    const mirror = { name: freshName('mirror'), sync_config: { source: id } }
    expectFailure(await spec.call('Registry/CreateRepo', { parentId: group, repo: { ...mirror, readme: '# Own' } }, { token }), { code: 3, fields })
    expect(itemsOf(await spec.ok('Registry/ListRepos', { id }, { token }), 'items')).toEqual([made])
    const synced = await spec.ok('Registry/CreateRepo', { parentId: group, repo: mirror }, { token })
    expect(synced).toMatchObject({ readme: '# Kept' })
    expectFailure(await spec.call('Registry/UpdateRepo', { ...synced, description: 'lost', readme: '# Own' }, { token }), { code: 3, fields })
    expect(await spec.ok('Registry/UpdateRepo', { ...synced, description: 'sent back' }, { token })).toMatchObject({
      readme: '# Kept',
      description: 'sent back',
    })
  })

  // docs/spec/version-1.md#deployments
  test('a repo has the charts of its deployment, until they or the repo are removed', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const repoId = String((await spec.ok('Registry/CreateRepo', { parentId: group, repo: { name: freshName('repo') } }, { token }))['id'])
    const [charts, other] = [[{ repo: 'oci://charts.example/app' }], [{ repo: 'https://charts.example', chart: 'web', source: 'https://git.example' }]]
    expect(await spec.ok('Registry/GetDeployment', { repoId }, { token })).toEqual({ id: repoId, charts: [] })
    const dry = await spec.ok('Registry/CreateDeployment', { parentId: repoId, charts }, { token, validateOnly: true })
    expect(dry).toEqual({ id: repoId, charts })
    const once = { token, idempotencyKey: freshName('key') }
    const made = await spec.call('Registry/CreateDeployment', { parentId: repoId, charts }, once)
    expect(made.body).toEqual({ id: repoId, charts })
    expect((await spec.call('Registry/CreateDeployment', { parentId: repoId, charts }, once)).body).toEqual(made.body)
    expectFailure(await spec.call('Registry/CreateDeployment', { parentId: repoId, charts: other }, { token }), { code: 6 })
    expect(await spec.ok('Registry/UpdateDeployment', { repoId, charts: other }, { token })).toEqual({ id: repoId, charts: other })
    const stale = { token, ifMatch: 'stale' }
    expectFailure(await spec.call('Registry/UpdateDeployment', { repoId, charts }, stale), { code: 10, reason: 'ETAG_MISMATCH' })
    expect(await spec.ok('Registry/GetDeployment', { repoId }, { token })).toEqual({ id: repoId, charts: other })
    for (let times = 0; times < 2; times++) expect(await spec.ok('Registry/UpdateDeployment', { repoId }, { token })).toEqual({ id: repoId, charts: [] })
    await spec.ok('Registry/CreateDeployment', { parentId: repoId, charts }, { token })
    const kept = () => spec.server.running.engine.store.get(`x/deployment/${repoId}`, AbortSignal.timeout(60_000))
    expect(await kept()).toBeDefined()
    await spec.ok('DeleteRepo', { uid: repoId }, { token })
    expect(await kept()).toBeUndefined()
    expectFailure(await spec.call('Registry/GetDeployment', { repoId }, { token }), { code: 5 })
    expectFailure(await spec.call('Registry/UpdateDeployment', { repoId, charts }, { token }), { code: 5 })
    expect(await kept()).toBeUndefined()
  })

  // docs/spec/version-1.md#tags
  test('a tag without a digest keeps its digest, and lists have all families of tags', async () => {
    const organisation = await makeOrganisation(spec.server)
    const { group, token } = organisation
    const repo = await spec.ok('Registry/CreateRepo', { parentId: group, repo: { name: freshName('repo') } }, { token })
    const repoId = String(repo['id'])
    const digest = await pushTo(spec.server, organisation, String(repo['name']))
    const made = await spec.ok('Registry/CreateTag', { repoId, tag: { name: '1.0-r3', digest, bundles: ['base'] } }, { token })
    const id = String(made['id'])
    expect(made).toMatchObject({ name: '1.0-r3', digest, deprecated: false })
    expect(await spec.ok('Registry/CreateTag', { repoId, tag: { name: '1.0-r3' } }, { token })).toMatchObject({ id, digest, bundles: [] })
    expect(await spec.ok('Registry/UpdateTag', { id, deprecated: true }, { token })).toMatchObject({ id, digest, deprecated: true })
    expectFailure(await spec.call('Registry/UpdateTag', { id, name: 'other' }, { token }), { code: 3, fields: ['name'] })
    await spec.ok('Registry/UpdateTag', { id, name: '1.0-r3' }, { token })
    const named = async (filter: JsonObject): Promise<unknown[]> =>
      itemsOf(await spec.ok('Registry/ListTags', { uidp: { childrenOf: repoId }, ...filter }, { token }), 'items')
        .map(({ name }) => name)
        .toSorted()
    expect(await named({})).toEqual(['1.0-r3', 'latest'])
    expect(await named({ excludeEpochs: true })).toEqual(['latest'])
    expect(await named({ id })).toEqual(['1.0-r3'])
    expect(await spec.ok('Registry/DeleteTag', { id }, { token })).toEqual({})
    expect(await named({ id })).toEqual([])
    expectFailure(await spec.call('Registry/UpdateTag', { id }, { token }), { code: 5 })
  })
})
