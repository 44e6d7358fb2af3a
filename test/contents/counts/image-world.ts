import { randomBytes } from 'node:crypto'
import { digestOf, type Digest } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { descriptorOf, imageType, manifestOf, OciClient, type TestManifest } from '../../registry/oci/oci-client.ts'
import { freshName, makeOrganisation, ok, type Organisation, type TestServer } from '../../support/test-server.ts'
import { tarOf } from '../tar-of.ts'

/** Versions of packages of an image, by name. */
export type ImagePackages = Readonly<Record<string, string>>

/** A repo of an organisation of its own. */
export interface ImageWorld extends Organisation {
  readonly server: TestServer
  readonly repo: string
  readonly path: string
}

/** Creates a repo in an organisation of its own. */
export async function makeImageWorld(server: TestServer): Promise<ImageWorld> {
  const name = freshName('org')
  const organisation = await makeOrganisation(server, name)
  const { uid } = ok(await server.rest.call('CreateRepo', { parent: organisation.group, repo: { name: 'app' } }, { token: organisation.token }))
  return { ...organisation, server, repo: String(uid), path: `${name}/app` }
}

/** Calls `work` with a client of the registry that has the owner's rights as of now. */
export async function withRegistry<T>({ server, owner }: ImageWorld, work: (client: OciClient) => Promise<T>): Promise<T> {
  const { host, port } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'owner', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  const client = new OciClient(port, token)
  try {
    return await work(client)
  } finally {
    client.close()
  }
}

/** Returns an image of Alpine 3.20 with these packages, which the registry has but for its manifest. Each call makes another image. */
export async function imageOf(world: ImageWorld, packages: ImagePackages, architecture = 'amd64'): Promise<TestManifest> {
  const database = Object.entries(packages).map(([name, version]) => `P:${name}\nV:${version}\nA:x86_64\nL:MIT\no:${name}\n\n`)
  const layer = tarOf([
    { path: 'etc/os-release', data: 'ID=alpine\nVERSION_ID=3.20.1\n' },
    { path: 'lib/apk/db/installed', data: database.join('') },
  ])
  const config = Buffer.from(JSON.stringify({ architecture, os: 'linux', salt: randomBytes(8).toString('hex'), rootfs: { type: 'layers', diff_ids: [] } }))
  await withRegistry(world, async (client) => {
    for (const bytes of [config, layer]) await client.putBlob(world.path, bytes)
  })
  return manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf(config), size: config.length },
    layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: digestOf(layer), size: layer.length }],
  })
}

/** Pushes an image of Alpine 3.20 with these packages, by its digest if the reference is empty. Returns its manifest. Each call makes another image. */
export async function pushPackages(world: ImageWorld, reference: string, packages: ImagePackages): Promise<TestManifest> {
  const manifest = await imageOf(world, packages)
  await pushManifest(world, reference === '' ? manifest.digest : reference, manifest)
  return manifest
}

/** Pushes a manifest whose blobs are there. Returns its digest. */
export async function pushManifest(world: ImageWorld, reference: string, manifest: TestManifest): Promise<Digest> {
  const { status, body } = await withRegistry(world, (client) => client.putManifest(world.path, reference, manifest))
  if (status !== 201) throw new Error(body.toString())
  return manifest.digest
}

/** Pushes an image with annotations `org.opencontainers.image.<key>`, by its digest if the reference is empty. Each call makes another image. */
export async function pushAnnotated(world: ImageWorld, reference: string, annotations: Readonly<Record<string, string>>): Promise<TestManifest> {
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', salt: randomBytes(8).toString('hex') }))
  await withRegistry(world, (client) => client.putBlob(world.path, config))
  const described = { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf(config), size: config.length }
  const named = Object.fromEntries(Object.entries(annotations).map(([key, value]) => [`org.opencontainers.image.${key}`, value]))
  const manifest = manifestOf({ schemaVersion: 2, mediaType: imageType, config: described, layers: [], annotations: named })
  await pushManifest(world, reference === '' ? manifest.digest : reference, manifest)
  return manifest
}

/** Pushes an SBOM about an image as its referrer, or with the tag that cosign gives it. Returns the digest of its manifest. */
export async function pushSbom(
  world: ImageWorld,
  subject: TestManifest,
  { mediaType, document, tag }: { mediaType: string; document: unknown; tag?: string },
): Promise<Digest> {
  const [config, layer] = [Buffer.from('{}'), Buffer.from(JSON.stringify(document))]
  await withRegistry(world, async (client) => {
    for (const bytes of [config, layer]) await client.putBlob(world.path, bytes)
  })
  const manifest = manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    config: { mediaType: 'application/vnd.oci.empty.v1+json', digest: digestOf(config), size: config.length },
    layers: [{ mediaType, digest: digestOf(layer), size: layer.length }],
    ...(tag === undefined ? { subject: descriptorOf(subject) } : {}),
  })
  return pushManifest(world, tag ?? manifest.digest, manifest)
}
