import { isDigest, type Digest } from '../../../base/digest.ts'
import type { Uid } from '../../../base/uid.ts'
import { UpstreamError, type Chunk, type Upload } from '../upstream.ts'
import { failureOf, upstreamError, type Failure } from './registry-answers.ts'
import { dump, headerOf, type RegistryClient, type UpstreamAnswer, type UpstreamRequest } from './registry-client.ts'

const maxStateLength = 2048

/** The URL at which an upload continues, as path and query, as stated by the upstream. */
interface UploadLocation {
  readonly location: string
  readonly offset: number
}

/** Returns the name of a repo's repository in the upstream. */
export type NameOf = (repo: Uid) => string

/** Uploads to a registry. The state of an upload is its last `Location`, and the number of bytes received. */
export class HttpUploads {
  readonly #client: RegistryClient
  readonly #nameOf: NameOf
  readonly #finishMs: number

  constructor(client: RegistryClient, { nameOf, finishMs }: { nameOf: NameOf; finishMs: number }) {
    this.#client = client
    this.#nameOf = nameOf
    this.#finishMs = finishMs
  }

  async start(repo: Uid, signal: AbortSignal): Promise<Upload> {
    const path = `/v2/${this.#nameOf(repo)}/blobs/uploads/`
    const answer = await this.#client.send({ method: 'POST', path, scopes: this.#scopes(repo, 'pull,push') }, signal)
    if (answer.statusCode !== 202) throw upstreamError(await failureOf(answer, signal), 'the start of an upload')
    await dump(answer)
    return this.#upload(repo, answer, 0)
  }

  async status(repo: Uid, state: string, signal: AbortSignal): Promise<Upload> {
    const place = this.#open(repo, state)
    const answer = await this.#client.send({ method: 'GET', path: place.location, scopes: this.#scopes(repo, 'pull') }, signal)
    if (answer.statusCode !== 204 && answer.statusCode !== 200) throw uploadError(await failureOf(answer, signal), 'the query of an upload')
    await dump(answer)
    return this.#upload(repo, answer, offsetOf(answer, place.offset))
  }

  async append(repo: Uid, { state, chunk }: { state: string; chunk: Chunk }, signal: AbortSignal): Promise<Upload> {
    const place = this.#open(repo, state)
    checkOffset(place, chunk)
    if (chunk.length === 0) {
      chunk.body.resume()
      return this.status(repo, state, signal)
    }
    // A registry cannot detect that a chunk without a length is sent twice, unless `Location` has a state. So it is asked for the offset
    // first.
    if (chunk.length === undefined && !place.location.includes('?') && (await this.status(repo, state, signal)).offset !== place.offset)
      throw new UpstreamError('range_invalid', 'the upload ends at another offset')
    const answer = await this.#client.send(
      { method: 'PATCH', path: place.location, scopes: this.#scopes(repo, 'pull,push'), ...contentOf(place, chunk) },
      signal,
    )
    if (answer.statusCode !== 202 && answer.statusCode !== 201 && answer.statusCode !== 204) {
      throw uploadError(await failureOf(answer, signal), 'a chunk')
    }
    await dump(answer)
    return this.#upload(repo, answer, place.offset + answer.sent)
  }

  async finish(repo: Uid, source: { state: string; digest: Digest; chunk?: Chunk }, signal: AbortSignal): Promise<{ size: number; digest: Digest }> {
    const { digest, chunk } = source
    // Some registries take the size of a last chunk from its length. So a chunk without a length is sent before the last request.
    if (chunk !== undefined && (chunk.length === undefined || chunk.length === 0)) {
      const { state } = await this.append(repo, { state: source.state, chunk }, signal)
      return this.finish(repo, { state, digest }, signal)
    }
    const place = this.#open(repo, source.state)
    if (chunk !== undefined) checkOffset(place, chunk)
    const answer = await this.#ended(repo, { place, digest, chunk }, signal)
    const named = headerOf(answer, 'docker-content-digest')
    return { size: place.offset + answer.sent, digest: named !== undefined && isDigest(named) ? named : digest }
  }

  async cancel(repo: Uid, state: string, signal: AbortSignal): Promise<void> {
    let place: UploadLocation
    try {
      place = this.#open(repo, (await this.status(repo, state, signal)).state)
    } catch (error) {
      if (error instanceof UpstreamError && error.kind === 'upload_unknown') return
      throw error
    }
    await this.#delete(repo, place, signal)
  }

  /** Cancels the upload that a response names. */
  async drop(repo: Uid, answer: UpstreamAnswer, signal: AbortSignal): Promise<void> {
    await this.#delete(repo, this.#open(repo, this.#upload(repo, answer, 0).state), signal)
  }

  async #delete(repo: Uid, place: UploadLocation, signal: AbortSignal): Promise<void> {
    const answer = await this.#client.send({ method: 'DELETE', path: place.location, scopes: this.#scopes(repo, 'delete') }, signal)
    if (answer.statusCode >= 300 && answer.statusCode !== 404) throw uploadError(await failureOf(answer, signal), 'the cancellation of an upload')
    await dump(answer)
  }

  /** Returns the response to the end of an upload: a 201, without its body. If the digest does not match, cancels the upload. */
  async #ended(repo: Uid, end: { place: UploadLocation; digest: Digest; chunk: Chunk | undefined }, signal: AbortSignal): Promise<UpstreamAnswer> {
    try {
      const answer = await this.#put(repo, end, signal)
      if (answer.statusCode !== 201) throw uploadError(await failureOf(answer, signal), 'the end of an upload')
      await dump(answer)
      return answer
    } catch (error) {
      // Some registries do not drop the upload by themselves.
      if (error instanceof UpstreamError && error.kind === 'digest_mismatch') await this.cancel(repo, pack(end.place), signal)
      throw error
    }
  }

  /**
   * Finishes an upload. A registry with a new secret rejects the state, but still has the upload. Distribution creates a secret at each
   * start, unless one is configured. Then, for a request without a chunk, fetches the newest state and tries again.
   */
  async #put(
    repo: Uid,
    { place, digest, chunk }: { place: UploadLocation; digest: Digest; chunk: Chunk | undefined },
    signal: AbortSignal,
  ): Promise<UpstreamAnswer> {
    const ending = (at: UploadLocation): Promise<UpstreamAnswer> =>
      this.#client.send(
        {
          method: 'PUT',
          path: `${at.location}${at.location.includes('?') ? '&' : '?'}digest=${encodeURIComponent(digest)}`,
          scopes: this.#scopes(repo, 'pull,push'),
          headersMs: this.#finishMs,
          ...(chunk !== undefined && contentOf(at, chunk)),
        },
        signal,
      )
    const answer = await ending(place)
    if (chunk !== undefined || (answer.statusCode !== 400 && answer.statusCode !== 404)) return answer
    const failure = await failureOf(answer, signal)
    if (failure.code !== 'BLOB_UPLOAD_INVALID') throw uploadError(failure, 'the end of an upload')
    const newest = this.#open(repo, (await this.status(repo, pack(place), signal)).state)
    if (newest.offset !== place.offset) throw new UpstreamError('range_invalid', 'the upload ends at another offset')
    return ending(newest)
  }

  #scopes(repo: Uid, actions: string): readonly string[] {
    return [`repository:${this.#nameOf(repo)}:${actions}`]
  }

  /** Returns the upload that a response names. */
  #upload(repo: Uid, answer: UpstreamAnswer, offset: number): Upload {
    const location = headerOf(answer, 'location') ?? ''
    const base = 'http://upstream'
    if (!URL.canParse(location, base)) throw new UpstreamError('refused', 'the upstream sent no Location for an upload')
    // Only the path and query are used. The configuration determines the host.
    const { pathname, search } = new URL(location, base)
    const state = pack({ location: pathname + search, offset })
    if (!this.#isOf(repo, pathname) || state.length > maxStateLength) throw new UpstreamError('refused', 'the upstream sent an unusable Location for an upload')
    return { state, offset }
  }

  #open(repo: Uid, state: string): UploadLocation {
    const space = state.indexOf(' ')
    const [offset, location] = [Number(state.slice(0, space)), state.slice(space + 1)]
    if (!Number.isSafeInteger(offset) || space < 1 || !this.#isOf(repo, location)) throw new UpstreamError('upload_unknown', 'there is no such upload')
    return { location, offset }
  }

  /** Returns true if the path is below the uploads of the repo. */
  #isOf(repo: Uid, path: string): boolean {
    return path.startsWith(`/v2/${this.#nameOf(repo)}/blobs/uploads/`) && !path.includes('/../')
  }
}

function pack({ location, offset }: UploadLocation): string {
  return `${offset} ${location}`
}

/** Throws if a chunk does not start at the upload's offset. Such a chunk is not sent. */
function checkOffset(place: UploadLocation, chunk: Chunk): void {
  if (chunk.offset !== undefined && chunk.offset !== place.offset) throw new UpstreamError('range_invalid', `the upload ends at ${place.offset}`)
}

/** Returns the headers and body of a request with a chunk. */
function contentOf(place: UploadLocation, { body, length }: Chunk): Pick<UpstreamRequest, 'headers' | 'stream'> {
  const range = length === undefined ? {} : { 'content-range': `${place.offset}-${place.offset + length - 1}` }
  return { headers: { 'content-type': 'application/octet-stream', ...range }, stream: { body, length } }
}

/**
 * Returns the error for a failed request about an upload. A rejected state is `range_invalid`, like a wrong offset: the caller asks for
 * the upload's status.
 */
function uploadError(failure: Failure, doing: string): UpstreamError {
  if (failure.code === 'BLOB_UPLOAD_INVALID') return new UpstreamError('range_invalid', `the upstream answered ${failure.status} ${failure.code} to ${doing}`)
  if (failure.status === 404) return new UpstreamError('upload_unknown', `the upstream answered 404 to ${doing}`)
  return upstreamError(failure, doing)
}

/**
 * Returns the number of bytes of an upload. `Range: 0-0` means either none or one. Then the state of distribution in the response decides,
 * or else the number known before.
 */
function offsetOf(answer: UpstreamAnswer, known: number): number {
  const end = /^(?:bytes=)?0-(-?\d{1,15})$/.exec(headerOf(answer, 'range') ?? '')?.[1]
  if (end === undefined) throw new UpstreamError('refused', 'the upstream sent no Range for an upload')
  if (end !== '0') return Number(end) + 1
  return distributionOffset(headerOf(answer, 'location') ?? '') ?? Math.min(known, 1)
}

/** Returns `Offset` of the JSON after the 32 bytes of a MAC in `_state`; undefined if `_state` has another form. */
function distributionOffset(location: string): number | undefined {
  const state = URL.canParse(location, 'http://upstream') ? new URL(location, 'http://upstream').searchParams.get('_state') : null
  if (state === null) return undefined
  try {
    const { Offset: offset } = JSON.parse(Buffer.from(state, 'base64url').toString('utf8', 32)) as { Offset?: unknown } // a cast of JSON from distribution
    return typeof offset === 'number' ? offset : undefined
  } catch {
    // The state comes from another registry software.
    return undefined
  }
}
