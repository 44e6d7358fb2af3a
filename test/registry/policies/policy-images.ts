import type { JsonObject } from '@bufbuild/protobuf'
import { expect, vi } from 'vitest'
import type { TestClock } from '../../conformance/spec/test-clock.ts'
import { imageOf, pushManifest, pushPackages, pushSbom, withRegistry, type ImageWorld } from '../../contents/counts/image-world.ts'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { freshName, makeOrganisation, ok, type TestServer } from '../../support/test-server.ts'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import type { NaivePull } from './naive-policies.ts'
import { pushLayer, signatureLayouts } from './push-signature.ts'
import { Authority, newKeys, pemOf } from './signing.ts'

/** A manifest by a reference, and what is known of it. */
export interface PolicyPull extends NaivePull {
  readonly tag: string
  readonly digest: string
}

/** A repo with images in each state, below three groups, and what policies may name. */
export interface PolicyImages {
  readonly world: ImageWorld
  /** The group of the repo. The outer group is `world.group`, with another one between. */
  readonly inner: string
  readonly otherRepo: string
  readonly pulls: readonly PolicyPull[]
  /** The key of the signer, in PEM form. */
  readonly key: string
  /** The only scored vulnerability. It is of medium severity. */
  readonly vulnerability: string
  /** Digests of which exceptions of a digest are. */
  readonly excepted: readonly string[]
}

/** Age in days of the old images. */
export const oldDays = 3

const dayMs = 86_400_000
const mediumVector = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:L/I:N/A:N'
const syftType = 'application/vnd.syft+json'
const chartType = 'application/vnd.example.chart'
const platform = { architecture: 'amd64', os: 'linux' }

/** What is known of each image, by its tag. What the child of the index is known for is what the index is. */
const knownOf = {
  good: {
    states: { maxSeverity: 'good', requireSignature: 'good', requireSbom: 'good', denyDeprecated: 'good', maxAgeDays: 'good' },
    ...{ severityWithout: 'good', isExcepted: false },
  },
  bad: {
    states: { maxSeverity: 'bad', requireSignature: 'bad', requireSbom: 'bad', denyDeprecated: 'bad', maxAgeDays: 'bad' },
    ...{ severityWithout: 'good', isExcepted: true },
  },
  // It has a vulnerability without a score, and a signature by a stranger.
  open: {
    states: { maxSeverity: 'unknown', requireSignature: 'bad', requireSbom: 'bad', denyDeprecated: 'good', maxAgeDays: 'good' },
    ...{ severityWithout: 'unknown', isExcepted: false },
  },
  // It is an artifact, with a certificate that no trusted root is for.
  chart: {
    states: { maxSeverity: 'unknown', requireSignature: 'unknown', requireSbom: 'unknown', denyDeprecated: 'good', maxAgeDays: 'bad' },
    ...{ severityWithout: 'unknown', isExcepted: true },
  },
  // Its layer cannot be read.
  broken: {
    states: { maxSeverity: 'unknown', requireSignature: 'bad', requireSbom: 'unknown', denyDeprecated: 'bad', maxAgeDays: 'good' },
    ...{ severityWithout: 'unknown', isExcepted: false },
  },
  index: {
    states: { maxSeverity: 'bad', requireSignature: 'good', requireSbom: 'bad', denyDeprecated: 'bad', maxAgeDays: 'good' },
    ...{ severityWithout: 'good', isExcepted: true },
  },
} as const satisfies Readonly<Record<string, NaivePull>>

/** Makes the groups and the repos. A policy of another group refuses everything. */
async function makeGroups(
  server: TestServer,
  world: Omit<ImageWorld, 'repo' | 'path'>,
  name: string,
): Promise<ImageWorld & { inner: string; otherRepo: string }> {
  const make = async (rpc: string, request: JsonObject): Promise<string> => String(ok(await server.rest.call(rpc, request, { token: world.token }))['uid'])
  const middle = await make('CreateGroup', { parent: world.group, group: { name: 'middle' } })
  const inner = await make('CreateGroup', { parent: middle, group: { name: 'inner' } })
  const sibling = await make('CreateGroup', { parent: middle, group: { name: 'sibling' } })
  const rules = [{ requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }]
  await make('CreatePullPolicy', { parent: sibling, pullPolicy: { name: 'sibling', rules } })
  const [repo, otherRepo] = [
    await make('CreateRepo', { parent: inner, repo: { name: 'app' } }),
    await make('CreateRepo', { parent: inner, repo: { name: 'other' } }),
  ]
  return { ...world, inner, repo, otherRepo, path: `${name}/middle/inner/app` }
}

/** An advisory about all versions of an Alpine package before 2. */
function advisory(id: string, name: string, more: JsonObject = {}): JsonObject {
  const ranges = [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '2' }] }]
  return osvDocument(id, { affected: [{ package: { ecosystem: 'Alpine:v3.20', name }, ranges }], ...more })
}

/** Waits until the images were read: the state and the source of each are as given. */
async function untilRead({ server, owner, repo }: ImageWorld, clock: TestClock, read: ReadonlyMap<TestManifest, JsonObject>): Promise<void> {
  for (const [{ digest }, expected] of read)
    await vi.waitFor(
      async () => {
        clock.advance(2_000)
        const { images } = ok(await server.rest.call('ListPackages', { repoUid: repo, digest }, { token: await server.tokenFor(owner) }))
        expect(images).toMatchObject([expected])
      },
      { timeout: 120_000 },
    )
}

/** Pushes an image with an SBOM that says what its layers say. */
async function pushDescribed(world: ImageWorld, tag: string): Promise<TestManifest> {
  const image = await imageOf(world, { musl: '2' })
  const document = {
    artifacts: [{ id: '1', name: 'musl', version: '2', type: 'apk', purl: 'pkg:apk/alpine/musl@2?arch=x86_64&distro=alpine-3.20.1' }],
    source: { type: 'image', name: 'app', version: image.digest },
    distro: { id: 'alpine', versionID: '3.20.1' },
    descriptor: { name: 'syft', version: '1.0.0' },
  }
  await pushManifest(world, tag, image)
  await pushSbom(world, image, { mediaType: syftType, document })
  return image
}

/** Makes a repo with images in each state that a pull can be in for each rule. `server` reads contents, and has no trusted root. */
export async function makePolicyImages(server: TestServer, clock: TestClock): Promise<PolicyImages> {
  const name = freshName('org')
  const organisation = await makeOrganisation(server, name)
  const { inner, otherRepo, ...world } = await makeGroups(server, { ...organisation, server }, name)
  const [vulnerability, unscored] = ['CVE-2026-1', 'CVE-2026-2']
  const severity = [{ type: 'CVSS_V3', score: mediumVector }]
  await importDocuments(server, world.group, [advisory(vulnerability, 'musl', { severity }), advisory(unscored, 'zlib')])

  const bad = await pushPackages(world, 'bad', { musl: '1' })
  const chart = await pushLayer(world, 'chart', { bytes: Buffer.from('a chart'), mediaType: chartType, more: { artifactType: chartType } })
  clock.advance(oldDays * dayMs)
  const good = await pushDescribed(world, 'good')
  const open = await pushPackages(world, 'open', { zlib: '1' })
  const broken = await withRegistry(world, (client) => client.pushImage(world.path, 'broken'))
  const child = await pushPackages(world, '', { musl: '1' })
  const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(child), platform }] })
  await pushManifest(world, 'index', index)

  const [signer, stranger] = [newKeys(), newKeys()]
  const sign = signatureLayouts['a referrer']
  for (const image of [good, index]) await sign(world, image, { keys: signer })
  await sign(world, open, { keys: stranger })
  await sign(world, chart, { keys: stranger, keyless: { authority: new Authority() } })
  const token = await server.tokenFor(world.owner)
  for (const [tag, { digest }] of Object.entries({ bad, broken, index }))
    ok(await server.rest.call('CreateTag', { parent: world.repo, tag: { name: tag, digest, deprecated: true } }, { token }))
  const layers = { state: 'READ', source: 'LAYERS' }
  const read = [good, bad, open, child].map((image) => [image, image === good ? { ...layers, source: 'REFERRER' } : layers] as const)
  await untilRead(world, clock, new Map<TestManifest, JsonObject>([...read, [broken, { state: 'FAILED' }]]))
  const pulls = Object.entries({ good, bad, open, chart, broken, index }).flatMap(([tag, { digest }]) => {
    const known = knownOf[tag as keyof typeof knownOf] // its keys
    return ['', tag].map((reference) => ({ ...known, tag: reference, digest }))
  })
  const excepted = [bad, chart, index].map(({ digest }) => digest)
  const all = [...pulls, { ...knownOf.index, tag: '', digest: child.digest }]
  return { world: { ...world, token }, inner, otherRepo, pulls: all, key: pemOf(signer), vulnerability, excepted }
}
