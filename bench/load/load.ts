/** One request, or a template for many: `$N` in path or body is replaced by 12 hex digits that are different in each request. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT'
  readonly path: string
  readonly body?: string
  /** Name of a class. Latencies are counted for each class. */
  readonly class?: string
  /** Frequency relative to the other requests; 1 by default. */
  readonly weight?: number
}

/** Requests over persistent HTTP/1.1 connections, with one outstanding request on each. */
export interface HttpLoad {
  readonly kind: 'http'
  readonly port: number
  /** Ports of further servers, among which the connections are distributed. */
  readonly otherPorts?: readonly number[]
  readonly tls: boolean
  readonly connections: number
  readonly headers: Readonly<Record<string, string>>
  /** The requests, sent in turn, or at random if they have weights. */
  readonly requests: readonly HttpRequest[]
}

/** Unary calls over unencrypted HTTP/2, with `streams` outstanding calls on each of `connections`. */
export interface GrpcLoad {
  readonly kind: 'grpc'
  readonly port: number
  readonly connections: number
  readonly streams: number
  /** Path of the method: `/package.Service/Method`. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** The request messages, sent in turn, as base64. */
  readonly messages: readonly string[]
}

/** A put in the transaction of a bare client. */
export interface PutShape {
  readonly key: string
  readonly valueBytes: number
  /** True if the last 16 characters of the key are different each time. */
  readonly fresh: boolean
  /** True if the transaction has a guard that the key is absent. */
  readonly guarded: boolean
}

/** The transaction that a bare client runs. */
export interface TransactionShape {
  readonly puts: readonly PutShape[]
  /** A key for which the transaction has a guard that it exists. */
  readonly existing: string
}

/** Bare etcd transactions through the package etcd3. */
export interface EtcdLoad {
  readonly kind: 'etcd'
  readonly endpoint: string
  /** Number of concurrent transactions. */
  readonly connections: number
  readonly shape: TransactionShape
}

/** Bare transactions of `node:sqlite`, one after the other. */
export interface SqliteLoad {
  readonly kind: 'sqlite'
  readonly path: string
  readonly shape: TransactionShape
}

/** Blobs that are pushed to a registry by POST and PUT, over persistent connections, with one outstanding request on each. */
export interface PushLoad {
  readonly kind: 'push'
  readonly port: number
  readonly connections: number
  readonly headers: Readonly<Record<string, string>>
  /** Name of the repository in paths. */
  readonly repository: string
  readonly blobBytes: number
}

/** JWTs that are signed by ES256, one after the other, each with its own `jti`. */
export interface SignLoad {
  readonly kind: 'sign'
  /** The header, base64url-encoded. */
  readonly header: string
  readonly claims: Readonly<Record<string, unknown>>
}

/** The same POST request, sent repeatedly by undici. */
export interface PostLoad {
  readonly kind: 'post'
  readonly url: string
  /** CA certificate of the server, PEM. */
  readonly ca: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Number of concurrent requests. */
  readonly connections: number
}

export type Load = HttpLoad | GrpcLoad | EtcdLoad | SqliteLoad | PushLoad | SignLoad | PostLoad

/** Results of one round. */
export interface RoundCounts {
  readonly requests: number
  readonly errors: number
  /** The first error response; undefined if there was none. */
  readonly firstError: string | undefined
  readonly seconds: number
  /** Histogram counts by class of request. */
  readonly latencies: Readonly<Record<string, number[]>>
  /** Processor time of the generator, in microseconds. */
  readonly cpuMicros: number
  /** Number of bytes in the bodies of all responses. */
  readonly bodyBytes: number
}

/** Generates load in rounds. */
export interface Generator {
  /** Opens connections again that a server closed while they were idle. */
  prepare?(): Promise<void>
  /** Sends requests for this time, then waits for the outstanding responses. */
  round(milliseconds: number, tally: Tally): Promise<void>
  close(): void
}

/** Receives the results of requests. */
export interface Tally {
  answered(requestClass: string, milliseconds: number, bodyBytes: number): void
  failed(what: string): void
}
