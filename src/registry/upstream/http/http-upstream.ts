import { createHash } from 'node:crypto'
import { algorithmOf, digestOf, type Digest } from '../../../base/digest.ts'
import type { Clock } from '../../../base/runtime.ts'
import type { Tracing } from '../../../base/tracing.ts'
import type { Uid } from '../../../base/uid.ts'
import { readBounded, consuming } from '../chunk-body.ts'
import { PassedBody } from '../passed-body.ts'
import { UpstreamError, type BlobStream, type ByteRange, type ManifestBytes, type Upstream } from '../upstream.ts'
import { HttpUploads } from './http-uploads.ts'
import { type UpstreamTimeouts, failureOf, upstreamError } from './registry-answers.ts'
import { connectionError, dump, headerOf, RegistryClient, type UpstreamAnswer } from './registry-client.ts'

/** Maximum size of a manifest, in bytes. Registries accept up to 4 MiB. */
const maxManifestBytes = 32 * 1024 * 1024
const defaultTimeouts: UpstreamTimeouts = { headersMs: 30_000, finishMs: 10 * 60_000, stallMs: 60_000 }
const accept = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  '*/*',
].join(', ')
const nameComponents = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/

/** Address, credentials and timeouts of the registry. */
export interface HttpUpstreamOptions {
  /** `http(s)://host[:port]`, without a path. */
  readonly url: string
  /** First component of every repository name in the registry, such as a Harbor project; none if absent. */
  readonly prefix?: string
  /** User name; anonymous if absent. */
  readonly username?: string
  /** Returns the password. Called for each use. */
  readonly password?: () => string
  /** Returns the CA certificates (PEM) to trust in place of the system's. Called for each connection. */
  readonly ca?: () => string
  /**
   * Redirects clients to the storage URLs that the registry returns for blobs: `https` URLs only, or `any`. If absent, this server reads
   * the blobs.
   */
  readonly passRedirects?: 'https' | 'any'
  readonly clock: Clock
  readonly tracing?: Tracing | undefined
  /** Default: 30 s until a response begins, 10 minutes to finish an upload, 60 s between two pieces of a body. */
  readonly timeouts?: Partial<UpstreamTimeouts>
}

/**
 * Creates an upstream that is an OCI registry (CNCF distribution, zot, Harbor). Each manifest has a tag `k-<SHA-256 of its digest>`, since
 * a registry may collect untagged manifests. Throws TypeError if `url` or `prefix` is invalid.
 */
export function createHttpUpstream(options: HttpUpstreamOptions): Upstream {
  return new RegistryUpstream(options)
}

class RegistryUpstream implements Upstream {
  readonly #client: RegistryClient
  readonly #uploads: HttpUploads
  readonly #prefix: string
  readonly #passRedirects: HttpUpstreamOptions['passRedirects']

  constructor({ url, prefix = '', username, password, ca, passRedirects, clock, tracing, timeouts }: HttpUpstreamOptions) {
    const { origin, pathname, protocol } = new URL(url)
    if (pathname !== '/' || !/^https?:$/.test(protocol)) throw new TypeError('the URL of an upstream must be http or https, without a path')
    const first = prefix.replace(/\/$/, '')
    if (first !== '' && !nameComponents.test(first)) throw new TypeError('the prefix of an upstream must be one component of a repository name')
    const account = username === undefined || password === undefined ? undefined : () => ({ username, password: password() })
    const all = { ...defaultTimeouts, ...timeouts }
    this.#passRedirects = passRedirects
    this.#prefix = first === '' ? '' : `${first}/`
    this.#client = new RegistryClient({ origin, account, ca, clock, tracing, timeouts: all })
    this.#uploads = new HttpUploads(this.#client, { nameOf: (repo) => this.#nameOf(repo), finishMs: all.finishMs })
  }

  async ready(signal: AbortSignal): Promise<void> {
    const answer = await this.#client.send({ method: 'GET', path: '/v2/', scopes: [] }, signal)
    if (answer.statusCode !== 200) throw upstreamError(await failureOf(answer, signal), 'the request for /v2/')
    await dump(answer)
  }

  async getManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<ManifestBytes | undefined> {
    const answer = await this.#ask(repo, { method: 'GET', path: `manifests/${digest}`, headers: { accept } }, signal)
    if (answer === undefined) return undefined
    const bytes = await bytesOf(answer, signal)
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw new UpstreamError('corrupt', 'the upstream returned bytes that do not match the digest')
    return { digest, mediaType: headerOf(answer, 'content-type') ?? '', bytes }
  }

  async hasManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean> {
    const answer = await this.#ask(repo, { method: 'HEAD', path: `manifests/${digest}`, headers: { accept } }, signal)
    if (answer !== undefined) await dump(answer)
    return answer !== undefined
  }

  async putManifest(repo: Uid, { digest, mediaType, bytes }: ManifestBytes, signal: AbortSignal): Promise<void> {
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw new UpstreamError('digest_mismatch', 'the bytes do not match the digest')
    const tag = `k-${createHash('sha256').update(digest).digest('hex')}`
    const path = `/v2/${this.#nameOf(repo)}/manifests/${tag}`
    const answer = await this.#client.send(
      { method: 'PUT', path, scopes: this.#scopes(repo, 'pull,push'), headers: { 'content-type': mediaType }, bytes },
      signal,
    )
    if (answer.statusCode !== 201) throw upstreamError(await failureOf(answer, signal), 'a manifest')
    await dump(answer)
    if ((headerOf(answer, 'docker-content-digest') ?? digest) !== digest)
      throw new UpstreamError('refused', 'the upstream stores manifests under other digests')
  }

  async deleteManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void> {
    await this.#delete(repo, `manifests/${digest}`, signal)
  }

  async statBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<number | undefined> {
    const answer = await this.#ask(repo, { method: 'HEAD', path: `blobs/${digest}` }, signal)
    if (answer === undefined) return undefined
    await dump(answer)
    return lengthOf(answer)
  }

  async readBlob(repo: Uid, { digest, range }: { digest: Digest; range?: ByteRange }, signal: AbortSignal): Promise<BlobStream | undefined> {
    const headers = range && { range: `bytes=${range.first}-${range.last}` }
    const answer = await this.#ask(repo, { method: 'GET', path: `blobs/${digest}`, ...(headers && { headers }) }, signal)
    if (answer === undefined) return undefined
    try {
      if ((headerOf(answer, 'content-encoding') ?? 'identity') !== 'identity')
        throw new UpstreamError('refused', 'the upstream sent a blob with a Content-Encoding; it must send blobs unencoded')
      const size = range === undefined ? lengthOf(answer) : wholeOf(answer, range)
      const bytes = range === undefined ? size : range.last - range.first + 1
      return { size, body: new PassedBody(answer.body, { bytes, translate: connectionError, signal }) }
    } catch (error) {
      answer.body.on('error', () => undefined).destroy()
      throw error
    }
  }

  async locateBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<string | undefined> {
    if (this.#passRedirects === undefined) return undefined
    const target = await this.#client.locate({ path: `/v2/${this.#nameOf(repo)}/blobs/${digest}`, scopes: this.#scopes(repo, 'pull') }, signal)
    return target !== undefined && (target.protocol === 'https:' || this.#passRedirects === 'any') ? target.href : undefined
  }

  async deleteBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void> {
    await this.#delete(repo, `blobs/${digest}`, signal)
  }

  async mountBlob(repo: Uid, { digest, from }: { digest: Digest; from: Uid }, signal: AbortSignal): Promise<boolean> {
    const query = `mount=${encodeURIComponent(digest)}&from=${encodeURIComponent(this.#nameOf(from))}`
    const scopes = [...this.#scopes(repo, 'pull,push'), ...this.#scopes(from, 'pull')]
    const answer = await this.#client.send({ method: 'POST', path: `/v2/${this.#nameOf(repo)}/blobs/uploads/?${query}`, scopes }, signal)
    if (answer.statusCode === 404) return dump(answer).then(() => false)
    if (answer.statusCode === 202) {
      // The upstream started an upload instead of mounting the blob.
      await dump(answer)
      await this.#uploads.drop(repo, answer, signal)
      return false
    }
    if (answer.statusCode !== 201) throw upstreamError(await failureOf(answer, signal), 'a mount')
    await dump(answer)
    // Distribution 3.1 accepts a mount by a digest other than sha256, but does not store the blob under it.
    return algorithmOf(digest) === 'sha256' || (await this.statBlob(repo, digest, signal)) !== undefined
  }

  startUpload(...[repo, signal]: Parameters<Upstream['startUpload']>): ReturnType<Upstream['startUpload']> {
    return this.#uploads.start(repo, signal)
  }

  uploadStatus(...[repo, state, signal]: Parameters<Upstream['uploadStatus']>): ReturnType<Upstream['uploadStatus']> {
    return this.#uploads.status(repo, state, signal)
  }

  appendUpload(...[repo, source, signal]: Parameters<Upstream['appendUpload']>): ReturnType<Upstream['appendUpload']> {
    return consuming(source.chunk, () => this.#uploads.append(repo, source, signal))
  }

  finishUpload(...[repo, source, signal]: Parameters<Upstream['finishUpload']>): ReturnType<Upstream['finishUpload']> {
    return consuming(source.chunk, () => this.#uploads.finish(repo, source, signal))
  }

  cancelUpload(repo: Uid, state: string, signal: AbortSignal): Promise<void> {
    return this.#uploads.cancel(repo, state, signal)
  }

  close(): Promise<void> {
    return this.#client.close()
  }

  /** Returns the response to a request about content; undefined if the upstream does not have it. */
  async #ask(
    repo: Uid,
    asked: { method: 'GET' | 'HEAD'; path: string; headers?: Readonly<Record<string, string>> },
    signal: AbortSignal,
  ): Promise<UpstreamAnswer | undefined> {
    const answer = await this.#client.read({ ...asked, path: `/v2/${this.#nameOf(repo)}/${asked.path}`, scopes: this.#scopes(repo, 'pull') }, signal)
    if (answer.statusCode === 200 || answer.statusCode === 206) return answer
    const failure = await failureOf(answer, signal)
    if (failure.status === 404) return undefined
    throw upstreamError(failure, 'a request for content')
  }

  async #delete(repo: Uid, path: string, signal: AbortSignal): Promise<void> {
    const answer = await this.#client.send({ method: 'DELETE', path: `/v2/${this.#nameOf(repo)}/${path}`, scopes: this.#scopes(repo, 'delete') }, signal)
    if (answer.statusCode >= 300 && answer.statusCode !== 404) throw upstreamError(await failureOf(answer, signal), 'a delete')
    await dump(answer)
  }

  #nameOf(repo: Uid): string {
    return this.#prefix + repo
  }

  #scopes(repo: Uid, actions: string): readonly string[] {
    return [`repository:${this.#nameOf(repo)}:${actions}`]
  }
}

/** Reads the whole body of a manifest. */
async function bytesOf({ body }: UpstreamAnswer, signal: AbortSignal): Promise<Buffer> {
  const read = await readBounded(body, maxManifestBytes)
  if (read.kind === 'broken') {
    signal.throwIfAborted()
    throw connectionError(read.cause)
  }
  if (read.kind === 'too_large') throw new UpstreamError('refused', 'the upstream returned a manifest that is too large')
  return read.bytes
}

function lengthOf(answer: UpstreamAnswer): number {
  const length = headerOf(answer, 'content-length') ?? ''
  if (answer.statusCode !== 200 || !/^\d{1,15}$/.test(length)) throw new UpstreamError('refused', 'the upstream sent no size for a blob')
  return Number(length)
}

/** Returns the size of the whole blob, from a response with exactly the requested range. */
function wholeOf(answer: UpstreamAnswer, { first, last }: ByteRange): number {
  const [, from, to, size] = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15})$/.exec(headerOf(answer, 'content-range') ?? '') ?? []
  if (answer.statusCode !== 206 || Number(from) !== first || Number(to) !== last)
    throw new UpstreamError('refused', 'the upstream does not serve ranges of a blob')
  return Number(size)
}
