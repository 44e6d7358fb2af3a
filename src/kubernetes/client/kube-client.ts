import type { Readable } from 'node:stream'
import { request, type Dispatcher } from 'undici'
import { fractionOf, type Random } from '../../base/runtime.ts'
import type { Rate } from '../../base/token-bucket.ts'
import { untilAborted } from '../../base/until-aborted.ts'
import { KubeConnection, type KubeRoute } from './connection.ts'
import { configOf, type KubeEndpoint } from './kube-endpoint.ts'
import { answeredError, unansweredError, toldError, type StatusAnswer } from './kube-errors.ts'
import { PacedCalls } from './paced-calls.ts'
import {
  KubeError,
  type KubeApi,
  type KubeFault,
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

/** What a line tells, or undefined where it is of a type that is not known. Throws the error that it tells. */
function parseWatchLine(text: string): WatchEvent | undefined {
  // Casts: the API server's own form.
  const { type, object } = JSON.parse(text) as WatchLine
  if (type === 'ERROR') throw toldError(object as StatusAnswer)
  const told = object as KubeObject
  if (type === 'BOOKMARK') return { type: 'bookmark', resourceVersion: told.metadata.resourceVersion }
  return Object.hasOwn(typeOf, type) ? { type: typeOf[type as keyof typeof typeOf], object: told } : undefined
}

/** The lines of a body, without those that are empty, and without a last one that has no end. */
async function* linesOf(body: Readable): AsyncGenerator<string, void> {
  let begun: Buffer[] = []
  for await (const chunk of body) {
    let rest = chunk as Buffer // a body without an encoding gives buffers
    for (let end = rest.indexOf(newline); end >= 0; end = rest.indexOf(newline)) {
      const line = Buffer.concat([...begun, rest.subarray(0, end)]).toString()
      begun = []
      rest = rest.subarray(end + 1)
      if (line !== '') yield line
    }
    if (rest.length > 0) begun.push(rest)
  }
}

/** What a request says beside its path; undefined ones are left out. */
type Query = Readonly<Record<string, string | undefined>>

/** The path of a type's objects: all, those of one namespace, or one. */
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

/** As in the `apiVersion` of an object. */
function apiVersionOf({ group, version }: ObjectType): string {
  return group === '' ? version : `${group}/${version}`
}

/** The query with its question mark, or nothing. */
function queryOf(query: Query): string {
  const entries = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return entries.length === 0 ? '' : `?${new URLSearchParams(entries).toString()}`
}

const fieldManager = 'taproot-controller'
const defaultRate: Rate = { perSecond: 50, burst: 100 }
const defaultCallMs = 30_000
const defaultSilenceMs = 180_000
/** How long a watch lasts: not all of them end at once. */
const watchSeconds = { least: 300, most: 600 }

/** What a client needs. */
export interface KubeClientOptions {
  readonly endpoint: KubeEndpoint
  /** How this program names itself, as in `taproot-controller/1.2.3`. */
  readonly userAgent: string
  readonly random: Random
  /** How many calls are begun: 50 per second on average and 100 at once where absent. Further ones wait their turn. */
  readonly rate?: Rate
  /** How long a call that is no watch may take, in milliseconds; 30 s where absent. */
  readonly callMs?: number
  /** How long a watch may tell nothing, not even a bookmark, before it counts as broken, in milliseconds; 3 min where absent. */
  readonly silenceMs?: number
}

/** A client of one API server. */
export interface KubeClient extends KubeApi {
  /** Ends all calls, which reject as `unavailable`, and all connections. */
  close(): Promise<void>
}

/** Builds a client; connects to nothing before its first call. Throws where the endpoint names no server or can't be read. */
export function createKubeClient(options: KubeClientOptions): KubeClient {
  return new HttpKubeClient(options)
}

interface KubeCall {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly query?: Query
  readonly body?: unknown
  /** Of the body; JSON where absent. */
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
    this.#connection = new KubeConnection(configOf(options.endpoint))
    this.#paced = new PacedCalls(options.rate ?? defaultRate)
    this.#callMs = options.callMs ?? defaultCallMs
    this.#silenceMs = options.silenceMs ?? defaultSilenceMs
  }

  async get(type: ObjectType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      return await this.#call<KubeObject>({ method: 'GET', path: pathOf(type, ref) }, signal)
    } catch (error) {
      if (isFault(error, 'not_found')) return undefined
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
    const seconds = Math.round(watchSeconds.least + fractionOf(this.#options.random) * (watchSeconds.most - watchSeconds.least))
    const path = pathOf(type, { ...(namespace !== undefined && { namespace }) })
    const query = { watch: 'true', allowWatchBookmarks: 'true', labelSelector, resourceVersion, timeoutSeconds: String(seconds) }
    const ended = AbortSignal.any([signal, this.#closing.signal])
    await this.#turn(signal)
    try {
      const body = await this.#open({ method: 'GET', path, query }, { headersTimeout: this.#callMs, bodyTimeout: this.#silenceMs }, ended)
      // Whoever stops listening leaves a body that breaks off.
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
      if (isFault(error, 'not_found')) return
      if (!isFault(error, 'conflict') || uid === undefined) throw error
      const there = await this.get(type, ref, signal)
      if (there?.metadata.uid === uid) throw error
    }
  }

  async close(): Promise<void> {
    this.#closing.abort(new KubeError('unavailable', 'the client is closed'))
    await this.#connection.close()
  }

  /** A whole call: sends it and reads its answer, which is JSON. */
  async #call<T>(call: KubeCall, signal: AbortSignal): Promise<T> {
    await this.#turn(signal)
    const ended = AbortSignal.any([signal, this.#closing.signal, AbortSignal.timeout(this.#callMs)])
    try {
      const body = await this.#open(call, { headersTimeout: this.#callMs, bodyTimeout: this.#callMs }, ended)
      // A cast: the API server answers what was asked for.
      return JSON.parse(await body.text()) as T
    } catch (error) {
      signal.throwIfAborted()
      throw unansweredError(error)
    }
  }

  async #turn(signal: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([signal, this.#closing.signal])
    await this.#paced.take(ended)
  }

  async #route(): Promise<KubeRoute> {
    try {
      return await this.#connection.route()
    } catch (cause) {
      throw new KubeError('unauthorized', 'the credential for the API server can not be read', { cause })
    }
  }

  /** Sends a request; resolves with the body of an answer that tells of success. Rejects with KubeError where it tells of none, or as undici does. */
  async #open(
    { method, path, query = {}, body, contentType = 'application/json' }: KubeCall,
    timeouts: KubeTimeouts,
    signal: AbortSignal,
  ): Promise<AnswerBody> {
    const { dispatcher, headers } = await untilAborted(this.#route(), signal)
    const asked = request(`${this.#connection.server}${path}${queryOf(query)}`, {
      method,
      dispatcher,
      signal,
      ...timeouts,
      headers: { accept: 'application/json', 'user-agent': this.#options.userAgent, ...headers, ...(body !== undefined && { 'content-type': contentType }) },
      body: body === undefined ? null : JSON.stringify(body),
    })
    // While it connects undici hears no signal.
    const answer = await untilAborted(asked, signal)
    if (answer.statusCode >= 200 && answer.statusCode < 300) return answer.body
    const retryAfter = answer.headers['retry-after']
    throw answeredError(answer.statusCode, await answer.body.text(), typeof retryAfter === 'string' ? retryAfter : undefined)
  }
}

type AnswerBody = Dispatcher.ResponseData['body']

interface ObjectListAnswer {
  /** Null where a server has none. */
  readonly items: readonly KubeObject[] | null
  readonly metadata: { readonly resourceVersion: string; readonly continue?: string }
}

/** A draft with what its type says. */
function whole(type: ObjectType, draft: ObjectDraft): object {
  return { apiVersion: apiVersionOf(type), kind: type.kind, ...draft }
}

function isFault(error: unknown, fault: KubeFault): boolean {
  return error instanceof KubeError && error.fault === fault
}
