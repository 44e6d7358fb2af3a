import { Client, Metadata, credentials } from '@grpc/grpc-js'
import type { CallOptions, ServiceError } from '@grpc/grpc-js'
import { fromBinary } from '@bufbuild/protobuf'
import type { Message } from '@bufbuild/protobuf'
import { defaultNamespaces } from '../../../src/transport/aliases.ts'
import type { Call, DecodedCall, Dispatch } from '../../../src/transport/calls/call.ts'
import { createGrpcApi } from '../../../src/transport/grpc/grpc-api.ts'
import type { GrpcLimits } from '../../../src/transport/grpc/grpc-api.ts'
import { createHttpApi } from '../../../src/transport/http/http-api.ts'
import { createHttp2Requests } from '../../../src/transport/http/http2-requests.ts'
import { createHttpListener, type HttpListenerOptions } from '../../../src/transport/http/http-listener.ts'
import { MetricsRegistry } from '../../../src/transport/hot-metrics.ts'
import { createWebRoutes, type WebRoute } from '../../../src/transport/web/web-routes.ts'
import { createJsonEncoders } from '../../../src/transport/json-encode.ts'
import { createCallMetrics } from '../../../src/transport/metrics.ts'
import { createOnePort } from '../../../src/transport/one-port.ts'
import type { OnePortOptions } from '../../../src/transport/one-port.ts'
import type { LogFields } from '../../../src/base/log.ts'
import { fileDescriptors, methods } from '../../../src/base/schema/schema.ts'
import { StatusSchema } from '../../../src/gen/google/rpc/status_pb.ts'
import type { Status } from '../../../src/gen/google/rpc/status_pb.ts'

/** A decoded call that reached the dispatch. */
export interface Seen {
  readonly call: Call
  readonly decoded: DecodedCall
}

/** The result of a unary call. */
export interface GrpcResult {
  readonly code: number
  readonly details: string
  readonly message: Buffer | undefined
  readonly headers: Metadata
  readonly trailers: Metadata
  readonly status: Status | undefined
}

export interface Served {
  readonly url: string
  readonly port: number
  /** Every call that was decoded, in order. */
  readonly seen: Seen[]
  /** Errors that were logged. */
  readonly logged: LogFields[]
  readonly registry: MetricsRegistry
  readonly setReady: (ready: boolean) => void
  readonly client: Client
  unary(path: string, bytes: Uint8Array, options?: { readonly metadata?: Readonly<Record<string, string>>; readonly call?: CallOptions }): Promise<GrpcResult>
  close(graceMs?: number): Promise<void>
}

export interface ServeOptions extends Pick<OnePortOptions, 'sniffTimeoutMs' | 'tls' | 'maxConnections' | 'admit'> {
  readonly routes?: readonly WebRoute[]
  readonly limits?: Partial<GrpcLimits>
  readonly apiClient?: HttpListenerOptions
  readonly origins?: readonly string[]
}

/** Serves all methods on a free port; each method answers by `answer` after the request was decoded. */
export async function serve(answer: (seen: Seen) => ReturnType<Dispatch> | Message, options: ServeOptions = {}): Promise<Served> {
  const seen: Seen[] = []
  const logged: LogFields[] = []
  const registry = new MetricsRegistry()
  const dispatch: Dispatch = async (call) => {
    const decoded = await call.decode()
    const item = { call, decoded }
    seen.push(item)
    const result = await answer(item)
    return '$typeName' in result ? { message: result } : result
  }
  const quiet = (): void => {}
  let ids = 0
  const shared = {
    methods,
    dispatch,
    log: { debug: quiet, info: quiet, warn: quiet, error: (_: string, fields?: LogFields) => void logged.push(fields ?? {}) },
    newRequestId: () => `generated-${++ids}`,
    metrics: createCallMetrics(registry),
  }
  const rest = createHttpApi({
    ...shared,
    encoders: createJsonEncoders(),
    preview: true,
    routes: createWebRoutes(options.routes ?? []),
    origins: options.origins ?? [],
  })
  const http = createHttpListener(rest, options.apiClient)
  const otherRequests = createHttp2Requests(rest, options.apiClient)
  const grpc = createGrpcApi({ ...shared, fileDescriptors, namespaces: defaultNamespaces, limits: options.limits ?? {}, otherRequests })
  const { routes: _, limits: _limits, apiClient: _endpoint, origins: _origins, ...portOptions } = options
  const onePort = createOnePort({ ...portOptions, http, grpc })
  const { port } = await onePort.listen('127.0.0.1', 0)
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure())
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    seen,
    logged,
    registry,
    client,
    setReady: grpc.setReady,
    unary: (path, bytes, call = {}) => unary(client, path, { bytes, ...call }),
    async close(graceMs = 500) {
      client.close()
      await onePort.close(graceMs)
      http.stop()
      grpc.stop()
    },
  }
}

interface UnaryInput {
  readonly bytes: Uint8Array
  readonly metadata?: Readonly<Record<string, string>>
  readonly call?: CallOptions
}

function unary(client: Client, path: string, input: UnaryInput): Promise<GrpcResult> {
  const metadata = new Metadata()
  for (const [key, value] of Object.entries(input.metadata ?? {})) metadata.set(key, value)
  return new Promise((resolve) => {
    let headers = new Metadata()
    let failure: ServiceError | undefined
    let message: Buffer | undefined
    const identity = (bytes: Buffer): Buffer => bytes
    const call = client.makeUnaryRequest(path, identity, identity, Buffer.from(input.bytes), metadata, input.call ?? {}, (error, value) => {
      failure = error ?? undefined
      message = value
    })
    call.on('metadata', (received: Metadata) => {
      headers = received
    })
    call.on('status', (status) => {
      const bytes = status.metadata.get('grpc-status-details-bin')[0]
      // The callback runs right after the status event.
      setImmediate(() =>
        resolve({
          code: failure?.code ?? status.code,
          details: failure?.details ?? status.details,
          message,
          headers,
          trailers: status.metadata,
          status: bytes === undefined || typeof bytes === 'string' ? undefined : fromBinary(StatusSchema, bytes),
        }),
      )
    })
  })
}
