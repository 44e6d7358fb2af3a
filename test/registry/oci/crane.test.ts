import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { crane } from '../../support/parts/crane.ts'
import { startRegistry, type DistributionRegistry } from '../../support/parts/registry.ts'
import { describeWithPart, requirePart } from '../../support/parts/require-part.ts'
import { makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { descriptorOf, imageType, indexType, manifestOf, OciClient, type TestManifest } from './oci-client.ts'

describeWithPart('crane', 'crane with only a token, over disk', () => craneOver(() => Promise.resolve(undefined)))

describeWithPart('crane', 'crane with only a token, over a distribution registry', () =>
  craneOver(() => {
    requirePart('registry')
    return startRegistry()
  }),
)

function craneOver(startUpstream: () => Promise<DistributionRegistry | undefined>): void {
  let registry: DistributionRegistry | undefined
  let server: TestServer
  let organisation: Organisation
  let directory: string
  let host: string
  let name: string
  let client: OciClient

  beforeAll(async () => {
    registry = await startUpstream()
    server = await startTestServer({ env: registry === undefined ? {} : { TAPROOT_REGISTRY_UPSTREAM_URL: registry.url } })
    organisation = await makeOrganisation(server)
    name = server.running.engine.cache.tables.get('Group', organisation.group)?.name ?? ''
    directory = await mkdtemp(join(tmpdir(), 'taproot-crane-test-'))
    host = `127.0.0.1:${server.config.registry.port}`
    const token = await registryToken()
    expect(await crane(['auth', 'login', host, '-u', '_token', '--password-stdin'], { env: { DOCKER_CONFIG: directory }, stdin: token })).toMatchObject({
      code: 0,
    })
    client = new OciClient(server.config.registry.port, token)
  })

  afterAll(async () => {
    client?.close()
    await server?.stop()
    await registry?.stop()
    if (directory !== undefined) await rm(directory, { recursive: true, force: true })
  })

  async function registryToken(): Promise<string> {
    const act = { issuer: 'https://issuer.test', subject: 'test', audience: server.config.registry.host }
    const mint = { identityUid: trustedUid(organisation.owner), audiences: [server.config.registry.host], act, restrictions: {} }
    return (await server.running.signIn.tokens.mint(mint)).token
  }

  /** Runs crane, which must succeed; returns its output without the line break. */
  async function run(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await crane(args, { env: { DOCKER_CONFIG: directory } })
    if (code !== 0) throw new Error(`crane ${args.join(' ')}: ${code}\n${stderr}`)
    return stdout.trim()
  }

  /** Pushes an image of one fresh layer. */
  async function push(reference: string): Promise<string> {
    const file = join(directory, 'content')
    await writeFile(file, randomBytes(2_000))
    const layer = join(directory, 'layer.tar')
    expect(spawnSync('tar', ['-cf', layer, '-C', directory, 'content']).status).toBe(0)
    // Layers appended to no base have no platform.
    const base = `${host}/${name}/base:latest`
    await run('append', '-f', layer, '-t', base)
    await run('mutate', base, '--set-platform', 'linux/amd64', '-t', reference)
    return run('digest', reference)
  }

  function repoUid(path: string): string {
    return server.running.engine.cache.tables.table('Repo').child(organisation.group, path)?.uid ?? ''
  }

  test('pushes, inspects, lists, pulls, copies and deletes', async () => {
    const image = `${host}/${name}/app`
    const digest = await push(`${image}:v1`)
    expect(digestOf(Buffer.from(await run('manifest', `${image}:v1`)))).toBe(digest)
    expect(JSON.parse(await run('config', `${image}@${digest}`))).toMatchObject({ rootfs: { type: 'layers' } })
    await run('tag', `${image}:v1`, 'v2')
    expect((await run('ls', image)).split('\n')).toEqual(['v1', 'v2'])
    await run('pull', `${image}:v2`, join(directory, 'pulled.tar'))
    expect((await stat(join(directory, 'pulled.tar'))).size).toBeGreaterThan(2_000)
    await run('push', join(directory, 'pulled.tar'), `${host}/${name}/pushed:v1`)
    await run('copy', `${image}:v1`, `${host}/${name}/copied:v1`)
    expect(await run('digest', `${host}/${name}/copied:v1`)).toBe(digest)
    await run('validate', '--remote', `${host}/${name}/copied:v1`)
    await run('delete', `${image}:v2`)
    expect(await run('ls', image)).toBe('v1')
    const gone = await crane(['digest', `${image}:v2`], { env: { DOCKER_CONFIG: directory } })
    expect(gone.code).toBe(1)
  })

  test('creates records in the platform API: repo, tag, digest, architectures, size, history', async () => {
    const image = `${host}/${name}/facts`
    const digests = [await push(`${image}:latest`), await push(`${image}:latest`), await push(`${image}:latest`)]
    const uid = repoUid('facts')
    const { token } = organisation
    expect(ok(await server.rest.call('GetRepo', { uid }, { token }))).toMatchObject({ name: 'facts', uid })
    const tags = ok(await server.rest.call('ListTags', { uidp: { childrenOf: uid } }, { token }))
    expect(tags['tags']).toMatchObject([{ name: 'latest', digest: digests[2] }])
    const platform = { repoUid: uid, digest: digests[2] ?? '' }
    expect(ok(await server.rest.call('GetArchitectures', platform, { token }))).toEqual({ architectures: ['amd64'] })
    const { config, layers } = JSON.parse(await run('manifest', `${image}:latest`)) as { config: { size: number }; layers: { size: number }[] } // a cast of a manifest
    const size = config.size + layers.reduce((sum, layer) => sum + layer.size, 0)
    expect(ok(await server.rest.call('GetSize', platform, { token }))).toEqual({ size: String(size), architecture: 'amd64' })
    const history = await client.send('GET', `/v2/${name}/facts/_service/history/latest`)
    const reported = JSON.parse(history.body.toString()) as { history: { digest: string; updateTimestamp: string }[] } // a cast of what the spec says
    expect(reported.history.map(({ digest }) => digest)).toEqual(digests)
    expect(reported.history.map(({ updateTimestamp }) => updateTimestamp)).toEqual(reported.history.map(({ updateTimestamp }) => updateTimestamp).toSorted())
  })

  test('handles an index of two platforms, and a referrer', async () => {
    const image = `${host}/${name}/index`
    const [one, other] = [await push(`${image}:one`), await push(`${image}:other`)]
    await run('index', 'append', '-m', `${image}@${one}`, '-m', `${image}@${other}`, '-t', `${image}:all`)
    const index = JSON.parse(await run('manifest', `${image}:all`)) as { mediaType: string; manifests: { digest: string }[] } // a cast of an index
    expect(index.manifests.map(({ digest }) => digest)).toEqual([one, other])
    const subject = await client.send('GET', `/v2/${name}/index/manifests/all`)
    const digest = String(subject.headers['docker-content-digest'])
    const referrer = manifestOf({
      schemaVersion: 2,
      mediaType: indexType,
      manifests: [],
      artifactType: 'application/vnd.example.note',
      subject: descriptorOf({ bytes: subject.body, digest: digestOf(subject.body), mediaType: index.mediaType }),
    })
    expect((await client.putManifest(`${name}/index`, referrer.digest, referrer)).headers['oci-subject']).toBe(digest)
    const found = JSON.parse((await client.send('GET', `/v2/${name}/index/referrers/${digest}`)).body.toString()) as { manifests: object[] } // a cast of an index
    expect(found.manifests).toEqual([{ ...descriptorOf(referrer), artifactType: 'application/vnd.example.note' }])
  })

  test('attaches a referrer without a fallback tag', async () => {
    const image = `${host}/${name}/signed`
    const subject = await push(`${image}:v1`)
    const { headers, body } = await client.send('GET', `/v2/${name}/signed/manifests/v1`)
    const signature = imageOf({ digest: digestOf(body), bytes: body, mediaType: String(headers['content-type']) })
    const layout = join(directory, 'layout')
    await writeLayout(layout, signature)
    await run('push', layout, `${image}@${signature.manifest.digest}`)
    const found = JSON.parse((await client.send('GET', `/v2/${name}/signed/referrers/${subject}`)).body.toString()) as { manifests: { digest: string }[] } // a cast of an index
    expect(found.manifests.map(({ digest }) => digest)).toEqual([signature.manifest.digest])
    expect(await run('ls', image)).toBe('v1')
  })

  describe('image names', () => {
    test('image names follow a rename of the group, and nothing else changes', async () => {
      const { token } = organisation
      const group = ok(await server.rest.call('CreateGroup', { parent: organisation.group, group: { name: 'before' } }, { token }))
      for (const tag of ['v1', 'v1', 'v2']) await push(`${host}/${name}/before/app:${tag}`)
      /** The content below a group: tags, their targets, and their former targets. */
      const reported = async (at: string): Promise<unknown> => {
        const tags = (await run('ls', `${host}/${name}/${at}/app`)).split('\n')
        const digests = await Promise.all(tags.map((tag) => run('digest', `${host}/${name}/${at}/app:${tag}`)))
        const histories = await Promise.all(tags.map((tag) => client.send('GET', `/v2/${name}/${at}/app/_service/history/${tag}`)))
        return { tags, digests, histories: histories.map(({ body }) => JSON.parse(body.toString()) as { history: unknown[] }) } // a cast of what the spec says
      }
      const before = await reported('before')
      expect(before).toMatchObject({ tags: ['v1', 'v2'], histories: [{ history: [{}, {}] }, { history: [{}] }] })
      ok(await server.rest.call('UpdateGroup', { group: { uid: group['uid'] ?? '', name: 'after' } }, { token }))
      expect(await reported('after')).toEqual(before)
      expect((await crane(['digest', `${host}/${name}/before/app:v1`], { env: { DOCKER_CONFIG: directory } })).code).toBe(1)
    })

    test('image copies below missing groups create these, but never a root group', async () => {
      const digest = await push(`${host}/${name}/source:v1`)
      for (const path of ['moved/tools/app', 'qa/app', 'x/y']) {
        await run('copy', `${host}/${name}/source:v1`, `${host}/${name}/${path}:v1`)
        expect(await run('digest', `${host}/${name}/${path}:v1`)).toBe(digest)
      }
      const refused = await crane(['copy', `${host}/${name}/source:v1`, `${host}/unused-organisation/app:v1`], { env: { DOCKER_CONFIG: directory } })
      expect(refused.code).toBe(1)
    })
  })
}

/** A small image that refers to another, and its blobs. */
function imageOf(subject: TestManifest): { manifest: TestManifest; blobs: readonly Buffer[] } {
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: { type: 'layers', diff_ids: [] } }))
  const layer = randomBytes(100)
  const part = (bytes: Buffer, kind: string): object => ({ mediaType: `application/vnd.oci.image.${kind}`, digest: digestOf(bytes), size: bytes.length })
  const manifest = manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    artifactType: 'application/vnd.example.signature',
    config: part(config, 'config.v1+json'),
    layers: [part(layer, 'layer.v1.tar')],
    subject: descriptorOf(subject),
  })
  return { manifest, blobs: [config, layer, manifest.bytes] }
}

/** An OCI image layout of one image. */
async function writeLayout(directory: string, { manifest, blobs }: ReturnType<typeof imageOf>): Promise<void> {
  await mkdir(join(directory, 'blobs', 'sha256'), { recursive: true })
  for (const bytes of blobs) await writeFile(join(directory, 'blobs', digestOf(bytes).replace(':', '/')), bytes)
  await writeFile(join(directory, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }))
  await writeFile(join(directory, 'index.json'), JSON.stringify({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(manifest)] }))
}
