import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { FetchError, type SafeFetch } from '../../auth/safe-fetch.ts'
import { algorithmOf, digestOfHex, parseDigest, type Digest } from '../../base/digest.ts'
import type { Clock } from '../../base/runtime.ts'
import { RegistryCredentials, type RegistryAccount } from '../../registry/index.ts'

/** An artifact in a registry: `oci://registry.example.com/name:tag`, or with `@sha256:…`. `oci+http://` is for registries without TLS. */
export interface OciReference {
  readonly origin: string
  readonly name: string
  /** A tag or a digest. */
  readonly version: string
}

/** What an artifact is read with. */
export interface OciRequest {
  readonly source: string
  /** The digest of the manifest that was imported last. */
  readonly known: string | undefined
  /** A folder for the files, which does not exist yet. */
  readonly folder: string
  /** A bearer token, or `user:password`. */
  readonly credential: string | undefined
  readonly ca: string | undefined
  readonly allowPrivate: boolean
  /** The most bytes of all files. */
  readonly maxBytes: number
  readonly maxRedirects: number
  readonly onBytes: ((bytes: number) => void) | undefined
  readonly clock: Clock
}

const maxManifestBytes = 4 * 1024 * 1024
const maxLayers = 100
const emptyLayer = 'application/vnd.oci.empty.v1+json'
const manifestTypes = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
].join(', ')

const referencePattern = /^oci(\+http)?:\/\/([^/@\s]+)\/([a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::([\w][\w.-]{0,127}))?(?:@([a-z0-9]+:[0-9a-f]+))?$/

/** True if the source is meant as an artifact in a registry. */
export function isArtifact(source: string): boolean {
  return /^oci(?:\+http)?:\/\//i.test(source)
}

/** Returns the parts of a reference. Throws an error for people. */
export function parseReference(source: string): OciReference {
  const [, plain, host = '', name = '', tag, digest] = referencePattern.exec(source) ?? []
  const version = digest ?? tag
  const origin = `${plain === undefined ? 'https' : 'http'}://${host}`
  if (version === undefined || !URL.canParse(origin) || (digest !== undefined && parseDigest(digest) === undefined))
    throw new Error(`the source is no reference of an artifact: expected oci://registry.example.com/name:tag or oci://registry.example.com/name@sha256:…`)
  return { origin, name, version }
}

/** A manifest or layer, as manifests name it. */
interface Descriptor {
  readonly mediaType: string
  readonly digest: Digest
  readonly size: number
  /** A name for the file: the title in the manifest if it is a plain one. Some forms need it. */
  readonly fileName: string
}

/** Returns a descriptor of unverified JSON. */
function descriptorOf(value: unknown): Descriptor {
  const { mediaType, digest, size, annotations } = (value ?? {}) as Readonly<Record<string, unknown>> // each member is checked below
  const parsed = typeof digest === 'string' ? parseDigest(digest) : undefined
  if (parsed === undefined || typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0)
    throw new Error('the manifest has an entry without digest and size')
  const title = ((annotations ?? {}) as Readonly<Record<string, unknown>>)['org.opencontainers.image.title'] // checked below
  const fileName = typeof title === 'string' && /^\w[\w.-]{0,127}$/.test(title) ? title : 'layer'
  return { mediaType: typeof mediaType === 'string' ? mediaType : '', digest: parsed, size, fileName }
}

function listOf(value: unknown, most: number): readonly Descriptor[] {
  if (!Array.isArray(value)) return []
  if (value.length > most) throw new Error(`the manifest has more than ${most} entries`)
  return value.map(descriptorOf)
}

async function digestOfFile(path: string, like: Digest): Promise<Digest> {
  const hash = createHash(algorithmOf(like))
  for await (const piece of createReadStream(path)) hash.update(piece as Buffer) // a stream without encoding
  return digestOfHex(algorithmOf(like), hash.digest('hex'))
}

/** Returns the account in a credential `user:password`; undefined for a bearer token. */
function accountOf(credential: string | undefined): RegistryAccount | undefined {
  const at = credential?.indexOf(':') ?? -1
  return credential === undefined || at < 1 ? undefined : { username: credential.slice(0, at), password: credential.slice(at + 1) }
}

/** Reads one repository of a registry. Answers are files, and every digest is checked. */
class ArtifactReader {
  readonly #fetch: SafeFetch
  readonly #request: OciRequest
  readonly #reference: OciReference
  readonly #credentials: RegistryCredentials
  readonly #bearer: string | undefined

  constructor(fetch: SafeFetch, request: OciRequest, signal: AbortSignal) {
    const { credential, source, clock } = request
    const account = accountOf(credential)
    this.#fetch = fetch
    this.#request = request
    this.#reference = parseReference(source)
    this.#bearer = account === undefined && credential !== undefined ? `Bearer ${credential}` : undefined
    this.#credentials = new RegistryCredentials(account === undefined ? undefined : () => account, {
      fetchToken: (url, authorization) => this.#token({ url, authorization }, signal),
      clock,
    })
  }

  /** Writes a manifest or blob into a file. Rejects if the registry sends something else than `digest`. */
  async get(path: string, { to, maxBytes, digest }: { to: string; maxBytes: number; digest?: Digest }, signal: AbortSignal): Promise<void> {
    const scopes = [`repository:${this.#reference.name}:pull`]
    for (let attempt = 0; ; attempt++) {
      const authorization = this.#bearer ?? (await this.#credentials.authorization(scopes))
      try {
        await this.#download(path, { to, maxBytes, authorization }, signal)
        break
      } catch (error) {
        if (!(error instanceof FetchError) || error.status !== 401 || attempt > 0 || this.#bearer !== undefined) throw error
        await this.#credentials.forget(scopes, authorization)
        this.#credentials.learn(401, error.challenge)
      }
    }
    if (digest !== undefined && (await digestOfFile(to, digest)) !== digest) throw new Error(`the registry sent other bytes than ${digest}`)
  }

  async #download(
    path: string,
    { to, maxBytes, authorization }: { to: string; maxBytes: number; authorization: string | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const { maxRedirects, onBytes } = this.#request
    const url = `${this.#reference.origin}/v2/${this.#reference.name}/${path}`
    const headers = { accept: path.startsWith('manifests/') ? manifestTypes : '*/*', ...(authorization === undefined ? {} : { authorization }) }
    await this.#fetch.download({ url, headers, ...this.#policy }, { path: to, maxBytes, maxRedirects, ...(onBytes === undefined ? {} : { onBytes }) }, signal)
  }

  get #policy(): { readonly allowPrivate: boolean; readonly ca?: string } {
    const { allowPrivate, ca } = this.#request
    return { allowPrivate, ...(ca === undefined ? {} : { ca }) }
  }

  async #token({ url, authorization }: { url: string; authorization: string | undefined }, signal: AbortSignal): Promise<unknown> {
    // A registry with TLS must not move the password to a connection without it.
    if (this.#reference.origin.startsWith('https:') && !url.startsWith('https:')) throw new FetchError('refused_url')
    const headers = { ...(authorization === undefined ? {} : { authorization }) }
    return this.#fetch.json({ url, headers, ...this.#policy }, signal)
  }
}

interface Manifest {
  readonly digest: string
  readonly layers: readonly Descriptor[]
}

/** Reads the manifest: the one of the reference, or the only one in its index. */
async function readManifest(reader: ArtifactReader, { version, folder }: { version: string; folder: string }, signal: AbortSignal): Promise<Manifest> {
  const to = join(folder, 'manifest')
  const digest = parseDigest(version)
  await reader.get(`manifests/${version}`, { to, maxBytes: maxManifestBytes, ...(digest === undefined ? {} : { digest }) }, signal)
  const bytes = await readFile(to)
  let found: { readonly manifests?: unknown; readonly layers?: unknown } | null
  try {
    found = JSON.parse(bytes.toString()) as typeof found // its members are checked below
  } catch {
    throw new Error('the registry sent a manifest that is not valid JSON')
  }
  if (Array.isArray(found?.manifests)) {
    const [only, ...others] = listOf(found.manifests, maxLayers)
    if (only === undefined || others.length > 0)
      throw new Error(`the artifact is an index of ${found.manifests.length} manifests: name one of them by its digest`)
    await reader.get(`manifests/${only.digest}`, { to, maxBytes: maxManifestBytes, digest: only.digest }, signal)
    const inner = JSON.parse((await readFile(to)).toString()) as { readonly layers?: unknown } | null // checked below
    return { digest: only.digest, layers: listOf(inner?.layers, maxLayers) }
  }
  return { digest: digest ?? `sha256:${createHash('sha256').update(bytes).digest('hex')}`, layers: listOf(found?.layers, maxLayers) }
}

/**
 * Downloads the layers of an artifact and checks their digests. Resolves with the digest of its manifest, and the files: undefined if the digest is the known one.
 * Rejects with FetchError, UpstreamError, an error of the file system, an error for people, or the signal's reason.
 */
export async function readArtifact(
  fetch: SafeFetch,
  request: OciRequest,
  signal: AbortSignal,
): Promise<{ readonly manifest: string; readonly paths: readonly string[] | undefined }> {
  const { folder, known, maxBytes } = request
  const { version } = parseReference(request.source)
  const reader = new ArtifactReader(fetch, request, signal)
  await mkdir(folder, { mode: 0o700 })
  const { digest: manifest, layers } = await readManifest(reader, { version, folder }, signal)
  if (manifest === known) return { manifest, paths: undefined }
  const files = layers.filter(({ mediaType }) => mediaType !== emptyLayer)
  if (files.length === 0) throw new Error('the artifact has no files')
  if (files.reduce((sum, { size }) => sum + size, 0) > maxBytes) throw new FetchError('too_large')
  const paths: string[] = []
  for (const [at, { digest, size, fileName }] of files.entries()) {
    const own = join(folder, String(at))
    await mkdir(own, { mode: 0o700 })
    const to = join(own, fileName)
    await reader.get(`blobs/${digest}`, { to, maxBytes: size, digest }, signal)
    paths.push(to)
  }
  return { manifest, paths }
}
