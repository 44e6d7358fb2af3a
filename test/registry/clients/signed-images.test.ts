import { createHash, generateKeyPairSync } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { makeImageWorld, pushManifest, withRegistry, type ImageWorld } from '../../contents/counts/image-world.ts'
import { runClient } from '../../support/parts/run-client.ts'
import { makeMember, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { isFullTier } from '../../support/tier.ts'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../oci/oci-client.ts'

const layouts = [
  ['a bundle', []],
  ['a tag', ['--new-bundle-format=false']],
] as const
const offline = ['--use-signing-config=false', '--tlog-upload=false', '--yes', '--allow-http-registry', '--allow-insecure-registry']
const platform = { architecture: 'amd64', os: 'linux' }

let server: TestServer
let home: string

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'taproot-cosign-'))
  server = await startTestServer({ store: 'sqlite' })
})

afterAll(async () => {
  await server?.stop()
  await rm(home, { recursive: true, force: true })
})

async function cosign(args: readonly string[], stdin = ''): Promise<void> {
  const env = { HOME: home, DOCKER_CONFIG: home, COSIGN_PASSWORD: '' }
  const { code, stdout, stderr } = await runClient('cosign', args, { cwd: home, env, stdin, timeoutMs: 120_000, own: () => ({}) })
  if (code !== 0) throw new Error(`cosign ${args.join(' ')} ended with ${code ?? 'a signal'}\n${stdout}\n${stderr}`)
}

/** Makes a key pair. Resolves with the file of the private key, and the public key. */
async function keyPair(name: string, key?: string): Promise<{ readonly file: string; readonly pem: string }> {
  if (key === undefined) await cosign(['generate-key-pair', '--output-key-prefix', name])
  else {
    await writeFile(join(home, `${name}.pem`), key)
    await cosign(['import-key-pair', '--key', `${name}.pem`, '--output-key-prefix', name, '--yes'])
  }
  return { file: `${name}.key`, pem: await readFile(join(home, `${name}.pub`), 'utf8') }
}

async function makeWorld(): Promise<ImageWorld> {
  const world = await makeImageWorld(server)
  const { host } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'owner', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(world.owner), audiences: [host], act, restrictions: {} })
  await cosign(['login', host, '-u', '_token', '--password-stdin'], token)
  return world
}

const nameOf = ({ path }: ImageWorld, { digest }: TestManifest): string => `${server.config.registry.host}/${path}@${digest}`

/** Pulls as one who may not push. Resolves with the status. */
async function statusOf(world: ImageWorld, reference: string): Promise<number> {
  const { uid: owner } = await makeMember(server, world.group, { role: 'registry.pull' })
  return withRegistry({ ...world, owner }, async (client) => (await client.send('GET', `/v2/${world.path}/manifests/${reference}`)).status)
}

async function requireKeys(world: ImageWorld, keys: readonly string[], uid?: string): Promise<string> {
  const rules = [{ requireSignature: { keys: [...keys] }, mode: 'ENFORCE', onUnknown: 'DENY' }]
  const [rpc, request]: [string, JsonObject] =
    uid === undefined
      ? ['CreatePullPolicy', { parent: world.group, pullPolicy: { name: 'signed', rules } }]
      : ['UpdatePullPolicy', { pullPolicy: { uid, rules }, updateMask: 'rules' }]
  return String(ok(await server.rest.call(rpc, request, { token: world.token }))['uid'])
}

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
      const world = await makeWorld()
      const image = await withRegistry(world, (client) => client.image(world.path))
      await pushManifest(world, 'v1', image)
      const signer = await keyPair(`${kind}-${createHash('sha256').update(layout).digest('hex').slice(0, 8)}`, key)
      const uid = await requireKeys(world, [signer.pem])
      expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([403, 403])
      await cosign(['sign', ...offline, ...flags, '--key', signer.file, nameOf(world, image)])
      expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([200, 200])
      const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' }).toString()
      await requireKeys(world, [other], uid)
      expect(await statusOf(world, 'v1')).toBe(403)
      await requireKeys(world, [other, signer.pem], uid)
      expect(await statusOf(world, 'v1')).toBe(200)
    })

test.runIf(isFullTier)(
  'a kubelet may pull the images of an index that cosign signed, and cosign may verify what is refused',
  { timeout: 300_000 },
  async () => {
    const world = await makeWorld()
    const image = await withRegistry(world, (client) => client.image(world.path))
    await pushManifest(world, image.digest, image)
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(image), platform }] })
    await pushManifest(world, 'v1', index)
    const signer = await keyPair('index')
    const uid = await requireKeys(world, [signer.pem])
    expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([403, 403])
    await cosign(['sign', ...offline, '--key', signer.file, nameOf(world, index)])
    expect([await statusOf(world, 'v1'), await statusOf(world, index.digest), await statusOf(world, image.digest)]).toEqual([200, 200, 200])
    const other = await keyPair('other')
    await requireKeys(world, [other.pem], uid)
    expect(await statusOf(world, 'v1')).toBe(403)
    const plain = ['--allow-http-registry', '--allow-insecure-registry', '--insecure-ignore-tlog']
    await cosign(['verify', ...plain, '--key', 'index.pub', nameOf(world, index)])
  },
)
