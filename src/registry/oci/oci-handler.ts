import { errorText } from '../../base/error-text.ts'
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ClientAddress } from '../../base/client-address.ts'
import { DomainError } from '../../base/errors.ts'
import { RegistryError } from '../registry-error.ts'
import { auditWrite } from './audit-writes.ts'
import { BlobCache } from './blobs/blob-cache.ts'
import { deleteBlob, getBlob, readBlob } from './blobs/blob-routes.ts'
import { listCatalog } from './catalog-route.ts'
import { RegistryExchange } from './exchange.ts'
import { defaultIdleMs, beginDrain } from './blobs/idle-limit.ts'
import { listReferrers, listTags } from './list-routes.ts'
import { ManifestCache } from './manifests/manifest-cache.ts'
import { deleteManifest, getManifest, putManifest } from './manifests/manifest-routes.ts'
import { errorBody, isServerError, toRegistryError } from './oci-errors.ts'
import type { OciHost } from './oci-host.ts'
import { parseOciPath, type OciPath, type OciPathKind } from './oci-path.ts'
import { PullChecks } from '../policies/pull-checks.ts'
import { reportFailure } from './reports.ts'
import { readBody } from './blobs/request-body.ts'
import { tracedRequest } from './traced-request.ts'
import { appendUpload, cancelUpload, finishUpload, startUpload, uploadStatus } from './blobs/upload-routes.ts'

/**
 * Handler for `GET /v2/<repository>/_service/history/<tag>` (docs/spec/registry.md#history-endpoint). Its errors are sent in the usual
 * error format.
 */
export type HistoryRoute = (exchange: RegistryExchange, path: { readonly repository: string; readonly tag: string }) => Promise<void>

/** Called for every response, with the kind of path (`none` if unknown), the method, the status and the duration in seconds. */
export type Observe = (route: OciPathKind | 'none', method: string, answer: { readonly status: number; readonly seconds: number }) => void

/** Dependencies and limits of the handler. */
export interface OciHandlerOptions extends Omit<OciHost, 'cache' | 'blobs' | 'pullChecks' | 'idleMs'> {
  readonly history: HistoryRoute
  /** How long a client may send or read nothing of a body, in milliseconds; default 60,000. */
  readonly idleMs?: number
  /** Maximum size of cached manifests, in bytes; default 64 MiB. */
  readonly manifestCacheBytes?: number
  /** Maximum size of cached blobs, in bytes; default 0. */
  readonly blobCacheBytes?: number
  /** Returns the trusted root of sigstore for signatures, as JSON. The buffer stays the same until the file changes. */
  readonly trustedRoot?: () => Buffer | undefined
  readonly observe?: Observe
  /** Creates an id for a request without one. */
  readonly newRequestId?: () => string
  /** Returns the client's address; default: the remote address of the connection. */
  readonly clientAddress?: ClientAddress
}

type RegistryVerb = 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE'

/** Handlers by kind of path and method. HEAD uses the handler of GET; its body is not sent. */
type Routes = {
  readonly [Kind in OciPathKind]: Partial<
    Record<RegistryVerb, (host: OciHost, exchange: RegistryExchange, path: Extract<OciPath, { kind: Kind }>) => Promise<void>>
  >
}

function routesOf(history: HistoryRoute): Routes {
  return {
    base: { GET: answerBase },
    catalog: { GET: listCatalog },
    manifest: { GET: getManifest, PUT: putManifest, DELETE: deleteManifest },
    blob: { GET: getBlob, DELETE: deleteBlob },
    uploads: { POST: startUpload },
    upload: { GET: uploadStatus, PATCH: appendUpload, PUT: finishUpload, DELETE: cancelUpload },
    tags: { GET: listTags },
    referrers: { GET: listReferrers },
    history: { GET: (_, exchange, path) => history(exchange, path) },
  }
}

async function answerBase(host: OciHost, exchange: RegistryExchange): Promise<void> {
  await host.gate.signedIn(exchange)
  exchange.send(200, ['Content-Type', 'application/json', 'Content-Length', 2], '{}')
}

/** The handler of the distribution API. */
export interface OciHandler {
  /** Answers a request. Never throws. */
  handle(request: IncomingMessage, response: ServerResponse): void
  /** Ends what the handler holds. */
  close(): Promise<void>
}

/**
 * Creates the handler of the distribution API (OCI distribution specification 1.1) below `/v2/`. It never throws: every failure gets a
 * response. Bodies are streamed, so the server must not limit the duration of a whole request.
 */
export function createOciHandler(options: OciHandlerOptions): OciHandler {
  const { services, upstream, observe, newRequestId = randomUUID } = options
  const cache = new ManifestCache({
    services,
    upstream,
    maxBytes: options.manifestCacheBytes ?? 64 * 1024 * 1024,
    missing: (held) => services.log.error('the upstream lacks a manifest that a repo holds', { ...held }),
  })
  const blobs = new BlobCache({
    maxBytes: options.blobCacheBytes ?? 0,
    clock: services.clock,
    read: (name, signal) => readBlob(options, name, signal),
    failed: ({ repo, digest }, error) => services.log.warn('a blob was not loaded into memory', { repo, digest, error: errorText(error) }),
  })
  const host: OciHost = {
    ...options,
    cache,
    blobs,
    pullChecks: new PullChecks({ services, manifests: cache, trustedRoot: options.trustedRoot ?? (() => undefined) }),
    idleMs: options.idleMs ?? defaultIdleMs,
  }
  const routes = routesOf(options.history)
  const handle: OciHandler['handle'] = (request, response) => {
    const startedMs = performance.now()
    const exchange = new RegistryExchange(request, response, { newRequestId, idleMs: host.idleMs, clientAddress: options.clientAddress })
    const { tracing } = services
    const answered = tracing === undefined ? answer(host, routes, exchange) : tracedRequest(tracing, exchange, () => answer(host, routes, exchange))
    answered
      .then((route) => observe?.(route, request.method ?? '', { status: response.statusCode, seconds: (performance.now() - startedMs) / 1000 }))
      .catch((error: unknown) => {
        // An unhandled rejection would end the process, and with it all other requests.
        services.log.error('a request to the registry failed to get an answer', { requestId: exchange.requestId, error: errorText(error) })
        if (!response.writableEnded) response.destroy()
      })
  }
  return { handle, close: () => host.pullChecks.close() }
}

/** Answers the request. Resolves with the kind of path. */
async function answer(host: OciHost, routes: Routes, exchange: RegistryExchange): Promise<OciPathKind | 'none'> {
  let kind: OciPathKind | 'none' = 'none'
  try {
    const path = parseOciPath(exchange.path)
    kind = path.kind
    // A request that is cut off before its end deletes nothing.
    if (exchange.request.method === 'DELETE') await readBody(exchange.request, { idleMs: host.idleMs, maxBytes: maxUnwantedBytes })
    await answerPath(host, routeOf(routes, exchange, path), { exchange, path })
  } catch (error) {
    answerError(host, exchange, error)
  }
  beginDrain(exchange.request)
  return kind
}

async function answerPath(host: OciHost, route: AnyRoute, { exchange, path }: { exchange: RegistryExchange; path: OciPath }): Promise<void> {
  try {
    await route(host, exchange, path)
  } catch (error) {
    const answered = toRegistryError(error)
    auditWrite(host.auditLog, exchange, { path, error: answered })
    reportFailure(host, exchange, { path, error: answered })
    throw error
  }
  auditWrite(host.auditLog, exchange, { path })
}

/** Maximum size of the body of a request that needs none, in bytes. */
const maxUnwantedBytes = 64 * 1024

type AnyRoute = (host: OciHost, exchange: RegistryExchange, path: OciPath) => Promise<void>

function routeOf(routes: Routes, exchange: RegistryExchange, path: OciPath): AnyRoute {
  const row = routes[path.kind] as Partial<Record<string, AnyRoute>> // a cast: a row accepts only paths of its own kind, and this path has that kind
  const method = exchange.request.method === 'HEAD' ? 'GET' : (exchange.request.method ?? '')
  const route = Object.hasOwn(row, method) ? row[method] : undefined
  if (route !== undefined) return route
  const allowed = Object.keys(row).flatMap((verb) => (verb === 'GET' ? ['GET', 'HEAD'] : [verb]))
  throw new RegistryError('UNSUPPORTED', `${allowed.join(', ')} only`, { headers: { Allow: allowed.join(', ') } })
}

/**
 * Returns true if the error is `reason`, or if `reason` is in its chain of causes. An example is an unknown outcome after the client
 * disconnected.
 */
function isCausedBy(error: unknown, reason: unknown): boolean {
  return error === reason || (error instanceof Error && error.cause !== undefined && isCausedBy(error.cause, reason))
}

function answerError(host: OciHost, exchange: RegistryExchange, error: unknown): void {
  const { response, requestId } = exchange
  const isGone = exchange.signal.aborted && (isCausedBy(error, exchange.signal.reason) || (error instanceof DomainError && error.code === 1))
  const answered = toRegistryError(error)
  if (isServerError(answered) && !isGone) {
    const { method } = exchange.request
    host.services.log.error('a request to the registry failed', {
      requestId,
      method,
      path: exchange.path,
      code: answered.code,
      error: errorText(answered.cause ?? answered),
    })
  }
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  const body = errorBody(answered)
  const headers = Object.entries(answered.headers).flat()
  exchange.send(answered.status, ['Content-Type', 'application/json', 'Content-Length', Buffer.byteLength(body), ...headers], body)
}
