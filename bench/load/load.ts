/** One request, or the pattern of many: `$N` in path or body becomes a text of 12 hex digits that no other request has. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'PATCH'
  readonly path: string
  readonly body?: string
  /** Latencies are counted per class. */
  readonly class?: string
  /** How often this one is sent in relation to the others; 1 by default. */
  readonly weight?: number
}

/** Requests over HTTP/1.1 connections that are kept, one outstanding on each. */
export interface HttpLoad {
  readonly kind: 'http'
  readonly port: number
  /** Of other servers that share the connections in turn. */
  readonly otherPorts?: readonly number[]
  readonly tls: boolean
  readonly connections: number
  readonly headers: Readonly<Record<string, string>>
  /** Sent in turn, or at random where weights are given. */
  readonly requests: readonly HttpRequest[]
}

/** Unary calls over HTTP/2 in cleartext: `streams` outstanding calls on each of `connections`. */
export interface GrpcLoad {
  readonly kind: 'grpc'
  readonly port: number
  readonly connections: number
  readonly streams: number
  /** `/package.Service/Method` */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** The request messages, sent in turn, as base64. */
  readonly messages: readonly string[]
}

/** A put of the transaction that a bare client makes. */
export interface PutShape {
  readonly key: string
  readonly valueBytes: number
  /** The last 16 characters are others each time. */
  readonly fresh: boolean
  /** A guard says that the key is absent. */
  readonly guarded: boolean
}

/** The transaction that a bare client makes. */
export interface TransactionShape {
  readonly puts: readonly PutShape[]
  /** A key that a guard says is there. */
  readonly existing: string
}

/** Bare transactions through the package etcd3. */
export interface EtcdLoad {
  readonly kind: 'etcd'
  readonly endpoint: string
  /** Transactions outstanding at once. */
  readonly connections: number
  readonly shape: TransactionShape
}

/** Bare transactions on `node:sqlite`, one after the other. */
export interface SqliteLoad {
  readonly kind: 'sqlite'
  readonly path: string
  readonly shape: TransactionShape
}

/** Blobs pushed to a registry, POST and PUT, over connections that are kept, one outstanding on each. */
export interface PushLoad {
  readonly kind: 'push'
  readonly port: number
  readonly connections: number
  readonly headers: Readonly<Record<string, string>>
  /** Its name in paths. */
  readonly repository: string
  readonly blobBytes: number
}

/** A JWT signed by ES256, again and again, each with its own `jti`. */
export interface SignLoad {
  readonly kind: 'sign'
  /** Encoded. */
  readonly header: string
  readonly claims: Readonly<Record<string, unknown>>
}

/** One POST again and again, by undici. */
export interface PostLoad {
  readonly kind: 'post'
  readonly url: string
  /** PEM of the server's authority. */
  readonly ca: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Requests under way at once. */
  readonly connections: number
}

export type Load = HttpLoad | GrpcLoad | EtcdLoad | SqliteLoad | PushLoad | SignLoad | PostLoad

/** What came of one round. */
export interface RoundCounts {
  readonly requests: number
  readonly errors: number
  /** The first answer that was an error. */
  readonly firstError: string | undefined
  readonly seconds: number
  /** Histogram counts by class. */
  readonly latencies: Readonly<Record<string, number[]>>
  /** Processor time of the generator itself, in microseconds. */
  readonly cpuMicros: number
  /** Bytes of the answers' bodies. */
  readonly bodyBytes: number
}

/** Makes load in rounds. */
export interface Generator {
  /** Connects again where a server has closed an idle connection. */
  prepare?(): Promise<void>
  /** Sends for so long, then waits for what is outstanding. */
  round(milliseconds: number, tally: Tally): Promise<void>
  close(): void
}

/** What a generator reports to. */
export interface Tally {
  answered(requestClass: string, milliseconds: number, bodyBytes: number): void
  failed(what: string): void
}
