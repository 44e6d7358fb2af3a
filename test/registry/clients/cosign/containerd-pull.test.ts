import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { pushManifest, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { crane } from '../../../support/parts/crane.ts'
import { makeMember, startTestServer, type TestServer } from '../../../support/test-server.ts'
import { isFullTier } from '../../../support/tier.ts'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../../oci/oci-client.ts'
import { ctrPull, withContainerd } from '../containerd.ts'
import { writeImageLayout } from '../image.ts'
import { Cosign, nameOf, offline, requireSignature } from './cosign.ts'

const platform = { architecture: 'amd64', os: 'linux' }

let server: TestServer
let cosign: Cosign

beforeAll(async () => {
  cosign = await Cosign.start()
  server = await startTestServer({ store: 'sqlite' })
})

afterAll(async () => {
  await server?.stop()
  await cosign?.stop()
})

/** Pushes an index of one image, which has no tag, under a tag. */
async function pushIndex(world: ImageWorld, tag: string): Promise<{ readonly index: TestManifest; readonly image: TestManifest }> {
  const layout = join(cosign.home, tag)
  const digest = await writeImageLayout(layout)
  const bytes = await readFile(join(layout, 'blobs', 'sha256', digest.replace('sha256:', '')))
  const image = manifestOf(JSON.parse(bytes.toString()) as Readonly<Record<string, unknown>>) // a manifest
  expect(image.digest).toBe(digest)
  const pushed = await crane(['push', '--insecure', layout, nameOf(world, image)], { env: { DOCKER_CONFIG: cosign.home } })
  expect(pushed).toMatchObject({ code: 0 })
  const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(image), platform }] })
  await pushManifest(world, tag, index)
  return { index, image }
}

/** Returns an access token of one who may only pull. */
async function pullToken(world: ImageWorld): Promise<string> {
  const { uid } = await makeMember(server, world.group, { role: 'registry.pull' })
  const { host } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'reader', audience: host }
  return (await server.running.signIn.tokens.mint({ identityUid: trustedUid(uid), audiences: [host], act, restrictions: {} })).token
}

// docs/images.md#signed-images
test.runIf(isFullTier)('containerd pulls an index that cosign signed by its tag, its image by digest, and no other', { timeout: 300_000 }, async () => {
  const world = await cosign.makeWorld(server)
  const token = await pullToken(world)
  const signed = await pushIndex(world, 'signed')
  const unsigned = await pushIndex(world, 'unsigned')
  const signer = await cosign.keyPair('signer')
  const uid = await requireSignature(world, { keys: [signer.pem] })
  const nameFor = (tag: string): string => nameOf(world, signed.index).replace(/@.*/, `:${tag}`)
  await withContainerd(cosign.home, async (ctr) => {
    const pull = (image: string): ReturnType<typeof ctrPull> => ctrPull(ctr, { image, token })
    const refused = { code: 1, stderr: expect.stringContaining('403 Forbidden') as unknown }
    const refusedNames = [nameFor('signed'), nameFor('unsigned'), nameOf(world, signed.image), nameOf(world, unsigned.image)]
    for (const image of refusedNames) expect(await pull(image), image).toMatchObject(refused)
    await cosign.run(['sign', ...offline, '--key', signer.file, nameOf(world, signed.index)])
    expect(await pull(nameFor('signed'))).toMatchObject({ code: 0 })
    const { stdout } = await ctr(['content', 'list', '--quiet'])
    expect(stdout.split('\n')).toEqual(expect.arrayContaining([signed.index.digest, signed.image.digest]))
    expect(await pull(nameOf(world, signed.image))).toMatchObject({ code: 0 })
    for (const image of [nameFor('unsigned'), nameOf(world, unsigned.image)]) expect(await pull(image), image).toMatchObject(refused)
    // A policy that changes counts for the next pull, though containerd has the content.
    await requireSignature(world, { keys: [(await cosign.keyPair('other')).pem] }, uid)
    expect(await pull(nameFor('signed'))).toMatchObject(refused)
  })
})
