import { once } from 'node:events'
import { Agent, request as httpRequest, type ClientRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { randomBytes } from 'node:crypto'
import { digestOf, type Digest, type DigestAlgorithm } from '../../../src/base/digest.ts'

export const imageType = 'application/vnd.oci.image.manifest.v1+json'
export const indexType = 'application/vnd.oci.image.index.v1+json'
const configType = 'application/vnd.oci.image.config.v1+json'
const layerType = 'application/vnd.oci.image.layer.v1.tar+gzip'

/** An answer. */
export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  /** The codes of the error envelope; empty if the body is not one. */
  readonly codes: readonly string[]
}

/** The parts of a request besides method and path. */
export interface Sent {
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Uint8Array | string | Readable
}

/** A manifest to push. */
export interface TestManifest {
  readonly bytes: Buffer
  readonly digest: Digest
  readonly mediaType: string
}

/** Bytes to push. */
export function manifestOf(content: Readonly<Record<string, unknown>>): TestManifest {
  const bytes = Buffer.from(JSON.stringify(content))
  return { bytes, digest: digestOf(bytes), mediaType: String(content['mediaType']) }
}

/** A descriptor of a manifest. */
export function descriptorOf({ digest, bytes, mediaType }: TestManifest): Readonly<Record<string, unknown>> {
  return { mediaType, digest, size: bytes.length }
}

/** A client that sends unchanged paths and bodies. */
export class OciClient {
  readonly port: number
  readonly #identity: string | undefined
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 64 })

  constructor(port: number, identity: string | undefined) {
    this.port = port
    this.#identity = identity
  }

  close(): void {
    this.#agent.destroy()
  }

  /** A request whose headers are not sent yet. */
  open(method: string, path: string, headers: Readonly<Record<string, string>> = {}): ClientRequest {
    const authorization = this.#identity === undefined ? {} : { authorization: `Bearer ${this.#identity}` }
    return httpRequest({ host: '127.0.0.1', port: this.port, method, path, agent: this.#agent, headers: { ...authorization, ...headers } })
  }

  /** Sends one request and reads its answer. */
  async send(method: string, path: string, sent: Sent = {}): Promise<Answer> {
    const { body } = sent
    const isStream = body !== undefined && typeof body !== 'string' && !(body instanceof Uint8Array)
    const length = body === undefined || isStream ? {} : { 'content-length': String(Buffer.byteLength(body)) }
    const request = this.open(method, path, { ...length, ...sent.headers })
    const answered = once(request, 'response') as Promise<[IncomingMessage]> // a cast of the event's arguments
    if (isStream) pipeline(body, request).catch(() => undefined)
    else request.end(body)
    const [response] = await answered
    return readAnswer(response)
  }

  /** Puts a blob in one piece; resolves with its digest. */
  async putBlob(repository: string, bytes: Uint8Array, algorithm: DigestAlgorithm = 'sha256'): Promise<Digest> {
    const digest = digestOf(bytes, algorithm)
    const started = await this.send('POST', `/v2/${repository}/blobs/uploads/`)
    const done = await this.send('PUT', withQuery(locationOf(started), `digest=${digest}`), { body: bytes })
    if (done.status !== 201) throw new Error(`the blob was not taken: ${done.status} ${done.body.toString()}`)
    return digest
  }

  /** Puts a manifest under a tag or its digest. */
  putManifest(repository: string, reference: string, { bytes, mediaType }: TestManifest): Promise<Answer> {
    return this.send('PUT', `/v2/${repository}/manifests/${reference}`, { body: bytes, headers: { 'content-type': mediaType } })
  }

  /** Uploads a fresh config and layer; resolves with their manifest, with `more` fields, which is not pushed yet. */
  async image(repository: string, more: Readonly<Record<string, unknown>> = {}, architecture = 'amd64'): Promise<TestManifest> {
    const config = Buffer.from(JSON.stringify({ architecture, os: 'linux', salt: randomBytes(8).toString('hex'), rootfs: { type: 'layers', diff_ids: [] } }))
    const layer = randomBytes(1000)
    for (const bytes of [config, layer]) await this.putBlob(repository, bytes)
    return manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      config: { mediaType: configType, digest: digestOf(config), size: config.length },
      layers: [{ mediaType: layerType, digest: digestOf(layer), size: layer.length }],
      ...more,
    })
  }

  /** Pushes a fresh image under a tag. */
  async pushImage(repository: string, tag: string, more: Readonly<Record<string, unknown>> = {}): Promise<TestManifest> {
    const manifest = await this.image(repository, more)
    const answer = await this.putManifest(repository, tag, manifest)
    if (answer.status !== 201) throw new Error(`the manifest was not taken: ${answer.status} ${answer.body.toString()}`)
    return manifest
  }
}

/** Reads a response to its end. */
export async function readAnswer(response: IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk as Buffer) // a cast: no encoding is set
  const body = Buffer.concat(chunks)
  return { status: response.statusCode ?? 0, headers: response.headers, body, codes: codesIn(response, body) }
}

function codesIn(response: IncomingMessage, body: Buffer): string[] {
  if ((response.statusCode ?? 0) < 400 || body.length === 0) return []
  const { errors } = JSON.parse(body.toString()) as { errors: { code: string; message: string }[] } // a cast: the envelope is what is tested
  return errors.map(({ code }) => code)
}

/** Returns the URL at which an upload continues. */
export function locationOf({ status, headers, body }: Answer): string {
  if (headers.location === undefined) throw new Error(`no Location in ${status} ${body.toString()}`)
  return headers.location
}

/** The path with one more parameter. */
export function withQuery(path: string, query: string): string {
  return `${path}${path.includes('?') ? '&' : '?'}${query}`
}
