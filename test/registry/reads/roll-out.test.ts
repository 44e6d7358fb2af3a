import { createHash } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestServer } from '../../support/test-server.ts'
import { fullTierTest } from '../../support/tier.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { basic, publicName, RegistryWorld, type Tenant } from '../tokens/registry-world.ts'
import { PullingNode } from './node.ts'

const layerCount = 30
const blobCount = layerCount + 1
const clock = new TestClock()
let world: RegistryWorld
let mine: Tenant
let free: Tenant

/** Pushes an image of `layerCount` small layers under the tag `v1`. */
async function pushImage({ path, authorization }: Tenant): Promise<void> {
  const push = async (bytes: Buffer): Promise<{ digest: string; size: number }> => {
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
    const answer = await world.ask({ method: 'POST', path: `/v2/${path}/blobs/uploads/?digest=${digest}`, authorization, body: bytes })
    expect(answer.status).toBe(201)
    return { digest, size: bytes.length }
  }
  const layers: object[] = []
  for (let at = 0; at < layerCount; at++) {
    layers.push({ mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', ...(await push(Buffer.from(`layer ${at}`.repeat(100)))) })
  }
  const config = { mediaType: 'application/vnd.oci.image.config.v1+json', ...(await push(Buffer.from('{"architecture":"amd64","os":"linux"}'))) }
  const mediaType = 'application/vnd.oci.image.manifest.v1+json'
  const body = JSON.stringify({ schemaVersion: 2, mediaType, config, layers })
  expect(await world.ask({ method: 'PUT', path: `/v2/${path}/manifests/v1`, authorization, headers: { 'content-type': mediaType }, body })).toMatchObject({
    status: 201,
  })
}

beforeAll(async () => {
  const env = { TAPROOT_RATE_LIMIT_ENABLED: 'true', TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName }
  world = new RegistryWorld(await startTestServer({ env, clock }))
  ;[mine, free] = [await world.tenant(), await world.publicTenant()]
  await pushImage(mine)
  await pushImage(free)
})
afterAll(() => world.server.stop())

/** `nodes` machines behind one address pull the image concurrently; resolves with the number of answers by status. */
async function rollOut(nodes: number, image: Tenant, authorization?: string): Promise<Record<number, number>> {
  const { port } = world.server.config.registry
  const all = Array.from({ length: nodes }, () => new PullingNode({ port, ...(authorization === undefined ? {} : { authorization }) }))
  const whole = await Promise.all(all.map((node) => node.pull(image.path, 'v1')))
  expect(new Set(whole)).toEqual(new Set([blobCount]))
  const statuses = all.flatMap((node) => node.statuses)
  return Object.fromEntries([...new Set(statuses)].map((status) => [status, statuses.filter((one) => one === status).length]))
}

/** A pull credential, as used by all nodes of a cluster. */
async function pullToken(): Promise<string> {
  const { uid } = await world.member(mine.group, { role: 'registry.pull' })
  return basic('_token', await world.accessToken(uid))
}

const expected = (nodes: number): Record<number, number> => ({ 200: nodes * (blobCount + 3), 401: nodes })

test('40 nodes pull an image of 30 layers with one pull token at once: each answer is as expected, none is 429', async () => {
  expect(await rollOut(40, mine, await pullToken())).toEqual(expected(40))
})

fullTierTest('200 nodes pull an image of 30 layers with one pull token at once: each answer is the expected one, none is 429', async () => {
  expect(await rollOut(200, mine, await pullToken())).toEqual(expected(200))
  expect(await rollOut(200, free)).toEqual({ 200: 200 * (blobCount + 2) })
})

test('500 concurrent token requests from one address, with one credential or none, are all answered', async () => {
  const authorization = await pullToken()
  const ask = async (image: Tenant, credential?: string): Promise<number> => (await world.requestToken([`repository:${image.path}:pull`], credential)).status
  const statuses = await clock.hold(() => Promise.all(Array.from({ length: 500 }, (_, at) => (at % 2 === 0 ? ask(mine, authorization) : ask(free)))))
  expect(new Set(statuses)).toEqual(new Set([200]))
})
