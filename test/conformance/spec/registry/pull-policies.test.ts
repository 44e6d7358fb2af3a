import { fromBinary, toJson, type JsonObject } from '@bufbuild/protobuf'
import { randomBytes } from 'node:crypto'
import { expect, test, vi } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { imageOf, makeImageWorld, pushManifest, pushPackages, pushSbom, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { descriptorOf, imageType, indexType, manifestOf, type Answer, type TestManifest } from '../../../registry/oci/oci-client.ts'
import { RegistryTrafficSchema } from '../../../../src/gen/taproot/store/v1/registry_pb.ts'
import { importDocuments, osvDocument } from '../../../support/import-advisories.ts'
import { freshName, makeMember } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { expectFailure, specSuite, type Spec } from '../spec-suite.ts'

const critical = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H'
const endTime = '2999-01-01T00:00:00.000Z'
const dayMs = 24 * 3_600_000
const waiting = { timeout: 120_000 }
/** Documents are read by other tests' servers too: each advisory has a name of its own. */
const freshId = (): string => freshName('CVE-2026').toUpperCase()

/** An advisory about all versions of musl before 2. */
function advisory(id: string): JsonObject {
  const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '2' }] }] }]
  return osvDocument(id, { affected, severity: [{ type: 'CVSS_V3', score: critical }] })
}

/** A manifest that accompanies an image: its layer is a document. */
async function documentOf(world: ImageWorld, more: Readonly<Record<string, unknown>>): Promise<TestManifest> {
  const [config, layer] = [Buffer.from('{}'), randomBytes(100)]
  await withRegistry(world, async (client) => {
    for (const bytes of [config, layer]) await client.putBlob(world.path, bytes)
  })
  const blob = (mediaType: string, bytes: Buffer): JsonObject => ({ mediaType, digest: digestOf(bytes), size: bytes.length })
  return manifestOf({
    ...{ schemaVersion: 2, mediaType: imageType, config: blob('application/vnd.oci.image.config.v1+json', config) },
    ...{ layers: [blob('application/vnd.dev.cosign.simplesigning.v1+json', layer)], ...more },
  })
}

const suite = (title: string, body: (spec: Spec) => void): void =>
  specSuite(title, body, { env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true', TAPROOT_EVENTS_TRAFFIC_WINDOW_SECONDS: '0' } })

suite('pull policies', (spec) => {
  const create = async (world: ImageWorld, rules: readonly JsonObject[], more: JsonObject = {}, parent = world.group): Promise<string> => {
    const pullPolicy = { name: freshName('policy'), rules: [...rules], ...more }
    return String((await spec.ok('CreatePullPolicy', { parent, pullPolicy }, { token: world.token }))['uid'])
  }
  const change = (world: ImageWorld, uid: string, fields: JsonObject): Promise<JsonObject> =>
    spec.ok('UpdatePullPolicy', { pullPolicy: { uid, ...fields }, updateMask: Object.keys(fields).join() }, { token: world.token })
  const pull = (world: ImageWorld, reference: string, method = 'GET'): Promise<Answer> =>
    withRegistry(world, (client) => client.send(method, `/v2/${world.path}/manifests/${reference}`))
  const statusOf = async (world: ImageWorld, reference: string, method?: string): Promise<number> => (await pull(world, reference, method)).status
  const untilRead = async (world: ImageWorld, digest: string, count = 1): Promise<void> => {
    await vi.waitFor(async () => {
      spec.clock.advance(2_000)
      const { images } = await spec.ok('ListPackages', { repoUid: world.repo, digest }, { token: await spec.server.tokenFor(world.owner) })
      expect(images).toMatchObject(Array.from({ length: count }, () => ({ state: 'READ' })))
    }, waiting)
  }

  // docs/spec/registry.md#pull-policies
  test('a policy counts for the next pull, and no longer once it is deleted', async () => {
    const world = await makeImageWorld(spec.server)
    const image = await pushPackages(world, '1.0', { musl: '1' })
    expect(await statusOf(world, '1.0')).toBe(200)
    const uid = await create(world, [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }])
    for (const reference of ['1.0', image.digest]) {
      const refused = await pull(world, reference)
      expect([refused.status, refused.codes]).toEqual([403, ['DENIED']])
      expect(refused.body.toString()).toContain('requireSbom')
    }
    await change(world, uid, { rules: [{ requireSbom: true, mode: 'WARN', onUnknown: 'DENY' }] })
    const warned = await pull(world, '1.0')
    expect([warned.status, warned.headers['warning']]).toEqual([200, expect.stringMatching(/^299 - "a pull policy warns: policy-[^"]*requireSbom[^"]*"$/)])
    await change(world, uid, { rules: [{ requireSbom: true, mode: 'AUDIT', onUnknown: 'DENY' }] })
    const audited = await pull(world, '1.0')
    expect([audited.status, audited.headers['warning']]).toEqual([200, undefined])
    await change(world, uid, { rules: [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }] })
    expect(await statusOf(world, '1.0')).toBe(403)
    await spec.ok('DeletePullPolicy', { uid }, { token: world.token })
    expect(await statusOf(world, '1.0')).toBe(200)
  })

  // docs/spec/registry.md#pull-policies
  test('an image that was not read is unknown, never free of vulnerabilities', async () => {
    const world = await makeImageWorld(spec.server)
    const id = freshId()
    const chart = await documentOf(world, { artifactType: 'application/vnd.example.chart' })
    await pushManifest(world, 'chart', chart)
    const image = await pushPackages(world, '1.0', { musl: '1' })
    await untilRead(world, image.digest)
    const uid = await create(world, [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }])
    const strict = await create(world, [{ maxSeverity: 'HIGH', mode: 'ENFORCE', onUnknown: 'DENY' }])
    // Nothing is known of the image without advisories about it, and nothing of the contents of an artifact.
    expect(await statusOf(world, 'chart')).toBe(403)
    await spec.ok('DeletePullPolicy', { uid: strict }, { token: world.token })
    expect(await statusOf(world, 'chart')).toBe(200)
    await importDocuments(spec.server, world.group, [advisory(id)])
    const refused = await pull(world, '1.0')
    expect([refused.status, refused.body.toString()]).toEqual([403, expect.stringContaining(id)])
    await change(world, uid, { exceptions: [{ vulnerability: id, endTime }] })
    expect(await statusOf(world, '1.0')).toBe(200)
    await change(world, uid, { exceptions: [{ vulnerability: id, endTime: new Date(spec.clock.now() + dayMs).toISOString() }] })
    expect(await statusOf(world, '1.0')).toBe(200)
    spec.clock.advance(dayMs)
    const late = { ...world, token: await spec.server.tokenFor(world.owner) }
    expect(await statusOf(late, '1.0')).toBe(403)
    const fixed = await pushPackages(late, 'fixed', { musl: '2' })
    await untilRead(late, fixed.digest)
    expect(await statusOf(late, 'fixed')).toBe(200)
  })

  // docs/spec/registry.md#pull-policies
  test('no digest of an image hides its vulnerabilities, and no index that names it by another one', async () => {
    const world = await makeImageWorld(spec.server)
    const id = freshId()
    await importDocuments(spec.server, world.group, [advisory(id)])
    const [tagged, untagged] = [await imageOf(world, { musl: '1' }), await imageOf(world, { musl: '1' })]
    const longOf = ({ bytes }: TestManifest): Digest => digestOf(bytes, 'sha512')
    await pushManifest(world, 'tagged', tagged)
    for (const image of [tagged, untagged]) await pushManifest(world, longOf(image), image)
    const platform = { architecture: 'amd64', os: 'linux' }
    const index = manifestOf({
      ...{ schemaVersion: 2, mediaType: indexType },
      manifests: [untagged, tagged].map((image) => ({ ...descriptorOf(image), digest: longOf(image), platform })),
    })
    await pushManifest(world, 'all', index)
    await untilRead(world, index.digest, 2)
    // What is published later keeps the image that the repo holds by its other digest only.
    await untilRead(world, (await pushPackages(world, 'other', { musl: '1' })).digest)
    await untilRead(world, index.digest, 2)
    await create(world, [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }])
    for (const reference of ['tagged', tagged.digest, longOf(tagged), longOf(untagged), 'all', index.digest]) {
      const refused = await pull(world, reference)
      expect([reference, refused.status, refused.body.toString()]).toEqual([reference, 403, expect.stringContaining(id)])
    }
  })

  // docs/spec/registry.md#pull-policies
  test('an image is read, whatever its subject and its tags say', async () => {
    const world = await makeImageWorld(spec.server)
    const id = freshId()
    await importDocuments(spec.server, world.group, [advisory(id)])
    const subject = { mediaType: imageType, digest: digestOf(randomBytes(8)), size: 8 }
    const plain = await imageOf(world, { musl: '1' })
    const referrer = manifestOf({ ...(JSON.parse(plain.bytes.toString()) as JsonObject), subject }) // the test's own manifest
    await pushManifest(world, referrer.digest, referrer)
    const tag = `sha256-${randomBytes(32).toString('hex')}.sig`
    const signature = await pushPackages(world, tag, { musl: '1' })
    for (const { digest } of [referrer, signature]) await untilRead(world, digest)
    await create(world, [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }])
    for (const reference of [referrer.digest, signature.digest, tag]) expect([reference, await statusOf(world, reference)]).toEqual([reference, 403])
  })

  // docs/spec/registry.md#pull-policies
  test.each([
    [
      'in the manifest of Docker',
      'application/vnd.docker.distribution.manifest.v2+json',
      'application/octet-stream',
      'application/vnd.dev.cosign.simplesigning.v1+json',
    ],
    ['of no type', imageType, 'application/vnd.oci.image.config.v1+json', 'application/octet-stream'],
  ])('a tag of cosign exempts nothing with layers %s, which Docker Engine runs', async (_, mediaType, configType, layerType) => {
    const world = await makeImageWorld(spec.server)
    const image = JSON.parse((await imageOf(world, { musl: '1' })).bytes.toString()) as { config: JsonObject; layers: JsonObject[] } // of manifestOf
    const layers = image.layers.map((layer) => ({ ...layer, mediaType: layerType }))
    const manifest = manifestOf({ ...image, mediaType, config: { ...image.config, mediaType: configType }, layers })
    const tag = `sha256-${randomBytes(32).toString('hex')}.sig`
    await pushManifest(world, tag, manifest)
    await create(world, [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }])
    expect([await statusOf(world, tag), await statusOf(world, manifest.digest)]).toEqual([403, 403])
  })

  // docs/spec/registry.md#contents-of-images
  test.each(['referrer', 'tag'])('an SBOM says nothing any more once its %s is deleted', async (sort) => {
    const world = await makeImageWorld(spec.server)
    const image = await pushPackages(world, '1.0', { musl: '1' })
    const names = async (): Promise<unknown> => {
      spec.clock.advance(2_000)
      const { packages } = await spec.ok('ListPackages', { repoUid: world.repo, digest: image.digest }, { token: await spec.server.tokenFor(world.owner) })
      return (packages as JsonObject[]).map(({ name }) => name)
    }
    const externalRefs = [{ referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: 'pkg:apk/alpine/bash@5?distro=3.20' }]
    const document = { spdxVersion: 'SPDX-2.3', SPDXID: 'SPDXRef-DOCUMENT', name: 'app', packages: [{ name: 'bash', SPDXID: 'SPDXRef-1', externalRefs }] }
    const tag = `${image.digest.replace(':', '-')}.sbom`
    const sbom = await pushSbom(world, image, { mediaType: 'text/spdx+json', document, ...(sort === 'tag' ? { tag } : {}) })
    await vi.waitFor(async () => expect(await names()).toEqual(['bash']), waiting)
    const path = `/v2/${world.path}/manifests/${sort === 'tag' ? tag : sbom}`
    expect(await withRegistry(world, async (client) => (await client.send('DELETE', path)).status)).toBe(202)
    await vi.waitFor(async () => expect(await names()).toEqual(['musl']), waiting)
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('the approval of a hand-made advisory counts for the next pull, and so does its end', async () => {
    const world = await makeImageWorld(spec.server)
    const { group, token } = world
    const id = freshId()
    await importDocuments(spec.server, group, [advisory(id)])
    const image = await pushPackages(world, '1.0', { musl: '1' })
    await untilRead(world, image.digest)
    await create(world, [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }])
    const statuses = async (): Promise<number[]> => [await statusOf(world, '1.0'), await statusOf(world, image.digest)]
    expect(await statuses()).toEqual([403, 403])
    const made = await spec.ok(
      'Advisories/Create',
      { parentId: group, advisory: { advisoryId: id, artifactName: 'musl', artifactType: 'Alpine:v3.20' } },
      { token },
    )
    expect(await statuses()).toEqual([403, 403])
    const approved = { falsePositiveDetermination: { note: 'not called' }, status: 'APPROVED' }
    await spec.ok('Advisories/CreateAdvisoryEvent', { parentId: String(made['id']), advisoryEvent: approved }, { token })
    expect(await statuses()).toEqual([200, 200])
    await spec.ok('Advisories/Delete', { id: String(made['id']) }, { token })
    expect(await statuses()).toEqual([403, 403])
  })

  // docs/spec/registry.md#pull-policies
  test('a group cannot weaken the policies of groups above it', async () => {
    const world = await makeImageWorld(spec.server)
    await pushPackages(world, '1.0', { musl: '1' })
    await create(world, [{ maxAgeDays: 30, mode: 'ENFORCE' }])
    const { uid: below = '' } = await spec.ok('CreateGroup', { parent: world.group, group: { name: 'team' } }, { token: world.token })
    const { uid: repo = '' } = await spec.ok('CreateRepo', { parent: below, repo: { name: 'app' } }, { token: world.token })
    const lower = { ...world, repo: String(repo), path: `${world.path.split('/')[0] ?? ''}/team/app` }
    await create(lower, [{ maxAgeDays: 3_000, mode: 'AUDIT' }], { exceptions: [{ repoUid: repo, endTime }] }, String(below))
    await pushPackages(lower, '1.0', { musl: '1' })
    expect([await statusOf(world, '1.0'), await statusOf(lower, '1.0')]).toEqual([200, 200])
    spec.clock.advance(31 * dayMs)
    const token = await spec.server.tokenFor(world.owner)
    expect([await statusOf({ ...world, token }, '1.0'), await statusOf({ ...lower, token }, '1.0')]).toEqual([403, 403])
    // A push of the same bytes is no first push.
    await pushManifest({ ...lower, token }, 'new', await pushPackages({ ...lower, token }, 'fresh', { musl: '1' }))
    expect([await statusOf({ ...lower, token }, '1.0'), await statusOf({ ...lower, token }, 'fresh')]).toEqual([403, 200])
  })

  // docs/spec/registry.md#pull-policies
  test('an image pulled by digest follows its index, and what accompanies it is exempt', async () => {
    const world = await makeImageWorld(spec.server)
    const child = await withRegistry(world, (client) => client.image(world.path))
    await pushManifest(world, child.digest, child)
    const platform = { architecture: 'amd64', os: 'linux' }
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(child), platform }] })
    await pushManifest(world, 'old', index)
    const signature = await documentOf(world, {})
    await pushManifest(world, `${index.digest.replace(':', '-')}.sig`, signature)
    const sbom = await documentOf(world, { subject: descriptorOf(index) })
    await pushManifest(world, sbom.digest, sbom)
    // An image is no signature, whatever its tag says.
    await pushManifest(world, `${child.digest.replace(':', '-')}.sig`, child)
    const uid = await create(world, [
      { maxSeverity: 'LOW', mode: 'ENFORCE', onUnknown: 'DENY' },
      { denyDeprecated: true, mode: 'ENFORCE' },
    ])
    for (const reference of ['old', index.digest, child.digest, `${child.digest.replace(':', '-')}.sig`])
      expect([reference, await statusOf(world, reference)]).toEqual([reference, 403])
    for (const reference of [`${index.digest.replace(':', '-')}.sig`, signature.digest, sbom.digest])
      expect([reference, await statusOf(world, reference)]).toEqual([reference, 200])
    const hiding = (salt: string): TestManifest =>
      manifestOf({
        ...{ schemaVersion: 2, mediaType: indexType, annotations: { salt } },
        manifests: [{ ...descriptorOf(child), platform: { architecture: 'unknown', os: 'unknown' } }],
      })
    await pushManifest(world, 'hiding', hiding('a'))
    expect(await statusOf(world, child.digest)).toBe(403)
    // An exception for the index counts for its images.
    await change(world, uid, { exceptions: [{ digest: index.digest, endTime }] })
    for (const reference of ['old', index.digest, child.digest]) expect([reference, await statusOf(world, reference)]).toEqual([reference, 200])
    await change(world, uid, { exceptions: [], rules: [{ denyDeprecated: true, mode: 'ENFORCE' }] })
    await spec.ok('DeleteTag', { uid: await tagUid(world, `${child.digest.replace(':', '-')}.sig`) }, { token: world.token })
    const retire = (name: string): Promise<JsonObject> =>
      spec.ok('CreateTag', { parent: world.repo, tag: { name, digest: index.digest, deprecated: true } }, { token: world.token })
    await retire('old')
    for (const reference of ['old', index.digest, child.digest]) expect([reference, await statusOf(world, reference)]).toEqual([reference, 403])
    // A further index with a tag in use, pushed after the answer about the first one.
    await pushManifest(
      world,
      'new',
      manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(child), platform }], annotations: { a: 'b' } }),
    )
    expect([await statusOf(world, 'old'), await statusOf(world, child.digest)]).toEqual([403, 200])
  })

  async function tagUid(world: ImageWorld, name: string): Promise<string> {
    const { tags } = await spec.ok('ListTags', { uidp: { childrenOf: world.repo }, name, includeReferrers: true }, { token: world.token })
    return String((tags as JsonObject[])[0]?.['uid']) // a list answer
  }

  // docs/spec/registry.md#pull-policies
  test('who may push is not hindered, and who may only pull is refused with HEAD too', async () => {
    const world = await makeImageWorld(spec.server)
    const image = await pushPackages(world, '1.0', { musl: '1' })
    await create(world, [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }])
    const head = await pull(world, '1.0', 'HEAD')
    expect([head.status, head.headers['warning']]).toEqual([200, expect.stringContaining('refuses a pull')])
    await pushManifest(world, '2.0', image)
    const { uid: owner } = await makeMember(spec.server, world.group, { role: 'registry.pull' })
    for (const reference of ['1.0', image.digest]) expect(await statusOf({ ...world, owner }, reference, 'HEAD')).toBe(403)
  })

  // docs/spec/registry.md#pull-policies
  test('a pull, a refusal and a violation are events that name the policy', async () => {
    const world = await makeImageWorld(spec.server)
    await withRegistry(world, (client) => client.pushImage(world.path, '1.0'))
    const policy = await create(world, [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }], { name: 'strict' })
    expect(await statusOf(world, '1.0')).toBe(403)
    const image = JSON.parse((await pull(world, '1.0', 'HEAD')).headers.etag ?? '""') as string // a text in quotes
    const events = await vi.waitFor(async () => {
      const found = (await eventsOf(spec, world.repo)).filter(({ type }) => /registry\.(?:pull|policy)/.test(type))
      expect(found).toHaveLength(3)
      return found.map(({ type, body }) => [type.replace('dev.taproot.registry.', ''), toJson(RegistryTrafficSchema, fromBinary(RegistryTrafficSchema, body))])
    }, waiting)
    const policyResults = [
      {
        ...{ policy_id: policy, policy_name: 'strict', mode: 'ENFORCE', result: 'UNKNOWN' },
        reasons: ['requireSbom: not known, because it was not read yet'],
      },
    ]
    const refused = { tag: '1.0', method: 'GET', policy_results: policyResults, error: { status: 403, code: 'DENIED' } }
    const allowed = { tag: '1.0', method: 'HEAD', digest: image, policy_results: policyResults }
    expect(events.sort(([left], [right]) => (String(left) < String(right) ? -1 : 1))).toMatchObject([
      ['policy.violated.v1', { ...refused, digest: image }],
      ['pull.v1', expect.anything()],
      ['pull.v1', expect.anything()],
    ])
    expect(events).toContainEqual(['pull.v1', expect.objectContaining(allowed)])
    expect(events).toContainEqual(['pull.v1', expect.objectContaining({ ...refused, digest: image, error: expect.objectContaining(refused.error) as unknown })])
  })

  // docs/spec/registry.md#pull-policies
  test('while tags and policies change, each pull has an answer that fits what was true meanwhile', async () => {
    const world = await makeImageWorld(spec.server)
    const images = [await pushPackages(world, 'moving', { musl: '1' }), await pushPackages(world, 'other', { musl: '1' })]
    const uid = await create(world, [{ requireSbom: true, mode: 'AUDIT', onUnknown: 'DENY' }])
    let isOver = false
    const moves = (async () => {
      while (!isOver) for (const image of images) await pushManifest(world, 'moving', image)
    })()
    const pulls = (async () => {
      const seen = new Set<number>()
      while (!isOver) seen.add(await statusOf(world, 'moving'))
      return seen
    })()
    for (let round = 0; round < 10; round++) {
      // A change counts for each pull that begins after its answer.
      await change(world, uid, { rules: [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }] })
      expect(await Promise.all([statusOf(world, 'moving'), statusOf(world, 'other')])).toEqual([403, 403])
      await change(world, uid, { rules: [{ requireSbom: true, mode: 'AUDIT', onUnknown: 'DENY' }] })
      expect(await Promise.all([statusOf(world, 'moving'), statusOf(world, 'other')])).toEqual([200, 200])
    }
    isOver = true
    await moves
    expect([...(await pulls)].filter((status) => status !== 200 && status !== 403)).toEqual([])
  })

  // docs/spec/registry.md#pull-policies
  test('only who holds the capability in the group may change its policies', async () => {
    const world = await makeImageWorld(spec.server)
    const uid = await create(world, [{ denyDeprecated: true, mode: 'WARN' }])
    const { token } = await makeMember(spec.server, world.group, { role: 'editor' })
    expectFailure(await spec.call('UpdatePullPolicy', { pullPolicy: { uid, rules: [] } }, { token }), { code: 7 })
    expectFailure(await spec.call('DeletePullPolicy', { uid }, { token }), { code: 7 })
    expect(await spec.ok('GetPullPolicy', { uid }, { token })).toMatchObject({
      uid,
      rules: [{ denyDeprecated: true, mode: 'WARN', onUnknown: 'ON_UNKNOWN_UNSPECIFIED' }],
    })
  })
})
