import { randomUUID } from 'node:crypto'
import { jsonAnswer } from '../transport/web/web-answers.ts'
import { createWebRoutes, type WebRoute } from '../transport/web/web-routes.ts'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import { jwksDocument, platformDiscovery } from '../auth/oidc/discovery-document.ts'
import type { KeySet } from '../auth/keys/key-set.ts'
import { createConnectionLimit } from '../transport/connection-limit.ts'
import { createEndpoints, loginRoutes, scimRoutes, type ScimOptions } from '../iam/index.ts'
import { createGrpcApi, type GrpcApi } from '../transport/grpc/grpc-api.ts'
import { createHttpApi } from '../transport/http/http-api.ts'
import { createHttp2Requests } from '../transport/http/http2-requests.ts'
import { createHttpListener } from '../transport/http/http-listener.ts'
import { createJsonEncoders } from '../transport/json-encode.ts'
import { createCallMetrics, registerEventReaders } from '../transport/metrics.ts'
import type { LoopMeter } from '../transport/loop-meter.ts'
import type { MetricsRegistry } from '../transport/hot-metrics.ts'
import { createOnePort, type OnePort } from '../transport/one-port.ts'
import { createAdmission, createPipeline } from '../transport/calls/pipeline.ts'
import { unservedRoutes, withVersion1 } from '../v1/index.ts'
import { RateLimiter, addressKey } from '../transport/rate-limit.ts'
import type { WebRequest } from '../transport/web/web-request.ts'
import { createClientAddress, createNetworks } from '../base/client-address.ts'
import type { AuditTrail } from '../base/audit-line.ts'
import type { Log } from '../base/log.ts'
import type { Clock } from '../base/runtime.ts'
import { fileDescriptors, methods } from '../base/schema/schema.ts'
import { exportRoutes } from '../catalogue/index.ts'
import { handlers } from '../domains/handlers.ts'
import type { Config, RateLimitConfig } from '../config/config.ts'
import { openServerTls } from '../config/files/open-files.ts'
import type { ReloadedFiles } from '../config/files/reloaded-files.ts'
import type { Engine } from './engine.ts'
import { descriptionRoutes } from './openapi/description-routes.ts'
import type { SignIn } from './sign-in.ts'

/** Returns the route of a public document. Clients may cache it for five minutes, since keys are published hours before they are used. */
function documentRoute(path: string, document: () => unknown): WebRoute {
  return { method: 'GET', path, handle: () => jsonAnswer(200, document(), { 'Cache-Control': 'public, max-age=300' }) }
}

/** Returns the routes of discovery and key documents: for the platform's issuer, and in role `dev` also for the development issuer. */
function documentRoutes(options: {
  baseUrl: string
  registryHost: string | undefined
  keys: readonly { keySet(): KeySet }[]
  devIssuer: DevIssuer | undefined
}): WebRoute[] {
  const { baseUrl, registryHost, keys, devIssuer } = options
  const routes = [
    documentRoute('/.well-known/openid-configuration', () => platformDiscovery(baseUrl, registryHost)),
    documentRoute('/.well-known/jwks.json', () => jwksDocument(...keys.map((some) => some.keySet()))),
  ]
  if (devIssuer === undefined) return routes
  return [
    ...routes,
    documentRoute('/dev/issuer/.well-known/openid-configuration', () => devIssuer.discovery),
    documentRoute('/dev/issuer/jwks.json', () => jwksDocument(devIssuer.keySet)),
  ]
}

/** Dependencies of the API port. */
export interface ApiPortOptions {
  readonly config: Config
  readonly log: Log
  readonly devIssuer: DevIssuer | undefined
  readonly engine: Engine
  readonly signIn: SignIn
  readonly auditLog: AuditTrail
  readonly registry: MetricsRegistry
  readonly files: ReloadedFiles
  readonly meter: LoopMeter
}

/** The port of the API: REST, gRPC, sign-in, SCIM and public documents. */
export interface ApiPort {
  readonly port: OnePort
  readonly grpc: GrpcApi
  readonly routes: readonly WebRoute[]
  /** Waits for running calls, then closes everything. */
  close(): Promise<void>
}

/** Creates the API's port without opening it. */
export function createApiPort(options: ApiPortOptions): ApiPort {
  const { config, log, auditLog, registry, devIssuer, engine, signIn } = options
  const { services, signingKeys, eventKeys } = engine
  const { exchange, tokenIssue, oidc } = signIn
  const limiter = (limit: RateLimitConfig): RateLimiter | undefined =>
    config.rateLimit.enabled ? new RateLimiter(limit, services.clock, options.meter) : undefined
  const limiters = { rateLimiter: limiter(config.rateLimit), addressLimiter: limiter(config.rateLimit.address) }
  registerEventReaders(registry, services.eventLog.waiting)
  const trusted = createNetworks(config.trustedProxies)
  const admit = (principal: string): void => limiters.rateLimiter?.take(principal)
  const endpoints = createEndpoints({ services, exchange, signIn: signIn.signIn, tokenIssue, admit, ownIssuer: config.baseUrl })
  const pipeline = { services, authenticator: signIn.authenticator, handlers, endpoints, reads: config.reads, ...limiters, auditLog }
  const dispatch = withVersion1({ dispatch: createPipeline(pipeline), services })
  const clientAddress = createClientAddress(trusted)
  const shared = {
    methods,
    dispatch,
    log,
    newRequestId: () => randomUUID(),
    metrics: createCallMetrics(registry),
    clientAddress,
    origins: config.api.cors.origins,
    tracing: services.tracing,
  }
  const { baseUrl } = config
  const registryHost = config.tokens.audiences.includes(config.registry.host) ? config.registry.host : undefined
  const limit = ({ remoteAddress }: WebRequest): void => limiters.addressLimiter?.take(addressKey(remoteAddress))
  const login = { services, signIn: signIn.signIn, exchange, tokenIssue, oidc, baseUrl, redirects: config.login.redirects, limit, auditLog }
  const scim = { services, auditLog, ...scimLimits(config, limiters, services.clock) }
  const encoders = createJsonEncoders()
  const exports = exportRoutes({ services, admit: createAdmission(pipeline), encoders, baseUrl })
  const documents = documentRoutes({ baseUrl, registryHost, keys: [signingKeys, eventKeys], devIssuer })
  const routes = [...documents, ...descriptionRoutes({ limit }), ...loginRoutes(login), ...scimRoutes(scim), ...exports]
  const preview = config.compat.namespaces.length > 0
  const rest = createHttpApi({ ...shared, encoders, routes: createWebRoutes(routes), preview, unserved: unservedRoutes })
  const http = createHttpListener(rest)
  const grpc = createGrpcApi({ ...shared, namespaces: config.compat.namespaces, fileDescriptors, otherRequests: createHttp2Requests(rest) })
  const tls = openServerTls(options.files, 'api', config.api.tls)
  const port = createOnePort({
    http,
    grpc,
    maxConnections: config.connections.max,
    admit: createConnectionLimit(config.connections, trusted),
    ...(tls === undefined ? {} : { tls: tls.current }),
  })
  tls?.onChange((contents) => port.setTls(contents))
  return {
    port,
    grpc,
    routes,
    async close() {
      await port.close(config.stop.graceSeconds * 1000)
      http.stop()
      grpc.stop()
    },
  }
}

/**
 * Returns the rate limits of SCIM requests: by provider, and for writes also by organisation and address. Rejected requests count toward
 * the limit of the other ports.
 */
function scimLimits(
  { rateLimit }: Config,
  { rateLimiter, addressLimiter }: { rateLimiter: RateLimiter | undefined; addressLimiter: RateLimiter | undefined },
  clock: Clock,
): Pick<ScimOptions, 'limits'> {
  if (!rateLimit.enabled) return {}
  const writes = new RateLimiter(rateLimit.scim, clock)
  return {
    limits: {
      requests: (key) => rateLimiter?.take(key),
      resume: (key) => rateLimiter?.resume(key),
      writes: (key) => writes.take(key),
      refused: (key) => addressLimiter?.take(key),
    },
  }
}
