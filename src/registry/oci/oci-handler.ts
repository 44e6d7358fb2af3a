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
import { reportFailure } from './reports.ts'
import { readBody } from './blobs/request-body.ts'
import { appendUpload, cancelUpload, finishUpload, startUpload, uploadStatus } from './blobs/upload-routes.ts'

/** Answers `GET /v2/<repository>/_service/history/<tag>` (docs/spec/registry.md#history-endpoint); what it throws is answered like every error. */
export type HistoryRoute = (exchange: RegistryExchange, path: { readonly repository: string; readonly tag: string }) => Promise<void>

/** Called for every answer: kind of path (`none` if unknown), method, status, seconds. */
export type Observe = (route: OciPathKind | 'none', method: string, answer: { readonly status: number; readonly seconds: number }) => void

/** What the handler is made of. */
export interface OciHandlerOptions extends Omit<OciHost, 'cache' | 'blobs' | 'idleMs'> {
  readonly history: HistoryRoute
  /** 60,000 where absent. */
  readonly idleMs?: number
  /** How many bytes of manifests stay in memory; 64 MiB where absent. */
  readonly manifestCacheBytes?: number
  /** How many bytes of blobs stay in memory at most; none where absent. */
  readonly blobCacheBytes?: number
  readonly observe?: Observe
  /** A fresh request id for requests that bring none. */
  readonly newRequestId?: () => string
  /** Whose request it is; the connection's other end where absent. */
  readonly clientAddress?: ClientAddress
}

type RegistryVerb = 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE'

/** How the paths of one kind are answered, by method. HEAD is a GET whose body is not sent. */
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

/**
 * The distribution API (OCI distribution specification 1.1) below `/v2/`. Never throws: all that goes wrong is answered. Bodies stream; the server that calls
 * it must not limit how long a whole request may take.
 */
export function createOciHandler(options: OciHandlerOptions): (request: IncomingMessage, response: ServerResponse) => void {
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
  const host: OciHost = { ...options, cache, blobs, idleMs: options.idleMs ?? defaultIdleMs }
  const routes = routesOf(options.history)
  return (request, response) => {
    const startedMs = performance.now()
    const exchange = new RegistryExchange(request, response, { newRequestId, idleMs: host.idleMs, clientAddress: options.clientAddress })
    answer(host, routes, exchange)
      .then((route) => observe?.(route, request.method ?? '', { status: response.statusCode, seconds: (performance.now() - startedMs) / 1000 }))
      .catch((error: unknown) => {
        // What nothing catches would end the process, and with it all other requests.
        services.log.error('a request to the registry failed to get an answer', { requestId: exchange.requestId, error: errorText(error) })
        if (!response.writableEnded) response.destroy()
      })
  }
}

/** Resolves with the kind of path, once it is answered. */
async function answer(host: OciHost, routes: Routes, exchange: RegistryExchange): Promise<OciPathKind | 'none'> {
  let kind: OciPathKind | 'none' = 'none'
  try {
    const path = parseOciPath(exchange.path)
    kind = path.kind
    // What is cut off deletes nothing.
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

/** The most that a body of a request which takes none may have, in bytes. */
const maxUnwantedBytes = 64 * 1024

type AnyRoute = (host: OciHost, exchange: RegistryExchange, path: OciPath) => Promise<void>

function routeOf(routes: Routes, exchange: RegistryExchange, path: OciPath): AnyRoute {
  const row = routes[path.kind] as Partial<Record<string, AnyRoute>> // a cast: a row takes paths of its own kind, which this one is
  const method = exchange.request.method === 'HEAD' ? 'GET' : (exchange.request.method ?? '')
  const route = Object.hasOwn(row, method) ? row[method] : undefined
  if (route !== undefined) return route
  const allowed = Object.keys(row).flatMap((verb) => (verb === 'GET' ? ['GET', 'HEAD'] : [verb]))
  throw new RegistryError('UNSUPPORTED', `${allowed.join(', ')} only`, { headers: { Allow: allowed.join(', ') } })
}

/** True for `reason` and for what was thrown because of it, such as an outcome that stayed unknown because the client went away. */
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
