import { createHash, randomBytes } from 'node:crypto'
import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import { registryHostName } from '../subjects/taproot.ts'

/** The image that the registry rows pull and push, in a private repo: its names on the host and the upstream, and credentials. */
export interface RegistryWorld {
  /** Path on the host: `<organisation>/<image>`. */
  readonly path: string
  /** Uid of the repo, which is also its name on the upstream. */
  readonly repo: string
  /** Path on the host of an image like the other one, in a group with pull policies that allow it. */
  readonly guardedPath: string
  /** Digest of the only layer of the image, which has the tag `v1`. */
  readonly layerDigest: string
  /** `Basic` credentials with a platform token of the owner. */
  readonly basic: string
  /** Requests a new registry token like a client does, for the image at `path`. */
  registryToken(actions: string, path?: string): Promise<string>
  /** Process ids of the host, its store and its upstream. */
  readonly hostPids: readonly number[]
}

/** Size of the layer, in bytes. */
export const layerBytes = 64 * 2 ** 20

const manifestType = 'application/vnd.oci.image.manifest.v1+json'

function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

/** A registry that an image is pushed to. */
interface Target {
  readonly origin: string
  readonly repository: string
  readonly headers: Readonly<Record<string, string>>
}

/** A request of a push, and the expected status of the response. */
interface Asked {
  readonly headers: Readonly<Record<string, string>>
  readonly bytes?: Buffer
  readonly status: number
}

async function send(method: string, url: URL, { headers, bytes, status }: Asked): Promise<{ text: string; location: string }> {
  const response = await fetch(url, { method, headers, ...(bytes === undefined ? {} : { body: new Uint8Array(bytes) }) })
  const text = await response.text()
  if (response.status !== status) throw new Error(`${method} ${url.pathname} was answered ${response.status} ${text}`)
  return { text, location: response.headers.get('location') ?? '' }
}

async function pushBlob({ origin, repository, headers }: Target, bytes: Buffer): Promise<string> {
  const digest = digestOf(bytes)
  const begun = await send('POST', new URL(`/v2/${repository}/blobs/uploads/`, origin), { headers, status: 202 })
  const place = new URL(begun.location, origin)
  place.searchParams.set('digest', digest)
  await send('PUT', place, { headers: { ...headers, 'content-type': 'application/octet-stream' }, bytes, status: 201 })
  return digest
}

async function pushManifest({ origin, repository, headers }: Target, bytes: Buffer): Promise<void> {
  await send('PUT', new URL(`/v2/${repository}/manifests/v1`, origin), { headers: { ...headers, 'content-type': manifestType }, bytes, status: 201 })
}

/** Pushes the image to the host. Returns its manifest. */
async function pushImage(target: Target, bytes = layerBytes): Promise<{ manifest: Buffer; layerDigest: string }> {
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: { type: 'layers', diff_ids: [] } }))
  const layer = randomBytes(bytes)
  const digests = [await pushBlob(target, config), await pushBlob(target, layer)] as const
  const manifest = {
    schemaVersion: 2,
    mediaType: manifestType,
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digests[0], size: config.length },
    layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest: digests[1], size: layer.length }],
  }
  const encoded = Buffer.from(JSON.stringify(manifest))
  await pushManifest(target, encoded)
  return { manifest: encoded, layerDigest: digests[1] }
}

/** Rules that the image fulfils, or of which it is not known. */
const allowingRules = { age: { maxAgeDays: 3_000 }, deprecated: { denyDeprecated: true }, sbom: { requireSbom: true }, severity: { maxSeverity: 'HIGH' } }

async function createWorld(environment: Environment): Promise<RegistryWorld> {
  const { baseRecords: records } = environment.scale
  const { plan, etcd } = await environment.stored(records)
  const api = await environment.taproot({ records })
  const upstream = await environment.distribution()
  const host = await environment.registryHost(records)
  const token = await api.tokenOf(subjects.member)
  const organisation = String((await api.call(token, `/iam/v2/groups/${plan.root}`))['name'])
  const repo = String((await api.call(token, `/registry/v2/repos/${plan.root}`, { name: 'bench' }))['uid'])
  const path = `${organisation}/bench`
  const basic = `Basic ${Buffer.from(`_token:${await api.tokenOf(subjects.member, registryHostName)}`).toString('base64')}`
  const origin = `http://127.0.0.1:${host.port}`
  const registryToken = async (actions: string, of = path): Promise<string> => {
    const { text } = await send('GET', new URL(`/token?scope=repository:${of}:${actions}`, origin), { headers: { authorization: basic }, status: 200 })
    // a cast: the token protocol defines this response
    return (JSON.parse(text) as { token: string }).token
  }
  environment.progress('pushing an image')
  const authorization = `Bearer ${await registryToken('pull,push')}`
  const { manifest, layerDigest } = await pushImage({ origin, repository: path, headers: { authorization } })
  // The upstream has the content under the repo's uid; only the tag is missing there.
  await pushManifest({ origin: upstream.url, repository: repo, headers: {} }, manifest)
  const group = String((await api.call(token, `/iam/v2/groups/${plan.root}`, { name: 'guarded' }))['uid'])
  await api.call(token, `/registry/v2/repos/${group}`, { name: 'bench' })
  const guardedPath = `${organisation}/guarded/bench`
  await pushImage({ origin, repository: guardedPath, headers: { authorization: `Bearer ${await registryToken('pull,push', guardedPath)}` } }, 1_000)
  for (const [name, rule] of Object.entries(allowingRules))
    await api.call(token, `/registry/v2/pullPolicies/${group}`, { name, rules: [{ ...rule, mode: 'ENFORCE', onUnknown: 'ALLOW' }] })
  return { path, repo, guardedPath, layerDigest, basic, registryToken, hostPids: [host.pid, etcd.pid, upstream.pid] }
}

/** Pushes the image once; all rows share it. */
export function registryWorld(environment: Environment): Promise<RegistryWorld> {
  return environment.once('registry world', () => createWorld(environment))
}
