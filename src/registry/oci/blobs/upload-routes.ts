import { SealingError, type Keyring } from '../../../auth/keys/sealing.ts'
import { parseDigest, type Digest } from '../../../base/digest.ts'
import { errorText } from '../../../base/error-text.ts'
import { DomainError } from '../../../base/errors.ts'
import type { Random } from '../../../base/runtime.ts'
import type { Uid } from '../../../base/uid.ts'
import { countUpload, storedRoom, uncountUpload } from '../../../engine/quota/content.ts'
import { contentLimit } from '../../../engine/quota/limits.ts'
import type { AdmittedRequest } from '../../gate.ts'
import { parseContentRange, uploadRange } from './byte-range.ts'
import { hasBody, lengthOf, RequestBody } from './request-body.ts'
import type { RegistryExchange, HeaderLines } from '../exchange.ts'
import { whileUncollected } from '../manifests/uncollected.ts'
import { enterRepo, enterToPush, repoOfPush, type OciHost, type RepoEntry } from '../oci-host.ts'
import type { OciPath } from '../oci-path.ts'
import { heldBlob, recordBlob, touchBlob } from '../../records/blobs.ts'
import { contentEpoch } from '../../records/content-epoch.ts'
import { scheduleDelete } from '../../records/pending-deletes.ts'
import { isRepositoryName } from '../../records/repo-paths.ts'
import { RegistryError } from '../../registry-error.ts'
import { UpstreamError, type Chunk, type Upload } from '../../upstream/upstream.ts'

/** The id, repo and caller of an upload. */
interface UploadName {
  readonly repo: Uid
  readonly identity: Uid
  /** The id in the upload's URL: a UUID. */
  readonly id: string
}

/** A UUID of version 4 (RFC 9562). */
function newUploadId(random: Random): string {
  const bytes = Buffer.from(random.bytes(16))
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}

/** Returns the context for encryption: what is sealed with it can be opened for this upload only. */
function contextOf({ repo, identity, id }: UploadName): string {
  return `registry upload ${id} to ${repo} by ${identity}`
}

/** Encrypts the state of an upload as a URL parameter, so that any replica can continue it. The client cannot read it. */
function sealUpload(sealer: Keyring, name: UploadName, { state, offset }: Upload): string {
  return Buffer.from(sealer.seal(Buffer.from(`${offset} ${state}`), contextOf(name))).toString('base64url')
}

/** Decrypts the result of sealUpload. Throws BLOB_UPLOAD_UNKNOWN if it is for another upload, repo or caller, or not created by this server. */
function openUpload(sealer: Keyring, name: UploadName, sealed: string): Upload {
  let text: string
  try {
    text = Buffer.from(sealer.open(Buffer.from(sealed, 'base64url'), contextOf(name))).toString()
  } catch (error) {
    if (!(error instanceof SealingError)) throw error
    throw new RegistryError('BLOB_UPLOAD_UNKNOWN', 'there is no such upload', { cause: error })
  }
  const space = text.indexOf(' ')
  return { offset: Number(text.slice(0, space)), state: text.slice(space + 1) }
}

type UploadsPath = Extract<OciPath, { kind: 'uploads' }>
type UploadPath = Extract<OciPath, { kind: 'upload' }>

/** Timeout for cancelling an upload that no client can continue, in milliseconds. */
const cancelTimeoutMs = 10_000

/** An upload that a request names, with the state that the upstream needs to continue it. */
interface OpenUpload {
  readonly name: UploadName
  readonly repository: string
  readonly upload: Upload
}

function digestParameter(exchange: RegistryExchange, parameter: string): Digest {
  const digest = parseDigest(exchange.query.get(parameter) ?? '')
  if (digest !== undefined) return digest
  throw new RegistryError('DIGEST_INVALID', `the parameter ${parameter} must be a sha256 or sha512 digest`)
}

function nameOf({ entry, repo }: RepoEntry, id: string): UploadName {
  if (entry.caller === undefined) throw new RegistryError('DENIED', 'sign in first')
  return { repo, identity: entry.caller.identity, id }
}

/** Returns headers with the URL at which the upload continues. Any replica can answer there, for the same caller and repo only. */
function placeOf(host: OciHost, open: OpenUpload): HeaderLines {
  const { name, repository, upload } = open
  const location = `/v2/${repository}/blobs/uploads/${name.id}?_state=${sealUpload(host.sealer, name, upload)}`
  return ['Location', location, 'Range', uploadRange(upload.offset), 'Docker-Upload-UUID', name.id]
}

function answerBlob(exchange: RegistryExchange, repository: string, digest: Digest): void {
  exchange.send(201, ['Location', `/v2/${repository}/blobs/${digest}`, 'Docker-Content-Digest', digest, 'Content-Length', 0])
}

/** Handles POST: mounts a blob, stores a whole blob from one request, or starts an upload. Creates the repo on its first push. */
export async function startUpload(host: OciHost, exchange: RegistryExchange, { repository }: UploadsPath): Promise<void> {
  const { query } = exchange
  const mount = parseDigest(query.get('mount') ?? '')
  const digest = query.has('digest') && !query.has('mount') ? digestParameter(exchange, 'digest') : undefined
  const mountFrom = mount === undefined ? undefined : (query.get('from') ?? undefined)
  const pushed = await repoOfPush(host, exchange, await enterToPush(host, exchange, { repository, mountFrom }))
  const { entry, repo } = pushed
  if (mount !== undefined && (await mounted(host, exchange, { entry, repo, digest: mount }))) {
    answerBlob(exchange, repository, mount)
    return
  }
  const name = nameOf(pushed, newUploadId(host.services.random))
  await storedRoom(host.services, { repo, limit: contentLimit, bytes: 1 }, exchange.signal)
  await countUpload(host.services, name, exchange.signal)
  const upload = await host.upstream.startUpload(repo, exchange.signal).catch(async (error: unknown) => {
    await uncountUpload(host.services, name, exchange.signal)
    throw error
  })
  if (digest === undefined) {
    exchange.send(202, [...placeOf(host, { name, repository, upload }), 'Content-Length', 0])
    return
  }
  try {
    await finish(host, exchange, { name, repository, upload, digest })
  } catch (error) {
    // The client did not get the URL, so no client can continue the upload.
    await host.upstream.cancelUpload(repo, upload.state, AbortSignal.timeout(cancelTimeoutMs)).catch((cause: unknown) => {
      host.services.log.warn('an upload was left behind', { repo, error: errorText(cause) })
    })
    throw error
  } finally {
    await uncountUpload(host.services, name, AbortSignal.timeout(cancelTimeoutMs))
  }
  answerBlob(exchange, repository, digest)
}

/**
 * Mounts the blob from a repo that the caller may pull from. Resolves with true if the target repo now holds it. Resolves with false both
 * for a missing blob and for one that the caller may not pull.
 */
async function mounted(host: OciHost, exchange: RegistryExchange, target: { entry: AdmittedRequest; repo: Uid; digest: Digest }): Promise<boolean> {
  const { entry, repo, digest } = target
  const { signal, query } = exchange
  const path = query.get('from')
  const from = path !== null && isRepositoryName(path) ? entry.pullable(path) : undefined
  if (from === undefined) return false
  const held = await heldBlob(host.services, { repo: from, digest }, signal)
  // A mounted blob is found only under the digest that the upstream uses. So a blob with another digest cannot be mounted.
  if (held === undefined || (from !== repo && held.upstreamDigest !== digest)) return false
  if (from === repo) return touchBlob(host.services, { repo, digest }, signal)
  return whileUncollected(async () => {
    const epoch = await contentEpoch(host.services, repo, signal)
    if (!(await host.upstream.mountBlob(repo, { digest, from }, signal))) return false
    await recordBlob(host.services, { repo, digest, size: Number(held.size), upstreamDigest: digest, epoch }, signal)
    return true
  })
}

/** Returns the upload that the path and the state parameter name. Throws BLOB_UPLOAD_UNKNOWN if it belongs to another repo or caller. */
async function enterUpload(host: OciHost, exchange: RegistryExchange, path: UploadPath): Promise<OpenUpload> {
  const { repository } = path
  const name = nameOf(await enterRepo(host, exchange, { repository, action: 'push' }), path.id)
  return { name, repository, upload: openUpload(host.sealer, name, exchange.query.get('_state') ?? '') }
}

/** Returns the body of a request as a chunk. Throws if Content-Range and Content-Length are invalid or do not match. */
async function chunkOf(
  host: OciHost,
  exchange: RegistryExchange,
  { repo, upload }: { repo: Uid; upload: Upload },
): Promise<{ chunk: Chunk; body: RequestBody }> {
  const { request, signal } = exchange
  const header = exchange.header('content-range')
  const range = header === undefined ? undefined : parseContentRange(header)
  if (header !== undefined && range === undefined) throw new RegistryError('BLOB_UPLOAD_INVALID', 'Content-Range must be <first>-<last>', { status: 416 })
  const said = lengthOf(request)
  const length = range === undefined ? said : range.last - range.first + 1
  if (said !== undefined && said !== length) throw new RegistryError('SIZE_INVALID', 'Content-Length does not match Content-Range', { status: 400 })
  const known = length === undefined ? {} : { length }
  // Checked before the body is read. A body without a length is read only up to the organisation's free space.
  const room = await storedRoom(host.services, { repo, limit: contentLimit, bytes: upload.offset + (length ?? 0) }, signal)
  const most =
    room === undefined
      ? {}
      : {
          most: {
            bytes: room - upload.offset,
            failure: () => new RegistryError('DENIED', 'the content limit of the organisation is reached; delete images first'),
          },
        }
  const body = new RequestBody(request, { idleMs: host.idleMs, ...known, ...most })
  return { chunk: { body, offset: range?.first ?? upload.offset, ...known }, body }
}

/** Passes the request's body to `take`. If that fails because of the client, throws the client's error. */
async function withChunk<T>(host: OciHost, exchange: RegistryExchange, use: { repo: Uid; upload: Upload; take: (chunk: Chunk) => Promise<T> }): Promise<T> {
  const { chunk, body } = await chunkOf(host, exchange, use)
  try {
    return await use.take(chunk)
  } catch (error) {
    throw body.failure ?? error
  } finally {
    body.destroy()
  }
}

/** Handles PATCH: appends one chunk, or a stream of any length. */
export async function appendUpload(host: OciHost, exchange: RegistryExchange, path: UploadPath): Promise<void> {
  const open = await enterUpload(host, exchange, path)
  const { name, upload } = open
  const take = (chunk: Chunk): Promise<Upload> => host.upstream.appendUpload(name.repo, { state: upload.state, chunk }, exchange.signal)
  const longer = await goOn(host, exchange, { open, work: withChunk(host, exchange, { repo: name.repo, upload, take }) })
  exchange.send(202, [...placeOf(host, { ...open, upload: longer }), 'Content-Length', 0])
}

/** Handles PUT: appends the last chunk, if any, and finishes the upload under its digest. */
export async function finishUpload(host: OciHost, exchange: RegistryExchange, path: UploadPath): Promise<void> {
  const open = await enterUpload(host, exchange, path)
  const digest = digestParameter(exchange, 'digest')
  try {
    await goOn(host, exchange, { open, work: finish(host, exchange, { ...open, digest }) })
  } catch (error) {
    if (endsUpload(error)) await uncountUpload(host.services, open.name, exchange.signal)
    throw error
  }
  await uncountUpload(host.services, open.name, exchange.signal)
  answerBlob(exchange, open.repository, digest)
}

/** Returns true if this error leaves an upload that no client can continue. */
function endsUpload(error: unknown): boolean {
  return isQuota(error) || (error instanceof UpstreamError && (error.kind === 'digest_mismatch' || error.kind === 'upload_unknown'))
}

function isQuota(error: unknown): boolean {
  return error instanceof DomainError && error.reason === 'QUOTA_EXCEEDED'
}

/** Finishes the upload in the upstream, then records that the repo holds the blob. */
async function finish(host: OciHost, exchange: RegistryExchange, open: OpenUpload & { digest: Digest }): Promise<void> {
  const { name, upload, digest } = open
  const { repo } = name
  const { signal } = exchange
  const take = (chunk?: Chunk): Promise<{ size: number; digest: Digest }> =>
    host.upstream.finishUpload(repo, { state: upload.state, digest, ...(chunk === undefined ? {} : { chunk }) }, signal)
  // If the repo already holds the blob but no longer needs it, keeps garbage collection from removing the new bytes.
  await touchBlob(host.services, { repo, digest }, signal)
  let epoch = await contentEpoch(host.services, repo, signal)
  const made = hasBody(exchange.request) ? await withChunk(host, exchange, { repo, upload, take }) : await take()
  let isFresh = true
  await whileUncollected(async () => {
    if (!isFresh) {
      epoch = await contentEpoch(host.services, repo, signal)
      // An earlier removal may have deleted the new bytes. Then the client must upload them again, which clients do after a 503.
      if ((await host.upstream.statBlob(repo, made.digest, signal)) === undefined)
        throw new RegistryError('UNAVAILABLE', 'unused content of the repo was being removed; start the upload again', { headers: { 'Retry-After': '1' } })
    }
    isFresh = false
    await recordBlob(host.services, { repo, digest, size: made.size, upstreamDigest: made.digest, epoch }, signal)
  }).catch(async (error: unknown) => {
    // The upstream has the bytes, but no record names them.
    if (isQuota(error)) await scheduleDelete(host.services, { repo, sort: 'blob', digest: made.digest })
    throw error
  })
}

/** Runs `work`. If a chunk does not start where the upload ends, responds with the current offset, so that the client can continue there. */
async function goOn<T>(host: OciHost, exchange: RegistryExchange, step: { open: OpenUpload; work: Promise<T> }): Promise<T> {
  const { open, work } = step
  try {
    return await work
  } catch (error) {
    if (!(error instanceof UpstreamError && error.kind === 'range_invalid')) throw error
    const upload = await host.upstream.uploadStatus(open.name.repo, open.upload.state, exchange.signal)
    const lines = placeOf(host, { ...open, upload })
    const headers = Object.fromEntries(Array.from({ length: lines.length / 2 }, (_, at) => [String(lines[2 * at]), String(lines[2 * at + 1])]))
    throw new RegistryError('BLOB_UPLOAD_INVALID', 'the chunk must start where the upload ends', { status: 416, headers, cause: error })
  }
}

/** Handles GET: returns how many bytes the upload has. */
export async function uploadStatus(host: OciHost, exchange: RegistryExchange, path: UploadPath): Promise<void> {
  const open = await enterUpload(host, exchange, path)
  const upload = await host.upstream.uploadStatus(open.name.repo, open.upload.state, exchange.signal)
  exchange.send(204, placeOf(host, { ...open, upload }))
}

/** Handles DELETE: cancels the upload and discards its bytes. */
export async function cancelUpload(host: OciHost, exchange: RegistryExchange, path: UploadPath): Promise<void> {
  const { name, upload } = await enterUpload(host, exchange, path)
  await host.upstream.cancelUpload(name.repo, upload.state, exchange.signal)
  await uncountUpload(host.services, name, exchange.signal)
  exchange.send(204)
}
