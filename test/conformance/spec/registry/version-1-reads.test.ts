import { randomBytes } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { freshName, makeMember, makeOrganisation, makePerson, roleUid, type Organisation } from '../../../support/test-server.ts'
import { descriptorOf, imageType, indexType, manifestOf, OciClient, type TestManifest } from '../../../registry/oci/oci-client.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

/** An organisation with a repo, and a client of the registry host. */
interface Images extends Organisation {
  readonly repo: string
  readonly path: string
  readonly client: OciClient
}

specSuite('reads of version 1 about images', (spec) => {
  const withRepo = async (): Promise<Images> => {
    const name = freshName('org')
    const organisation = await makeOrganisation(spec.server, name)
    const repo = uidOf(await spec.ok('CreateRepo', { parent: organisation.group, repo: { name: 'nginx' } }, { token: organisation.token }))
    const { host, port } = spec.server.config.registry
    const act = { issuer: 'https://issuer.example', subject: 'test', audience: host }
    const source = { identityUid: trustedUid(organisation.owner), audiences: [host], act, restrictions: {} }
    return { ...organisation, repo, path: `${name}/nginx`, client: new OciClient(port, (await spec.server.running.signIn.tokens.mint(source)).token) }
  }

  /** Pushes an image whose config is this text. */
  async function pushedWith({ client, path }: Images, config: string, tag: string): Promise<TestManifest> {
    const bytes = Buffer.from(config)
    const digest = await client.putBlob(path, bytes)
    const manifest = manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest, size: bytes.length },
      layers: [],
      annotations: { salt: randomBytes(8).toString('hex') },
    })
    expect((await client.putManifest(path, tag, manifest)).status).toBe(201)
    return manifest
  }

  // docs/spec/version-1.md#images
  test('the config of an image says how a container starts, also for an architecture of an index', async () => {
    const at = await withRepo()
    const { repo, token, client, path } = at
    const start = {
      User: '65532',
      ExposedPorts: { '80/tcp': {} },
      Env: ['PATH=/bin', 7],
      Entrypoint: ['/bin/nginx'],
      Cmd: 'none',
      Volumes: { '/data': {} },
      WorkingDir: '/srv',
      Labels: { one: 'two', three: 4 },
      StopSignal: 'SIGQUIT',
    }
    const config = (architecture: string) => JSON.stringify({ architecture, os: 'linux', config: start, rootfs: { type: 'layers', diff_ids: [] } })
    const [amd, arm] = [await pushedWith(at, config('amd64'), 'amd'), await pushedWith(at, config('arm64'), 'arm')]
    const manifests = [amd, arm].map((each, n) => ({ ...descriptorOf(each), platform: { architecture: n === 0 ? 'amd64' : 'arm64', os: 'linux' } }))
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests })
    expect((await client.putManifest(path, 'latest', index)).status).toBe(201)
    const expected = {
      user: '65532',
      exposedPorts: { '80/tcp': {} },
      env: ['PATH=/bin'],
      entrypoint: ['/bin/nginx'],
      cmd: [],
      volumes: { '/data': {} },
      workingDir: '/srv',
      labels: { one: 'two' },
      stopSignal: 'SIGQUIT',
    }
    const about = { repoId: repo, digest: index.digest }
    expect(await spec.ok('Registry/GetImageConfig', about, { token })).toEqual(expected)
    expect(await spec.ok('Registry/GetImageConfig', { ...about, arch: 'arm64' }, { token })).toEqual(expected)
    expect(await spec.ok('Registry/GetArchs', about, { token })).toEqual({ archs: ['amd64', 'arm64'] })
    expect(await spec.ok('Registry/GetSize', { ...about, arch: 'arm64' }, { token })).toMatchObject({ arch: 'arm64', size: String(config('arm64').length) })
    expectFailure(await spec.call('Registry/GetImageConfig', { ...about, arch: 's390x' }, { token }), { code: 5 })
    client.close()
  })

  // docs/spec/version-1.md#images
  test('the summary of the tags of a repo has their number, the newest and the longest name of that digest', async () => {
    const at = await withRepo()
    const { repo, token, client, path } = at
    const summary = (request: JsonObject = {}) => spec.ok('Registry/GetRepoTagsSummary', { repoId: repo, ...request }, { token })
    expect(await summary()).toMatchObject({ id: repo, tagCount: '0', latestVersion: '' })
    const { digest } = await client.pushImage(path, 'latest')
    for (const name of ['1', '1.27', '1.27.3', '1.27.3-r0']) await spec.ok('CreateTag', { parent: repo, tag: { name, digest } }, { token })
    const newest = await client.pushImage(path, 'edge')
    expect(await summary()).toMatchObject({ tagCount: '6', latestTag: { name: 'latest', digest }, latestVersion: '1.27.3-r0' })
    expect(await summary({ excludeEpochs: true })).toMatchObject({ tagCount: '5', latestVersion: '1.27.3' })
    const [latest] = itemsOf(await spec.ok('Registry/ListTags', { uidp: { childrenOf: repo }, name: 'latest' }, { token }), 'items')
    await spec.ok('DeleteTag', { uid: String(latest?.['id']) }, { token })
    expect(await summary()).toMatchObject({ tagCount: '5', latestTag: { name: 'edge', digest: newest.digest }, latestVersion: '' })
    client.close()
  })

  // docs/spec/version-1.md#tags
  test('the history of a tag has its digests, oldest first, within the times', async () => {
    const at = await withRepo()
    const { token, client, path } = at
    const digests = [(await client.pushImage(path, 'latest')).digest, (await client.pushImage(path, 'latest')).digest]
    const [tag] = itemsOf(await spec.ok('Registry/ListTags', { uidp: { childrenOf: at.repo } }, { token }), 'items')
    const history = async (request: JsonObject = {}) =>
      itemsOf(await spec.ok('Registry/ListTagHistory', { parentId: String(tag?.['id']), ...request }, { token }), 'items')
    const all = await history()
    expect(all.map(({ digest }) => digest)).toEqual(digests)
    const second = all[1]?.['updateTimestamp'] ?? ''
    expect(await history({ start: second })).toEqual(all.slice(1))
    expect(await history({ end: second })).toEqual(all.slice(0, 1))
    const empty = await spec.ok('Registry/CreateTag', { repoId: at.repo, tag: { name: 'soon' } }, { token })
    expect(await spec.ok('Registry/ListTagHistory', { parentId: String(empty['id']) }, { token })).toEqual({ items: [] })
    client.close()
  })

  // docs/spec/version-1.md#repos
  test('the number of repos with a source counts those that the caller can see', async () => {
    const { group, token, repo, client } = await withRepo()
    client.close()
    const other = await makeOrganisation(spec.server)
    for (const name of ['one', 'two']) await spec.ok('CreateRepo', { parent: group, repo: { name, syncConfig: { source: repo } } }, { token })
    const mine = await spec.ok('CreateGroup', { parent: group, group: { name: 'team' } }, { token })
    await spec.ok('CreateRepo', { parent: uidOf(mine), repo: { name: 'three', syncConfig: { source: repo } } }, { token })
    // A person of both organisations syncs a repo elsewhere.
    const person = await makePerson(spec.server, { issuer: 'https://login.example', subject: freshName('person') })
    for (const parent of [group, other.group])
      await spec.ok(
        'CreateRoleBinding',
        { parent, roleBinding: { identityUid: person.uid, roleUid: roleUid('owner') } },
        { token: await spec.server.operatorToken() },
      )
    await spec.ok('CreateRepo', { parent: other.group, repo: { name: 'four', syncConfig: { source: repo } } }, { token: person.token })
    expect(await spec.ok('Registry/GetRepoCountBySource', { id: repo }, { token })).toEqual({ count: '3' })
    expect(await spec.ok('Registry/GetRepoCountBySource', { id: repo }, { token: person.token })).toEqual({ count: '4' })
    const viewer = await makeMember(spec.server, group, { role: 'viewer' })
    expect(await spec.ok('Registry/GetRepoCountBySource', { id: repo }, { token: viewer.token })).toEqual({ count: '3' })
    expectFailure(await spec.call('Registry/GetRepoCountBySource', { id: repo }, { token: other.token }), { code: 5 })
  })
})
