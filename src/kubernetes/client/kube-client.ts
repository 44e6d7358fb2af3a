import type { Readable } from 'node:stream'
import { request, type Dispatcher } from 'undici'
import { fractionOf, type Random } from '../../base/runtime.ts'
import type { Rate } from '../../base/token-bucket.ts'
import { untilAborted } from '../../base/timing.ts'
import { KubeConnection, type KubeRoute } from './connection.ts'
import { accessOf, type KubeEndpoint } from './kube-endpoint.ts'
import { answeredError, unansweredError, watchError, type StatusAnswer } from './kube-errors.ts'
import { PacedCalls } from './paced-calls.ts'
import {
  KubeError,
  type KubeApi,
  type KubeErrorReason,
  type KubeObject,
  type ListPage,
  type ObjectDraft,
  type ObjectRef,
  type ObjectType,
  type Selection,
  type WatchEvent,
} from '../kube-api.ts'

const newline = 0x0a

/** A line of a watch. */
interface WatchLine {
  readonly type: string
  readonly object: unknown
}

const typeOf = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const

/** Parses one line of a watch. Returns undefined for an unknown event type. Throws if the line reports an error. */
function parseWatchLine(text: string): WatchEvent | undefined {
  // a cast: the API server guarantees this form
  const { type, object } = JSON.parse(text) as WatchLine
  if (type === 'ERROR') throw watchError(object as StatusAnswer)
  const received = object as KubeObject
  if (type === 'BOOKMARK') return { type: 'bookmark', resourceVersion: received.metadata.resourceVersion }
  return Object.hasOwn(typeOf, type) ? { type: typeOf[type as keyof typeof typeOf], object: received } : undefined
}

/** Yields the complete lines of a body that are not empty. Drops a last line without a line end. */
async function* linesOf(body: Readable): AsyncGenerator<string, void> {
  let begun: Buffer[] = []
  for await (const chunk of body) {
    let rest = chunk as Buffer // a cast: a body without an encoding yields buffers
    for (let end = rest.indexOf(newline); end >= 0; end = rest.indexOf(newline)) {
      const line = Buffer.concat([...begun, rest.subarray(0, end)]).toString()
      begun = []
      rest = rest.subarray(end + 1)
      if (line !== '') yield line
    }
    if (rest.length > 0) begun.push(rest)
  }
}

/** The query parameters of a request. Undefined ones are left out. */
type Query = Readonly<Record<string, string | undefined>>

/** Returns the path of a type's objects: of all, of those in one namespace, or of one. */
function pathOf(type: ObjectType, ref: Partial<ObjectRef>, subresource?: string): string {
  const { namespace, name } = ref
  const parts = [
    type.group === '' ? 'api' : `apis/${type.group}`,
    type.version,
    ...(type.namespaced && namespace !== undefined ? ['namespaces', encodeURIComponent(namespace)] : []),
    type.plural,
    ...(name === undefined ? [] : [encodeURIComponent(name)]),
    ...(subresource === undefined ? [] : [subresource]),
  ]
  return `/${parts.join('/')}`
}

/** Returns the `apiVersion` of an object of this type. */
function apiVersionOf({ group, version }: ObjectType): string {
  return group === '' ? version : `${group}/${version}`
}

/** Returns the query string with its question mark, or an empty string. */
function queryOf(query: Query): string {
  const entries = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return entries.length === 0 ? '' : `?${new URLSearchParams(entries).toString()}`
}

const fieldManager = 'taproot-controller'
const defaultRate: Rate = { perSecond: 50, burst: 100 }
const defaultCallMs = 30_000
const defaultSilenceMs = 180_000
/** Default limits for the duration of a watch, in seconds. Each watch gets a random duration, so that they do not all end at once. */
const defaultWatchSeconds = { least: 300, most: 600 }

/** Options of a client. */
export interface KubeClientOptions {
  readonly endpoint: KubeEndpoint
  /** The user agent, as in `taproot-controller/1.2.3`. */
  readonly userAgent: string
  readonly random: Random
  /** The rate limit of calls; 50 per second and bursts of 100 by default. Calls above the limit wait. */
  readonly rate?: Rate
  /** Timeout of a call other than a watch, in milliseconds; 30 s by default. */
  readonly callMs?: number
  /** Time without any event or bookmark after which a watch counts as broken, in milliseconds; 3 min by default. */
  readonly silenceMs?: number
  /** Limits for the duration of a watch, in seconds; 300 and 600 by default. */
  readonly watchSeconds?: { readonly least: number; readonly most: number }
}

/** A client of one API server. */
export interface KubeClient extends KubeApi {
  /** Closes all connections. Calls in progress reject with `unavailable`. */
  close(): Promise<void>
}

/** Creates a client, which connects on its first call. Throws if the endpoint cannot be read or names no server. */
export function createKubeClient(options: KubeClientOptions): KubeClient {
  return new HttpKubeClient(options)
}

interface KubeCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly query?: Query
  readonly body?: unknown
  /** Content type of the body; JSON by default. */
  readonly contentType?: string
}

interface KubeTimeouts {
  readonly headersTimeout: number
  readonly bodyTimeout: number
}

class HttpKubeClient implements KubeClient {
  readonly #connection: KubeConnection
  readonly #paced: PacedCalls
  readonly #options: KubeClientOptions
  readonly #callMs: number
  readonly #silenceMs: number
  readonly #closing = new AbortController()

  constructor(options: KubeClientOptions) {
    this.#options = options
    this.#connection = new KubeConnection(accessOf(options.endpoint))
    this.#paced = new PacedCalls(options.rate ?? defaultRate)
    this.#callMs = options.callMs ?? defaultCallMs
    this.#silenceMs = options.silenceMs ?? defaultSilenceMs
  }

  async get(type: ObjectType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      return await this.#call<KubeObject>({ method: 'GET', path: pathOf(type, ref) }, signal)
    } catch (error) {
      if (hasReason(error, 'not_found')) return undefined
      throw error
    }
  }

  async list(type: ObjectType, options: Selection & { readonly limit: number; readonly continueToken?: string }, signal: AbortSignal): Promise<ListPage> {
    const { namespace, labelSelector, limit, continueToken } = options
    const path = pathOf(type, { ...(namespace !== undefined && { namespace }) })
    const query = { labelSelector, limit: String(limit), continue: continueToken }
    const { items, metadata } = await this.#call<ObjectListAnswer>({ method: 'GET', path, query }, signal)
    const next = metadata.continue ?? ''
    return { items: items ?? [], resourceVersion: metadata.resourceVersion, ...(next !== '' && { continueToken: next }) }
  }

  async *watch(type: ObjectType, options: Selection & { readonly resourceVersion: string }, signal: AbortSignal): AsyncGenerator<WatchEvent, void> {
    const { namespace, labelSelector, resourceVersion } = options
    const { least, most } = this.#options.watchSeconds ?? defaultWatchSeconds
    const seconds = Math.round(least + fractionOf(this.#options.random) * (most - least))
    const path = pathOf(type, { ...(namespace !== undefined && { namespace }) })
    const query = { watch: 'true', allowWatchBookmarks: 'true', labelSelector, resourceVersion, timeoutSeconds: String(seconds) }
    const ended = AbortSignal.any([signal, this.#closing.signal])
    await this.#awaitToken(signal)
    try {
      const body = await this.#open({ method: 'GET', path, query }, { headersTimeout: this.#callMs, bodyTimeout: this.#silenceMs }, ended)
      // If the reader stops early, the body emits an error.
      body.on('error', () => undefined)
      try {
        for await (const line of linesOf(body)) {
          signal.throwIfAborted()
          const event = parseWatchLine(line)
          if (event !== undefined) yield event
        }
      } finally {
        body.destroy()
      }
    } catch (error) {
      signal.throwIfAborted()
      throw unansweredError(error)
    }
  }

  create(type: ObjectType, draft: ObjectDraft, signal: AbortSignal): Promise<KubeObject> {
    const { namespace } = draft.metadata
    const path = pathOf(type, { ...(namespace !== undefined && { namespace }) })
    return this.#call({ method: 'POST', path, query: { fieldManager }, body: whole(type, draft) }, signal)
  }

  replace(type: ObjectType, draft: ObjectDraft, signal: AbortSignal): Promise<KubeObject> {
    return this.#call({ method: 'PUT', path: pathOf(type, draft.metadata), query: { fieldManager }, body: whole(type, draft) }, signal)
  }

  apply(...[type, draft, { subresource }, signal]: Parameters<KubeApi['apply']>): Promise<KubeObject> {
    const path = pathOf(type, draft.metadata, subresource)
    const query = { fieldManager, force: 'true' }
    return this.#call({ method: 'PATCH', path, query, contentType: 'application/apply-patch+yaml', body: whole(type, draft) }, signal)
  }

  patch(...[type, ref, patch, signal]: Parameters<KubeApi['patch']>): Promise<KubeObject> {
    return this.#call({ method: 'PATCH', path: pathOf(type, ref), query: { fieldManager }, contentType: 'application/merge-patch+json', body: patch }, signal)
  }

  async delete(...[type, ref, { uid }, signal]: Parameters<KubeApi['delete']>): Promise<void> {
    const body = { apiVersion: 'v1', kind: 'DeleteOptions', ...(uid !== undefined && { preconditions: { uid } }) }
    try {
      await this.#call({ method: 'DELETE', path: pathOf(type, ref), body }, signal)
    } catch (error) {
      if (hasReason(error, 'not_found')) return
      if (!hasReason(error, 'conflict') || uid === undefined) throw error
      const there = await this.get(type, ref, signal)
      if (there?.metadata.uid === uid) throw error
    }
  }

  async close(): Promise<void> {
    this.#closing.abort(new KubeError('unavailable', 'the client is closed'))
    await this.#connection.close()
  }

  /** Sends a request and parses its JSON answer. */
  async #call<T>(call: KubeCall, signal: AbortSignal): Promise<T> {
    await this.#awaitToken(signal)
    const ended = AbortSignal.any([signal, this.#closing.signal, AbortSignal.timeout(this.#callMs)])
    try {
      const body = await this.#open(call, { headersTimeout: this.#callMs, bodyTimeout: this.#callMs }, ended)
      // a cast: the API server returns the requested type
      return JSON.parse(await body.text()) as T
    } catch (error) {
      signal.throwIfAborted()
      throw unansweredError(error)
    }
  }

  async #awaitToken(signal: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([signal, this.#closing.signal])
    await this.#paced.take(ended)
  }

  async #route(): Promise<KubeRoute> {
    try {
      return await this.#connection.route()
    } catch (cause) {
      throw new KubeError('unauthorized', 'the credential for the API server cannot be read', { cause })
    }
  }

  /**
   * Sends a request and returns the body of a 2xx response. Rejects with KubeError for other statuses, and with undici's error if the
   * request fails.
   */
  async #open(
    { method, path, query = {}, body, contentType = 'application/json' }: KubeCall,
    timeouts: KubeTimeouts,
    signal: AbortSignal,
  ): Promise<AnswerBody> {
    const { dispatcher, headers, refused } = await untilAborted(this.#route(), signal)
    const asked = request(`${this.#connection.server}${path}${queryOf(query)}`, {
      method,
      dispatcher,
      signal,
      ...timeouts,
      headers: { accept: 'application/json', 'user-agent': this.#options.userAgent, ...headers, ...(body !== undefined && { 'content-type': contentType }) },
      body: body === undefined ? null : JSON.stringify(body),
    })
    // Undici ignores the signal while it is connecting.
    const answer = await untilAborted(asked, signal)
    if (answer.statusCode >= 200 && answer.statusCode < 300) return answer.body
    if (answer.statusCode === 401) refused()
    const retryAfter = answer.headers['retry-after']
    throw answeredError(answer.statusCode, await answer.body.text(), typeof retryAfter === 'string' ? retryAfter : undefined)
  }
}

type AnswerBody = Dispatcher.ResponseData['body']

interface ObjectListAnswer {
  /** Some servers send null for an empty list. */
  readonly items: readonly KubeObject[] | null
  readonly metadata: { readonly resourceVersion: string; readonly continue?: string }
}

/** Returns the draft with `apiVersion` and `kind`. */
function whole(type: ObjectType, draft: ObjectDraft): object {
  return { apiVersion: apiVersionOf(type), kind: type.kind, ...draft }
}

function hasReason(error: unknown, reason: KubeErrorReason): boolean {
  return error instanceof KubeError && error.reason === reason
}
