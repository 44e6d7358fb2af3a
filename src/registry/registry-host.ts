import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Keyring } from '../auth/keys/sealing.ts'
import type { Authenticator } from '../auth/access-tokens/authenticator.ts'
import type { Operator } from '../auth/access-tokens/principal.ts'
import type { SignatureChecks } from '../auth/access-tokens/signature-checks.ts'
import type { ClientAddress } from '../base/client-address.ts'
import { errorText } from '../base/error-text.ts'
import type { AuditTrail } from '../base/audit-line.ts'
import type { Log } from '../base/log.ts'
import { parentOf } from '../base/uid.ts'
import { trafficWrite } from '../engine/outbox.ts'
import type { Services } from '../engine/services.ts'
import { RegistryTrafficSchema } from '../gen/taproot/store/v1/registry_pb.ts'
import type { Gate } from './gate.ts'
import { createHistoryRoute } from './tags/history-route.ts'
import { endWhenIdle, beginDrain } from './oci/blobs/idle-limit.ts'
import { RegistryExchange } from './oci/exchange.ts'
import { errorBody } from './oci/oci-errors.ts'
import { createOciHandler, type Observe } from './oci/oci-handler.ts'
import type { BlobSource, OciHost } from './oci/oci-host.ts'
import { TrafficEvents, type ReportedRequest, type TrafficEventsOptions, type TrafficOutcome } from './oci/traffic-events.ts'
import { requestTarget } from './oci/request-target.ts'
import { displayNameOf, trafficBody } from './records/traffic.ts'
import { RegistryError } from './registry-error.ts'
import { createChallenger } from './tokens/challenge.ts'
import { createRegistryAuthenticator } from './tokens/registry-authenticator.ts'
import { createRegistryGate } from './tokens/registry-gate.ts'
import type { RegistryKeys } from './tokens/registry-keys.ts'
import { createRegistryTokens } from './tokens/registry-tokens.ts'
import type { RegistryLimits } from './tokens/request-counts.ts'
import { createTokenEndpoint } from './tokens/token-endpoint.ts'
import type { Upstream } from './upstream/upstream.ts'
import { createUnreadableAnswer, lacksOneHost, type UnreadableKind } from '../transport/http/unreadable-request.ts'

/** Returns a function that writes the events of requests to the outbox, in one transaction. */
export function trafficWriter(services: Services, host: string): TrafficEventsOptions['write'] {
  return async (requests, signal) => {
    const writes = requests.map((request) =>
      trafficWrite(services.random, {
        kind: request.kind,
        host,
        subject: request.repo,
        group: parentOf(request.repo),
        body: { desc: RegistryTrafficSchema, message: bodyOf(services, request, host) },
        caller: request.caller,
        nowMs: request.timeMs,
      }),
    )
    await services.store.transact({ guards: [], writes }, signal)
  }
}

function bodyOf({ cache }: Services, request: ReportedRequest, host: string): ReturnType<typeof trafficBody> {
  const { kind, repo, caller, timeMs, ...facts } = request
  const displayName = kind === 'push' && caller !== undefined ? displayNameOf(cache.tables, caller, repo) : undefined
  return trafficBody(repo, { ...facts, host, ...(displayName !== undefined && { displayName }) }, timeMs)
}

/** Dependencies and settings of the registry host. */
export interface RegistryHostOptions {
  readonly services: Services
  readonly upstream: Upstream
  /** Verifies access tokens and external tokens for this host. */
  readonly authenticator: Authenticator
  readonly checks: SignatureChecks
  readonly keys: RegistryKeys
  readonly keyring: Keyring
  /** `iss` of registry tokens. */
  readonly issuer: string
  /** The name by which clients reach the host; also the audience of accepted tokens. */
  readonly host: string
  readonly scheme: 'http' | 'https'
  readonly publicOrganization: string | undefined
  /** True if `_catalog` is enabled. */
  readonly catalog: boolean
  /** Maximum size of cached blobs, in bytes. */
  readonly blobCacheBytes: number
  /** Returns the trusted root of sigstore for signatures, as JSON. The buffer stays the same until the file changes. */
  readonly trustedRoot?: () => Buffer | undefined
  readonly operators: readonly Operator[]
  readonly reads: 'linearizable' | 'bounded'
  readonly limits: RegistryLimits | undefined
  /** Returns the client's address. */
  readonly clientAddress: ClientAddress
  readonly log: Log
  /** Receives audit lines. */
  readonly auditLog: AuditTrail
  readonly newRequestId: () => string
  /** Called for every response below `/v2/`. */
  readonly observe?: Observe
  /** Called with the source of each blob that is pulled. */
  readonly observeBlob?: (source: BlobSource) => void
  /** Called with what the pull policies above a repo decide about each pull of a manifest. */
  readonly observeVerdict?: OciHost['observeVerdict']
  /** Called for each token request, with the HTTP status of the response and the duration in seconds. */
  readonly observeToken?: (answer: { readonly status: number; readonly seconds: number }) => void
  /** Length of the time window in which equal requests get only one event, in milliseconds. If 0, each request gets one. */
  readonly trafficWindowMs: number
  /** Called with the number of traffic events that have this outcome. */
  readonly observeTraffic?: (outcome: TrafficOutcome, count: number) => void
}

/** The registry host: one request listener for its port. */
export interface RegistryHost {
  readonly listener: RequestListener
  /** Listener for `clientError`: sends an error response for bytes that are not a valid request. */
  readonly unreadable: (error: Error, socket: Duplex) => void
  readonly gate: Gate
  /** Writes all pending traffic events, and ends threads. */
  close(): Promise<void>
}

/** Creates the listener for `/token`, `/v2/` and `/healthz` (docs/spec/registry.md#registry-paths). */
export function createRegistryHost(options: RegistryHostOptions): RegistryHost {
  const { services, upstream, log, auditLog, newRequestId } = options
  const { clock, random } = services
  const { publicOrganization, clientAddress } = options
  const tokens = createRegistryTokens({ issuer: options.issuer, service: options.host, keys: options.keys, checks: options.checks, clock, random })
  const endpoint = createRegistryAuthenticator({ ...options, tokens })
  const challenger = createChallenger(options)
  const gate = createRegistryGate({ services, endpoint, challenger, publicOrganization, auditLog })
  const token = createTokenEndpoint({ services, endpoint, tokens, challenger, publicOrganization, log, auditLog, newRequestId, clientAddress })
  const traffic = new TrafficEvents({
    write: trafficWriter(services, options.host),
    log,
    windowMs: options.trafficWindowMs,
    observe: (outcome, count) => options.observeTraffic?.(outcome, count),
  })
  const oci = createOciHandler({
    services,
    registryHost: options.host,
    upstream,
    gate,
    auditLog,
    sealer: options.keyring,
    catalog: options.catalog,
    blobCacheBytes: options.blobCacheBytes,
    report: (request, details) => traffic.add(request, details),
    history: createHistoryRoute({ services, gate }),
    newRequestId,
    clientAddress,
    ...(options.trustedRoot && { trustedRoot: options.trustedRoot }),
    ...(options.observe && { observe: options.observe }),
    ...(options.observeBlob && { observeBlob: options.observeBlob }),
    ...(options.observeVerdict && { observeVerdict: options.observeVerdict }),
  })
  return {
    gate,
    listener(request, response) {
      const { path } = requestTarget(request)
      if (lacksOneHost(request)) refuse(new RegistryExchange(request, response, { newRequestId, clientAddress }), withoutHost)
      else if (path === '/token') timed(options, response, token(request, response)).catch((error: unknown) => notAnswered(options, response, error))
      else if (path === '/healthz') answerHealth(request, response)
      else oci.handle(request, response)
    },
    unreadable: createUnreadableAnswer((kind) => ({ requestId: newRequestId(), body: errorBody(unreadable[kind]) })),
    async close() {
      await traffic.close()
      await oci.close()
    },
  }
}

const withoutHost = new RegistryError('UNSUPPORTED', 'send exactly one Host header', { status: 400 })
const unreadable = {
  malformed: new RegistryError('UNSUPPORTED', 'the request is not valid HTTP/1.1'),
  tooLarge: new RegistryError('UNSUPPORTED', 'the headers are too large'),
  late: new RegistryError('UNSUPPORTED', 'the request did not arrive in time'),
} as const satisfies Record<UnreadableKind, RegistryError>

function refuse(exchange: RegistryExchange, error: RegistryError): void {
  const body = errorBody(error)
  exchange.send(error.status, ['Content-Type', 'application/json', 'Content-Length', Buffer.byteLength(body)], body)
  beginDrain(exchange.request)
}

async function timed({ observeToken }: RegistryHostOptions, response: ServerResponse, work: Promise<void>): Promise<void> {
  const startedMs = performance.now()
  await work
  observeToken?.({ status: response.statusCode, seconds: (performance.now() - startedMs) / 1000 })
}

/** Handles an unexpected error. If unhandled, it would end the process, and with it all other requests. */
function notAnswered({ log }: RegistryHostOptions, response: ServerResponse, error: unknown): void {
  log.error('a token request was not answered', { error: errorText(error) })
  if (!response.writableEnded) response.destroy()
}

/** Confirms that this is the registry host and that it runs. The ops port reports whether it is ready. */
function answerHealth(request: IncomingMessage, response: ServerResponse): void {
  request.resume()
  endWhenIdle(response)
  response.writeHead(200, { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store' }).end('ok\n')
}
