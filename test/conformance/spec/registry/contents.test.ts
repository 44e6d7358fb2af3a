import { randomBytes } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import { storedContents } from '../../../../src/contents/segments/contents-record.ts'
import { imageOf, makeImageWorld, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { manifestOf, OciClient, type TestManifest } from '../../../registry/oci/oci-client.ts'
import { importDocuments, osvDocument } from '../../../support/import-advisories.ts'
import { freshName, makeMember, makeOrganisation } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'
import { makeRole } from '../../walk/world.ts'

const indexType = 'application/vnd.oci.image.index.v1+json'
const imageType = 'application/vnd.oci.image.manifest.v1+json'

/** A repo of an organisation of its own, with a client of its registry. */
interface RepoWorld extends ImageWorld {
  readonly client: OciClient
}

/** Returns a client of the registry with a fresh token of an identity. */
async function clientOf({ server }: Spec, owner: string): Promise<OciClient> {
  const { host, port } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'owner', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  return new OciClient(port, token)
}

async function worldOf(spec: Spec): Promise<RepoWorld> {
  const world = await makeImageWorld(spec.server)
  return { ...world, client: await clientOf(spec, world.owner) }
}

async function push({ client, path }: RepoWorld, reference: string, manifest: TestManifest): Promise<string> {
  const { status, body } = await client.putManifest(path, reference, manifest)
  expect([status, body.toString()]).toEqual([201, ''])
  return manifest.digest
}

/** Resolves with the answer once no image of it waits to be read. */
async function packagesOf(spec: Spec, { repo, token }: RepoWorld, request: JsonObject): Promise<JsonObject> {
  let answer: JsonObject = {}
  await expect
    .poll(async () => {
      // The worker looks for images once a second.
      spec.clock.advance(1_000)
      answer = await spec.ok('ListPackages', { repoUid: repo, ...request }, { token })
      return itemsOf(answer, 'images').map(({ state }) => state)
    })
    .not.toContain('PENDING')
  return answer
}

const namesIn = (answer: JsonObject): unknown[] => itemsOf(answer, 'packages').map(({ name }) => name)

/** A suite whose server reads pushed images. */
const contentsSuite = (title: string, body: (spec: Spec) => void): void => specSuite(title, body, { env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })

contentsSuite('contents of images', (spec) => {
  // docs/spec/registry.md#vulnerabilities-of-images
  test('advisories of the groups above the repo count, those of other organisations do not, and a determination takes away', async () => {
    const [world, other] = [await worldOf(spec), await worldOf(spec)]
    const digest = await push(world, 'latest', await imageOf(world, { musl: '1.2.5-r0', busybox: '1.36.1-r29' }))
    const about = (name: string, fixed: string): JsonObject => ({
      affected: [{ package: { ecosystem: 'Alpine:v3.20', name }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed }] }] }],
      severity: [{ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }],
    })
    const ids = Array.from({ length: 3 }, () => freshName('CVE-2026').toUpperCase())
    const [first = '', fixed = '', foreign = ''] = ids
    if (spec.server.running.engine.services.catalogue('advisories') === undefined)
      expect(await spec.ok('ListVulnerabilities', { repoUid: world.repo, digest }, { token: world.token })).toMatchObject({ hasAdvisories: false })
    await importDocuments(spec.server, world.group, [osvDocument(first, about('musl', '1.2.5-r1')), osvDocument(fixed, about('busybox', '1.36.1-r29'))])
    await importDocuments(spec.server, other.group, [osvDocument(foreign, about('musl', '1.2.5-r9'))])
    await packagesOf(spec, world, { digest })
    const of = async (request: JsonObject): Promise<JsonObject> =>
      spec.ok('ListVulnerabilities', { repoUid: world.repo, digest, ...request }, { token: world.token })
    expect(await of({})).toMatchObject({
      totalCount: '1',
      vulnerabilities: [
        {
          id: first,
          state: 'AFFECTED',
          severityLevel: 'CRITICAL',
          fixedVersion: '1.2.5-r1',
          package: { digest, name: 'musl', version: '1.2.5-r0' },
          rule: 'inside of a range',
        },
      ],
      images: [{ digest, state: 'READ' }],
      hasAdvisories: true,
    })
    expect(itemsOf(await of({ states: ['FIXED'] }), 'vulnerabilities').map(({ id }) => id)).toEqual([fixed])
    expect(await of({ severityLevels: ['LOW'] })).toMatchObject({ totalCount: '0' })
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('an approved hand-made advisory takes a vulnerability away from images of its group, and its deletion gives it back', async () => {
    const world = await worldOf(spec)
    const { group, token, repo } = world
    const digest = await push(world, 'latest', await imageOf(world, { musl: '1.2.5-r0' }))
    const id = freshName('CVE-2026').toUpperCase()
    const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }] }] }]
    await importDocuments(spec.server, group, [osvDocument(id, { affected })])
    await packagesOf(spec, world, { digest })
    const found = async (request: JsonObject = {}): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListVulnerabilities', { repoUid: repo, digest, ...request }, { token }), 'vulnerabilities').map((one) => one['id'])
    expect(await found()).toEqual([id])
    const team = uidOf(await spec.ok('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))
    const advisory = { advisoryId: id, artifactName: 'musl', artifactType: 'Alpine:v3.20' }
    const events = [{ falsePositiveDetermination: { note: 'not called' }, status: 'APPROVED' }]
    await spec.ok('Advisories/Create', { parentId: team, advisory: { ...advisory, events } }, { token })
    const made = await spec.ok('Advisories/Create', { parentId: group, advisory: { ...advisory, events: [{ ...events[0], status: 'PENDING' }] } }, { token })
    // Neither that of another group counts, nor one that is not approved.
    expect(await found()).toEqual([id])
    await spec.ok('Advisories/CreateAdvisoryEvent', { parentId: String(made['id']), advisoryEvent: events[0] ?? {} }, { token })
    expect([await found(), await found({ states: ['NOT_AFFECTED'] })]).toEqual([[], [id]])
    await spec.ok('Advisories/Delete', { id: String(made['id']) }, { token })
    expect(await found()).toEqual([id])
  })

  // docs/spec/registry.md#contents-of-images
  test('the packages of an image are read from its layers', async () => {
    const world = await worldOf(spec)
    const digest = await push(world, 'latest', await imageOf(world, { musl: '1.2.5-r0', busybox: '1.36.1-r29' }))
    const answer = await packagesOf(spec, world, { digest })
    expect(answer).toMatchObject({
      totalCount: '2',
      packages: [
        {
          digest,
          purl: 'pkg:apk/alpine/busybox@1.36.1-r29?arch=x86_64&distro=alpine-3.20.1',
          type: 'apk',
          name: 'busybox',
          version: '1.36.1-r29',
          licenses: ['MIT'],
          locations: ['/lib/apk/db/installed'],
        },
        { name: 'musl' },
      ],
      images: [{ digest, platform: 'linux/amd64', state: 'READ', source: 'LAYERS', distribution: 'alpine', distributionVersion: '3.20.1', packageCount: '2' }],
    })
    expect(await spec.ok('ListPackages', { repoUid: world.repo, digest, names: ['musl'] }, { token: world.token })).toMatchObject({
      totalCount: '1',
      packages: [{ name: 'musl' }],
    })
    expect(namesIn(await packagesOf(spec, world, { digest, query: 'BUSY' }))).toEqual(['busybox'])
    expect(namesIn(await packagesOf(spec, world, { digest, types: ['deb'] }))).toEqual([])
  })

  // docs/spec/registry.md#contents-of-images
  test('an image whose config names no architecture is read, also in an index that names none', async () => {
    const world = await worldOf(spec)
    const image = await imageOf(world, { musl: '1.2.5-r0' }, '')
    await push(world, image.digest, image)
    const manifests = [{ mediaType: imageType, digest: image.digest, size: image.bytes.length }]
    const index = await push(world, 'latest', manifestOf({ schemaVersion: 2, mediaType: indexType, manifests }))
    for (const digest of [image.digest, index]) {
      const answer = await packagesOf(spec, world, { digest })
      expect(answer).toMatchObject({ packages: [{ name: 'musl' }], images: [{ digest: image.digest, state: 'READ' }] })
    }
  })

  // docs/spec/registry.md#contents-of-images
  test.each(['', 'amd64'])('a signature whose config has the architecture "%s" is no image, and its contents are not known', async (architecture) => {
    const world = await worldOf(spec)
    const layer = randomBytes(8)
    await world.client.putBlob(world.path, layer)
    const layers = [{ mediaType: 'application/vnd.dev.cosign.simplesigning.v1+json', digest: digestOf(layer), size: layer.length }]
    const signature = await world.client.image(world.path, { layers }, architecture)
    await importDocuments(spec.server, world.group, [osvDocument(freshName('CVE-2026').toUpperCase(), {})])
    await push(world, 'latest', signature)
    spec.clock.advance(24 * 3_600_000)
    const token = await spec.server.tokenFor(world.owner)
    const later = { ...world, token, client: await clientOf(spec, world.owner) }
    const image = await push(later, 'latest', await imageOf(later, { musl: '1.2.5-r0' }))
    await packagesOf(spec, later, { digest: image })
    expect(await packagesOf(spec, later, { digest: signature.digest })).toMatchObject({ totalCount: '0', images: [] })
    const days = { startTime: new Date(spec.clock.now()).toISOString(), endTime: new Date(spec.clock.now()).toISOString() }
    const reply = await spec.call('ListResolvedVulnsReports', { imageRefs: [{ repo: world.repo }], ...days }, { token })
    expectFailure(reply, { code: 9, domain: 'advisory.taproot.dev', reason: 'CONTENTS_UNKNOWN', violations: ['CONTENTS_UNKNOWN'] })
    expect(JSON.stringify(reply.details['PreconditionFailure'])).toContain(signature.digest)
  })

  test('an index has the packages of all its images, in pages', async () => {
    const world = await worldOf(spec)
    const packages = Object.fromEntries(Array.from({ length: 7 }, (_, at) => [`package-${String(at)}`, '1-r0']))
    const images = [await imageOf(world, packages), await imageOf(world, packages, 'arm64')]
    for (const image of images) await push(world, image.digest, image)
    const manifests = images.map(({ bytes, digest }, at) => ({
      mediaType: imageType,
      digest,
      size: bytes.length,
      platform: { os: 'linux', architecture: ['amd64', 'arm64'][at] },
    }))
    const digest = await push(world, 'latest', manifestOf({ schemaVersion: 2, mediaType: indexType, manifests }))
    const whole = await packagesOf(spec, world, { digest })
    expect(whole).toMatchObject({ totalCount: '14', images: [{ platform: 'linux/amd64' }, { platform: 'linux/arm64' }] })
    const paged: unknown[] = []
    for (let pageToken = ''; ;) {
      const page = await spec.ok('ListPackages', { repoUid: world.repo, digest, pageSize: 3, pageToken }, { token: world.token })
      paged.push(...itemsOf(page, 'packages'))
      pageToken = String(page['nextPageToken'] ?? '')
      if (pageToken === '') break
    }
    expect(paged).toEqual(whole['packages'])
    for (const platform of ['amd64', 'linux', 'linux/s390x'])
      expectFailure(await spec.call('ListPackages', { repoUid: world.repo, digest, platform }, { token: world.token }), { code: 5 })
    expect(await packagesOf(spec, world, { digest, platform: 'linux/arm64' })).toMatchObject({ totalCount: '7', images: [{ digest: images[1]?.digest }] })
    expect(namesIn(await packagesOf(spec, world, { digest, skip: 12 }))).toEqual(['package-6', 'package-6'])
  })

  test('an image of which a layer is damaged says so, and other images are read', async () => {
    const world = await worldOf(spec)
    const broken = await world.client.image(world.path)
    await push(world, 'broken', broken)
    const digest = await push(world, 'good', await imageOf(world, { musl: '1.2.5-r0' }))
    expect(namesIn(await packagesOf(spec, world, { digest }))).toEqual(['musl'])
    expect(await packagesOf(spec, world, { digest: broken.digest })).toMatchObject({
      totalCount: '0',
      images: [{ state: 'FAILED', problem: 'UNREADABLE', source: 'LAYERS', message: expect.stringMatching(/./) as unknown }],
    })
  })

  test('contents of an image that was deleted are removed from all segments within a day', async () => {
    const world = await worldOf(spec)
    const kept = await push(world, 'kept', await imageOf(world, { musl: '1.2.5-r0' }))
    const gone = await push(world, 'gone', await imageOf(world, { busybox: '1.36.1-r29' }))
    for (const digest of [kept, gone]) await packagesOf(spec, world, { digest })
    const { imageContents } = spec.server.running.engine
    const repo = trustedUid(world.repo)
    const known = async (): Promise<unknown[]> => {
      const turn = { key: '', signal: AbortSignal.timeout(60_000) }
      const images = [kept, gone].map((digest) => ({ repo, digest: digest as Digest })) // of manifests
      return ((await imageContents?.imagesAmong(images, turn)) ?? []).map(({ digest }) => digest)
    }
    expect(await known()).toEqual([kept, gone])
    expect(await world.client.send('DELETE', `/v2/${world.path}/manifests/${gone}`)).toMatchObject({ status: 202 })
    expectFailure(await spec.call('ListPackages', { repoUid: world.repo, digest: gone }, { token: world.token }), { code: 5 })
    spec.clock.advance(24 * 3_600_000)
    await expect.poll(known).toEqual([kept])
  })

  test('contents that the upstream lost are read again', async () => {
    const world = await worldOf(spec)
    const digest = await push(world, 'latest', await imageOf(world, { musl: '1.2.5-r0' }))
    await packagesOf(spec, world, { digest })
    const { store } = spec.server.running.engine
    // As if another store had been restored: a segment that the upstream does not have.
    const signal = AbortSignal.timeout(60_000)
    const lost = digestOf(randomBytes(8))
    const segment = { manifest: lost, blob: lost, size: 1, publishedMs: 0, images: 1, packages: 1 }
    const value = Buffer.from(JSON.stringify({ readers: 1, sweptMs: spec.clock.now(), segments: [segment] }))
    await store.transact({ guards: [], writes: [{ kind: 'put', key: 'meta/contents', value }] }, signal)
    const next = await push(world, 'next', await imageOf(world, { busybox: '1.36.1-r29' }))
    for (const [image, name] of [
      [next, 'busybox'],
      [digest, 'musl'],
    ] as const) {
      const answer = await packagesOf(spec, world, { digest: image })
      expect(namesIn(answer), JSON.stringify(answer)).toEqual([name])
    }
    expect(storedContents(spec.server.running.engine.cache.tables).record?.segments.map(({ blob }) => blob)).not.toContain(lost)
  })

  test('a digest of another repo is not found', async () => {
    const [world, other] = [await worldOf(spec), await worldOf(spec)]
    const digest = await push(world, 'latest', await imageOf(world, { musl: '1.2.5-r0' }))
    expectFailure(await spec.call('ListPackages', { repoUid: other.repo, digest }, { token: other.token }), { code: 5 })
    expectFailure(await spec.call('ListPackages', { repoUid: world.repo, digest }, { token: other.token }), { code: 5 })
  })

  describe('with a package', () => {
    const found = async (request: JsonObject, token: string): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListPackageImages', request, { token }), 'images').map(({ repoUid, digest, tags = [], version }) => [
        repoUid,
        digest,
        tags,
        version,
      ])

    // docs/spec/registry.md#images-with-a-package
    test('images are found by package URL, with their tags and those of their indexes', async () => {
      const [world, other] = [await worldOf(spec), await worldOf(spec)]
      const name = freshName('lib')
      const image = await imageOf(world, { [name]: '1.0-r0', [`${name}-dev`]: '1.0-r0' })
      const alone = await push(world, 'alone', await imageOf(world, { [name]: '2.0-r0' }))
      const child = await push(world, image.digest, image)
      const manifests = [{ mediaType: imageType, digest: child, size: image.bytes.length, platform: { os: 'linux', architecture: 'amd64' } }]
      const index = await push(world, 'latest', manifestOf({ schemaVersion: 2, mediaType: indexType, manifests }))
      await push(world, 'same', await imageOf(world, { busybox: '1.36.1-r29' }))
      const foreign = await push(other, 'latest', await imageOf(other, { [name]: '1.0-r0' }))
      for (const digest of [alone, index]) await packagesOf(spec, world, { digest })
      await packagesOf(spec, other, { digest: foreign })
      const purl = `pkg:apk/alpine/${name}`
      const [one, two] = [
        [world.repo, child, ['latest'], '1.0-r0'],
        [world.repo, alone, ['alone'], '2.0-r0'],
      ]
      await expect.poll(() => found({ purl: `${purl}@1.0-r0` }, world.token)).toEqual([one])
      const both = child < alone ? [one, two] : [two, one]
      expect(await found({ purl }, world.token)).toEqual(both)
      expect(await found({ purl }, other.token)).toEqual([[other.repo, foreign, ['latest'], '1.0-r0']])
      const wholePurl = `${purl}@2.0-r0?arch=x86_64&distro=alpine-3.20.1`
      expect(await spec.ok('ListPackageImages', { purl: `${purl}?arch=x86_64`, skip: 1 }, { token: world.token })).toMatchObject({
        totalCount: '2',
        skipped: 1,
      })
      expect(await spec.ok('ListPackageImages', { purl: wholePurl }, { token: world.token })).toEqual({
        images: [{ repoUid: world.repo, digest: alone, platform: 'linux/amd64', tags: ['alone'], purl: wholePurl, version: '2.0-r0' }],
        totalCount: '1',
        skipped: 0,
      })
      for (const none of [`${purl}?arch=arm64`, `${purl}@1.0`, `pkg:apk/wolfi/${name}`, `pkg:deb/alpine/${name}`, `pkg:apk/alpine/${name.slice(0, -1)}`])
        expect(await found({ purl: none }, world.token), none).toEqual([])
      const first = await spec.ok('ListPackageImages', { purl, pageSize: 1 }, { token: world.token })
      const next = { purl, pageSize: 1, pageToken: String(first['nextPageToken']) }
      expect(await found(next, world.token)).toEqual(both.slice(1))
      expectFailure(await spec.call('ListPackageImages', { ...next, purl: `${purl}@1.0-r0` }, { token: world.token }), { code: 3, fields: ['page_token'] })
      expectFailure(await spec.call('ListPackageImages', next, { token: other.token }), { code: 3, fields: ['page_token'] })

      expect(await world.client.send('DELETE', `/v2/${world.path}/manifests/${alone}`)).toMatchObject({ status: 202 })
      expect(await found({ purl }, world.token)).toEqual([one])
    })

    test('images are found in the repos that the caller can see, and that uidp names', async () => {
      const world = await worldOf(spec)
      const { group, repo, token } = world
      const team = uidOf(await spec.ok('CreateGroup', { parent: group, group: { name: 'team' } }, { token }))
      const teamRepo = uidOf(await spec.ok('CreateRepo', { parent: team, repo: { name: 'app' } }, { token }))
      const teamWorld = { ...world, repo: teamRepo, path: world.path.replace(/app$/, 'team/app') }
      const name = freshName('lib')
      for (const at of [world, teamWorld]) await packagesOf(spec, at, { digest: await push(at, 'latest', await imageOf(at, { [name]: '1.0-r0' })) })
      const purl = `pkg:apk/alpine/${name}`
      const reposOf = async (request: JsonObject, of = token): Promise<unknown[]> =>
        (await found({ purl, ...request }, of)).map((image) => (image as unknown[])[0])
      await expect.poll(() => reposOf({})).toEqual([repo, teamRepo].sort())
      const viewer = await makeMember(spec.server, group, { role: 'viewer', bindAt: team })
      const without = await makeMember(spec.server, group, { role: await makeRole(spec.server, group, ['repo.list', 'tag.list']) })
      expect(await reposOf({}, viewer.token)).toEqual([teamRepo])
      expect(await reposOf({}, without.token)).toEqual([])
      const places: readonly (readonly [JsonObject, readonly string[]])[] = [
        [{ childrenOf: group }, [repo]],
        [{ descendantsOf: team }, [teamRepo]],
        [{ ids: [teamRepo, team] }, [teamRepo]],
        [{ ancestorsOf: team }, [repo]],
        [{ inRoot: true }, []],
      ]
      for (const [uidp, expected] of places) expect(await reposOf({ uidp }), JSON.stringify(uidp)).toEqual(expected)
      await spec.ok('DeleteRepo', { uid: teamRepo }, { token })
      expect(await reposOf({})).toEqual([repo])
    })

    test.each(['no-purl', 'pkg:npm', 'pkg:maven/no-namespace?'])('%s is no package URL', async (purl) => {
      const { token } = await makeOrganisation(spec.server)
      expectFailure(await spec.call('ListPackageImages', { purl }, { token }), { code: 3, fields: ['purl'] })
    })
  })
})
