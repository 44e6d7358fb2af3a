import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { TagSchema } from '../../../../src/gen/taproot/registry/v2/tags_pb.ts'
import { makeImageWorld, pushAnnotated, pushManifest, pushPackages, pushSbom, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { importProduct } from '../../../support/import-advisories.ts'
import { eventsOf } from '../outbox.ts'
import { itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'

const env = { TAPROOT_REGISTRY_READ_CONTENTS: 'true', TAPROOT_REGISTRY_LIFECYCLE_DEPRECATE: 'true' }
/** A suite whose server reads pushed images, and deprecates tags by their life cycles. */
const cyclesSuite = (title: string, body: (spec: Spec) => void): void => specSuite(title, body, { env })

const cycles = [
  { cycle: '3', eol: '2100-01-01' },
  { cycle: '2', eol: '2020-01-01', extendedSupport: '2100-01-01' },
  { cycle: '1', eol: '2010-01-01' },
]

cyclesSuite('tags that follow their life cycles', (spec) => {
  const tokenOf = ({ owner }: ImageWorld): Promise<string> => spec.server.tokenFor(owner)
  const tagsOf = async (world: ImageWorld): Promise<readonly JsonObject[]> =>
    itemsOf(await spec.ok('ListTags', { uidp: { childrenOf: world.repo } }, { token: await tokenOf(world) }), 'tags')
  const deprecatedIn = async (world: ImageWorld): Promise<readonly unknown[]> =>
    (await tagsOf(world))
      .filter(({ deprecated }) => deprecated === true)
      .map(({ name }) => name)
      .sort()
  /** Resolves once these tags are deprecated. */
  const settled = async (world: ImageWorld, names: readonly string[]): Promise<void> => {
    await expect
      .poll(() => {
        // The worker looks for changes every two seconds.
        spec.clock.advance(2_000)
        return deprecatedIn(world)
      })
      .toEqual(names)
  }
  const tagNamed = async (world: ImageWorld, name: string): Promise<JsonObject> => {
    const found = (await tagsOf(world)).find((tag) => tag['name'] === name)
    if (found === undefined) throw new Error(`no tag ${name}`)
    return found
  }
  /** Writes a tag over the API, as people do. */
  const write = async (world: ImageWorld, name: string, { digest, deprecated }: { digest: string; deprecated: boolean }): Promise<void> => {
    await spec.ok('CreateTag', { parent: world.repo, tag: { name, digest, deprecated } }, { token: await tokenOf(world) })
  }
  /** Resolves once the worker has looked at all that was written before: it deprecates one more tag. */
  const looked = async (world: ImageWorld, product: string, names: readonly string[]): Promise<void> => {
    await pushAnnotated(world, 'zz-last', { title: product, version: '1' })
    await settled(world, [...names, 'zz-last'])
  }

  // docs/spec/registry.md#deprecation-by-life-cycle
  test('a tag is deprecated when its version is not supported any more, with an event, and no longer when it moves', async () => {
    const world = await makeImageWorld(spec.server)
    await pushAnnotated(world, 'before', { title: 'unknown', version: '1' })
    const product = await importProduct(spec.server, world.group, cycles)
    for (const version of ['1', '2', '3']) await pushAnnotated(world, `v${version}`, { title: product, version: `${version}.7` })
    await settled(world, ['v1'])
    const tag = await tagNamed(world, 'v1')
    const events = (await eventsOf(spec, uidOf(tag))).filter(({ type }) => type.endsWith('.tag.created.v1'))
    expect(events.map(({ actorSubject, actorClaims, body }) => ({ actorSubject, actorClaims, deprecated: fromBinary(TagSchema, body).deprecated }))).toEqual([
      { actorSubject: '', actorClaims: { iss: spec.server.config.baseUrl }, deprecated: true },
    ])
    const active = await pushAnnotated(world, 'v1', { title: product, version: '3' })
    await settled(world, [])
    await pushAnnotated(world, 'v1', { title: product, version: '1' })
    await settled(world, ['v1'])
    await pushManifest(world, 'v1', active)
    await settled(world, [])
    expect(await eventsOf(spec, uidOf(tag))).toHaveLength(4)
  })

  test('what people set stays as it is', async () => {
    const world = await makeImageWorld(spec.server)
    const product = await importProduct(spec.server, world.group, cycles)
    const old = await pushAnnotated(world, 'cleared', { title: product, version: '1' })
    const active = await pushAnnotated(world, 'set', { title: product, version: '3' })
    await pushManifest(world, 'kept', old)
    await write(world, 'set', { digest: active.digest, deprecated: true })
    await settled(world, ['cleared', 'kept', 'set'])
    // A tag that people cleared is left alone until it moves. One that they set is theirs, even if the life cycle set it first.
    await write(world, 'cleared', { digest: old.digest, deprecated: false })
    await write(world, 'kept', { digest: old.digest, deprecated: true })
    await pushManifest(world, 'kept', active)
    await looked(world, product, ['kept', 'set'])
    await pushAnnotated(world, 'cleared', { title: product, version: '1.1' })
    await settled(world, ['cleared', 'kept', 'set', 'zz-last'])
  })

  test('a new catalogue and a new day count for all tags', async () => {
    const world = await makeImageWorld(spec.server)
    const day = (days: number): string => new Date(spec.clock.now() + days * 24 * 3_600_000).toISOString().slice(0, 10)
    const product = await importProduct(spec.server, world.group, [{ cycle: '1', eol: day(1) }])
    const other = await importProduct(spec.server, world.group, cycles)
    await pushAnnotated(world, 'one', { title: product, version: '1' })
    await looked(world, other, [])
    spec.clock.advance(2 * 24 * 3_600_000)
    await settled(world, ['one', 'zz-last'])
    // Support goes on for longer than was planned.
    await importProduct(spec.server, world.group, [{ cycle: '1', eol: day(30) }], product)
    await settled(world, ['zz-last'])
  })

  // docs/spec/registry.md#life-cycle-of-tags
  test('rules of a repo say what its tags are, and a change of them counts at once', async () => {
    const world = await makeImageWorld(spec.server)
    const product = await importProduct(spec.server, world.group, cycles)
    for (const tag of ['1.1-app', '3.1-app', 'other']) await pushAnnotated(world, tag, { title: product, version: '3' })
    const productRules = [{ tagGlob: '*-app', product }, { product: 'none' }]
    const changed = await spec.ok('UpdateRepo', { repo: { uid: world.repo, productRules }, updateMask: 'productRules' }, { token: await tokenOf(world) })
    expect(changed['productRules']).toEqual([
      { tagGlob: '*-app', product, version: '' },
      { tagGlob: '', product: 'none', version: '' },
    ])
    await settled(world, ['1.1-app'])
    const answer = await spec.ok('ListEolTags', { repoUid: world.repo }, { token: await tokenOf(world) })
    expect(Object.fromEntries(itemsOf(answer, 'eolTags').map(({ name, tagStatus }) => [String(name), tagStatus]))).toEqual({
      '1.1-app': 'TAG_INACTIVE',
      '3.1-app': 'TAG_ACTIVE',
      other: 'TAG_UNKNOWN',
    })
    // docs/spec/version-1.md: an update of version 1 keeps what only version 2 has.
    const repo = { id: world.repo, name: 'app', description: 'changed' }
    await spec.ok('Registry/UpdateRepo', repo, { token: await tokenOf(world) })
    expect((await spec.ok('GetRepo', { uid: world.repo }, { token: await tokenOf(world) }))['productRules']).toHaveLength(2)
    await spec.ok('UpdateRepo', { repo: { uid: world.repo, productRules: [] }, updateMask: 'productRules' }, { token: await tokenOf(world) })
    await settled(world, [])
  })

  test('the product that an SBOM is about counts, and is kept with the contents', async () => {
    const world = await makeImageWorld(spec.server)
    const product = await importProduct(spec.server, world.group, cycles)
    const image = await pushPackages(world, '1.4', { musl: '1' })
    const document = { artifacts: [], source: { type: 'image', name: `registry.example.com/library/${product}`, version: image.digest }, distro: {} }
    const descriptor = { name: 'syft', version: '1.0.0' }
    await pushSbom(world, image, { mediaType: 'application/vnd.syft+json', document: { ...document, descriptor } })
    await settled(world, ['1.4'])
    const answer = await spec.ok('ListEolTags', { repoUid: world.repo }, { token: await tokenOf(world) })
    expect(itemsOf(answer, 'eolTags')).toMatchObject([
      { name: '1.4', tagStatus: 'TAG_INACTIVE', mainPackageName: product, mainPackageVersion: { cycle: '1', version: '1.4', baseImage: false } },
    ])
  })
})
