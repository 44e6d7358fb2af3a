import { createHash, generateKeyPairSync } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { pushManifest, withRegistry } from '../../../contents/counts/image-world.ts'
import { startTestServer, type TestServer } from '../../../support/test-server.ts'
import { isFullTier } from '../../../support/tier.ts'
import { descriptorOf, indexType, manifestOf } from '../../oci/oci-client.ts'
import { Cosign, layouts, nameOf, offline, plainHttp, requireSignature, statusOf } from './cosign.ts'

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

const pkcs8 = { type: 'pkcs8', format: 'pem' } as const
const kinds: Readonly<Record<string, string | undefined>> = {
  'p-256': undefined,
  'p-384': generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey.export(pkcs8).toString(),
  rsa: generateKeyPairSync('rsa', { modulusLength: 3_072 }).privateKey.export(pkcs8).toString(),
  ed25519: generateKeyPairSync('ed25519').privateKey.export(pkcs8).toString(),
}

for (const [layout, flags] of layouts)
  for (const [kind, key] of Object.entries(kinds))
    test.runIf(isFullTier)(`an image that cosign signs with ${kind} in ${layout} may be pulled`, { timeout: 300_000 }, async () => {
      const world = await cosign.makeWorld(server)
      const image = await withRegistry(world, (client) => client.image(world.path))
      await pushManifest(world, 'v1', image)
      const signer = await cosign.keyPair(`${kind}-${createHash('sha256').update(layout).digest('hex').slice(0, 8)}`, key)
      const uid = await requireSignature(world, { keys: [signer.pem] })
      expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([403, 403])
      await cosign.run(['sign', ...offline, ...flags, '--key', signer.file, nameOf(world, image)])
      expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([200, 200])
      const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' }).toString()
      await requireSignature(world, { keys: [other] }, uid)
      expect(await statusOf(world, 'v1')).toBe(403)
      await requireSignature(world, { keys: [other, signer.pem] }, uid)
      expect(await statusOf(world, 'v1')).toBe(200)
    })

test.runIf(isFullTier)(
  'the images of an index that cosign signed may be pulled by digest, and cosign may verify what is refused',
  { timeout: 300_000 },
  async () => {
    const world = await cosign.makeWorld(server)
    const image = await withRegistry(world, (client) => client.image(world.path))
    await pushManifest(world, image.digest, image)
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(image), platform }] })
    await pushManifest(world, 'v1', index)
    const signer = await cosign.keyPair('index')
    const uid = await requireSignature(world, { keys: [signer.pem] })
    expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([403, 403])
    await cosign.run(['sign', ...offline, '--key', signer.file, nameOf(world, index)])
    expect([await statusOf(world, 'v1'), await statusOf(world, index.digest), await statusOf(world, image.digest)]).toEqual([200, 200, 200])
    const other = await cosign.keyPair('other')
    await requireSignature(world, { keys: [other.pem] }, uid)
    expect(await statusOf(world, 'v1')).toBe(403)
    const plain = [...plainHttp, '--insecure-ignore-tlog']
    await cosign.run(['verify', ...plain, '--key', 'index.pub', nameOf(world, index)])
  },
)
