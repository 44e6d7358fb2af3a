import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { Digest } from '../../../../src/base/digest.ts'
import { imageOf, makeImageWorld, pushManifest, pushPackages, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { descriptorOf, indexType, manifestOf } from '../../../registry/oci/oci-client.ts'
import { importDocuments, osvDocument } from '../../../support/import-advisories.ts'
import { freshName } from '../../../support/test-server.ts'
import { itemsOf, specSuite, type Spec } from '../spec-suite.ts'

const suite = (title: string, body: (spec: Spec) => void): void => specSuite(title, body, { env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })

// docs/spec/registry.md#vulnerabilities-of-images
suite('VEX statements about a package of an image', (spec) => {
  /** Imports a vulnerability of all images with musl. Returns its id. */
  const vulnerable = async (world: ImageWorld): Promise<string> => {
    const id = freshName('CVE-2026').toUpperCase()
    const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '2' }] }] }]
    await importDocuments(spec.server, world.group, [osvDocument(id, { affected })])
    return id
  }
  /** Imports the statement that musl in an image is not affected. */
  const state = async (world: ImageWorld, id: string, image: string): Promise<void> => {
    const products = [{ '@id': image, subcomponents: [{ '@id': 'pkg:apk/alpine/musl' }] }]
    const { refusals } = await importDocuments(spec.server, world.group, [
      {
        '@context': 'https://openvex.dev/ns/v0.2.0',
        '@id': 'https://example.com/vex',
        author: freshName('Example'),
        timestamp: '2026-04-01T00:00:00Z',
        version: 1,
        statements: [
          { vulnerability: { name: id }, products, status: 'not_affected', justification: 'vulnerable_code_not_present', impact_statement: 'not called' },
        ],
      },
    ])
    expect(refusals).toEqual([])
  }
  const listed = async (world: ImageWorld, digest: Digest, request: JsonObject = {}): Promise<JsonObject[]> => {
    const token = await spec.server.tokenFor(world.owner)
    return itemsOf(await spec.ok('ListVulnerabilities', { repoUid: world.repo, digest, ...request }, { token }), 'vulnerabilities')
  }
  const idsIn = async (world: ImageWorld, digest: Digest): Promise<unknown> => {
    spec.clock.advance(2_000)
    return (await listed(world, digest)).map(({ id }) => id)
  }
  const counted = async (world: ImageWorld, tag: string): Promise<unknown> => {
    // The worker looks for changes every two seconds.
    spec.clock.advance(2_000)
    const time = new Date(spec.clock.now()).toISOString()
    const request = { imageRefs: [{ repo: world.repo, tags: [tag] }], startTime: time, endTime: time }
    const answer = await spec.ok('ListVulnCountReports', request, { token: await spec.server.tokenFor(world.owner) })
    return (itemsOf(answer, 'vulnCountReports').at(-1)?.['vulnCounts'] as { ids: string[] }[] | undefined)?.flatMap(({ ids }) => ids)
  }

  test('count for exactly this image, in lists, reports and counts', async () => {
    const world = await makeImageWorld(spec.server)
    const id = await vulnerable(world)
    const [one, two] = [await pushPackages(world, 'one', { musl: '1' }), await pushPackages(world, 'two', { musl: '1' })]
    for (const { digest } of [one, two]) await expect.poll(() => idsIn(world, digest)).toEqual([id])
    const address = `${spec.server.config.registry.host}/${world.path}`
    // Another address, and no digest.
    await state(world, id, `pkg:oci/app@${one.digest}?repository_url=ghcr.io/${world.path}`)
    await state(world, id, 'pkg:oci/app')
    for (const { digest } of [one, two]) expect(await idsIn(world, digest)).toEqual([id])
    await state(world, id, `pkg:oci/app@${one.digest}?repository_url=${address}`)
    await expect.poll(() => counted(world, 'one')).toEqual([])
    await expect.poll(() => counted(world, 'two')).toEqual([id])
    for (const [{ digest }, ids] of [
      [one, []],
      [two, [id]],
      [one, []],
    ] as const)
      expect(await idsIn(world, digest)).toEqual(ids)
    const [why] = await listed(world, one.digest, { states: ['NOT_AFFECTED'] })
    expect(why).toMatchObject({ id, state: 'NOT_AFFECTED', rule: 'false positive', note: 'not called' })
    const token = await spec.server.tokenFor(world.owner)
    for (const [{ digest }, matches] of [
      [one, 0],
      [two, 1],
    ] as const)
      expect(itemsOf(await spec.ok('GetVulnReport', { repoUid: world.repo, digest }, { token }), 'matches')).toHaveLength(matches)
    // The statement names the path of the repo.
    await spec.ok('UpdateRepo', { repo: { uid: world.repo, name: 'renamed' }, updateMask: 'name' }, { token })
    expect(await idsIn(world, one.digest)).toEqual([id])
    await expect.poll(() => counted(world, 'one')).toEqual([id])
  })

  // docs/spec/registry.md#pull-policies
  test('count for pulls of the image, until its repo has another name', async () => {
    const world = await makeImageWorld(spec.server)
    const id = await vulnerable(world)
    const image = await pushPackages(world, '1.0', { musl: '1' })
    await expect.poll(() => idsIn(world, image.digest)).toEqual([id])
    const rules = [{ maxSeverity: 'LOW', mode: 'ENFORCE', onUnknown: 'DENY' }]
    await spec.ok('CreatePullPolicy', { parent: world.group, pullPolicy: { name: freshName('policy'), rules } }, { token: world.token })
    const statuses = async (path: string): Promise<number[]> => {
      const named = { ...world, path, token: await spec.server.tokenFor(world.owner) }
      const pull = (reference: string): Promise<number> =>
        withRegistry(named, async (client) => (await client.send('GET', `/v2/${path}/manifests/${reference}`)).status)
      return [await pull('1.0'), await pull(image.digest)]
    }
    expect(await statuses(world.path)).toEqual([403, 403])
    await state(world, id, `pkg:oci/app@${image.digest}`)
    await expect.poll(() => idsIn(world, image.digest)).toEqual([])
    expect(await statuses(world.path)).toEqual([200, 200])
    await spec.ok('UpdateRepo', { repo: { uid: world.repo, name: 'renamed' }, updateMask: 'name' }, { token: await spec.server.tokenFor(world.owner) })
    const renamed = world.path.replace(/[^/]+$/, 'renamed')
    expect(await statuses(renamed)).toEqual([403, 403])
    await spec.ok('UpdateRepo', { repo: { uid: world.repo, name: 'app' }, updateMask: 'name' }, { token: await spec.server.tokenFor(world.owner) })
    expect(await statuses(world.path)).toEqual([200, 200])
  })

  test('count for the images of an index that they name', async () => {
    const world = await makeImageWorld(spec.server)
    const id = await vulnerable(world)
    const images = [await imageOf(world, { musl: '1' }), await imageOf(world, { musl: '1' }, 'arm64'), await imageOf(world, { musl: '1' })] as const
    for (const image of images) await pushManifest(world, image.digest, image)
    const [amd, arm, other] = images
    const manifests = [amd, arm].map((image, at) => ({ ...descriptorOf(image), platform: { os: 'linux', architecture: ['amd64', 'arm64'][at] } }))
    const index = await pushManifest(world, 'latest', manifestOf({ schemaVersion: 2, mediaType: indexType, manifests }))
    for (const { digest } of images) await expect.poll(() => idsIn(world, digest)).toEqual([id])
    await state(world, id, `pkg:oci/app@${index}?arch=arm64`)
    await expect.poll(() => idsIn(world, arm.digest)).toEqual([])
    expect(await idsIn(world, amd.digest)).toEqual([id])
    expect(await counted(world, 'latest')).toEqual([id])
    await state(world, id, `pkg:oci/app@${index}`)
    await expect.poll(() => idsIn(world, amd.digest)).toEqual([])
    expect(await idsIn(world, index)).toEqual([])
    await expect.poll(() => counted(world, 'latest')).toEqual([])
    expect(await idsIn(world, other.digest)).toEqual([id])
  })
})
