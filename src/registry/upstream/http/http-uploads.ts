import { isDigest, type Digest } from '../../../base/digest.ts'
import type { Uid } from '../../../base/uid.ts'
import { UpstreamError, type Chunk, type Upload } from '../upstream.ts'
import { failureOf, upstreamError, type Failure } from './registry-answers.ts'
import { dump, headerOf, type RegistryClient, type UpstreamAnswer, type UpstreamRequest } from './registry-client.ts'

const maxStateLength = 2048

/** Where an upload continues, as stated by the upstream: path and query. */
interface UploadLocation {
  readonly location: string
  readonly offset: number
}

/** How an upstream names a repository. */
export type NameOf = (repo: Uid) => string

/** Uploads at a registry: what `Location` said and how much arrived is their state. */
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
    // Of a chunk without a length a registry can't see that it is sent twice, unless `Location` has a state: it is asked first.
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
    // Some registries count what a last chunk has by the length it says: one that says none goes before.
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

  /** Cancels the upload that an answer names. */
  async drop(repo: Uid, answer: UpstreamAnswer, signal: AbortSignal): Promise<void> {
    await this.#delete(repo, this.#open(repo, this.#upload(repo, answer, 0).state), signal)
  }

  async #delete(repo: Uid, place: UploadLocation, signal: AbortSignal): Promise<void> {
    const answer = await this.#client.send({ method: 'DELETE', path: place.location, scopes: this.#scopes(repo, 'delete') }, signal)
    if (answer.statusCode >= 300 && answer.statusCode !== 404) throw uploadError(await failureOf(answer, signal), 'the cancellation of an upload')
    await dump(answer)
  }

  /** The answer to the end of an upload, a 201 without its body. What has another digest is dropped. */
  async #ended(repo: Uid, end: { place: UploadLocation; digest: Digest; chunk: Chunk | undefined }, signal: AbortSignal): Promise<UpstreamAnswer> {
    try {
      const answer = await this.#put(repo, end, signal)
      if (answer.statusCode !== 201) throw uploadError(await failureOf(answer, signal), 'the end of an upload')
      await dump(answer)
      return answer
    } catch (error) {
      // Not every registry drops it by itself.
      if (error instanceof UpstreamError && error.kind === 'digest_mismatch') await this.cancel(repo, pack(end.place), signal)
      throw error
    }
  }

  /**
   * Completes an upload. A registry with a new secret no longer knows the state, but still knows the upload. Distribution makes a secret at each start unless
   * one is configured. Without a chunk the newest state is tried.
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

  /** Returns the upload that an answer names. */
  #upload(repo: Uid, answer: UpstreamAnswer, offset: number): Upload {
    const location = headerOf(answer, 'location') ?? ''
    const base = 'http://upstream'
    if (!URL.canParse(location, base)) throw new UpstreamError('refused', 'the upstream sent no Location for an upload')
    // Whatever host it names: the upstream is where the configuration says.
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

  /** True where the path is below the uploads of the repo. */
  #isOf(repo: Uid, path: string): boolean {
    return path.startsWith(`/v2/${this.#nameOf(repo)}/blobs/uploads/`) && !path.includes('/../')
  }
}

function pack({ location, offset }: UploadLocation): string {
  return `${offset} ${location}`
}

/** A chunk that begins elsewhere is not sent. */
function checkOffset(place: UploadLocation, chunk: Chunk): void {
  if (chunk.offset !== undefined && chunk.offset !== place.offset) throw new UpstreamError('range_invalid', `the upload ends at ${place.offset}`)
}

/** Headers and body of a request with a chunk. */
function contentOf(place: UploadLocation, { body, length }: Chunk): Pick<UpstreamRequest, 'headers' | 'stream'> {
  const range = length === undefined ? {} : { 'content-range': `${place.offset}-${place.offset + length - 1}` }
  return { headers: { 'content-type': 'application/octet-stream', ...range }, stream: { body, length } }
}

/** A failure of a request about an upload. A state that is not taken (any more) is asked for again, like an offset. */
function uploadError(failure: Failure, doing: string): UpstreamError {
  if (failure.code === 'BLOB_UPLOAD_INVALID') return new UpstreamError('range_invalid', `the upstream answered ${failure.status} ${failure.code} to ${doing}`)
  if (failure.status === 404) return new UpstreamError('upload_unknown', `the upstream answered 404 to ${doing}`)
  return upstreamError(failure, doing)
}

/**
 * How much an upload has. `Range: 0-0` is said of none and of one byte: then the state of distribution tells, which its answer holds, or what was known before.
 */
function offsetOf(answer: UpstreamAnswer, known: number): number {
  const end = /^(?:bytes=)?0-(-?\d{1,15})$/.exec(headerOf(answer, 'range') ?? '')?.[1]
  if (end === undefined) throw new UpstreamError('refused', 'the upstream sent no Range for an upload')
  if (end !== '0') return Number(end) + 1
  return distributionOffset(headerOf(answer, 'location') ?? '') ?? Math.min(known, 1)
}

/** `Offset` of the JSON behind the 32 bytes of a MAC in `_state`. */
function distributionOffset(location: string): number | undefined {
  const state = URL.canParse(location, 'http://upstream') ? new URL(location, 'http://upstream').searchParams.get('_state') : null
  if (state === null) return undefined
  try {
    const { Offset: offset } = JSON.parse(Buffer.from(state, 'base64url').toString('utf8', 32)) as { Offset?: unknown } // a cast of their JSON
    return typeof offset === 'number' ? offset : undefined
  } catch {
    // Another registry's.
    return undefined
  }
}
