import type { FeedSettings } from '../catalogue/index.ts'

/** The roles in which `taproot` runs as a server. Each has its own defaults. */
export type Role = 'api' | 'registry' | 'controller' | 'worker' | 'dev'

/** An operator, who holds all capabilities everywhere (docs/spec/iam.md#operators). */
export interface OperatorConfig {
  readonly issuer: string
  readonly subject: string
}

/** A token issuer that the platform may contact. */
export interface IssuerConfig {
  readonly issuer: string
  readonly jwksUri?: string
  readonly caFile?: string
  readonly tokenFile?: string
  readonly allowPrivate?: boolean
}

/** A document that organisations may accept, such as terms of service. */
export interface TermsConfig {
  readonly id: string
  readonly label: string
  readonly url: string
}

/** The parameters for checking cloud accounts, by provider. A provider whose first key is absent is not checked. */
export interface AccountChecksConfig {
  readonly amazon: { readonly role?: string; readonly endpoint: string; readonly partition: string; readonly audience: string }
  readonly google: { readonly provider?: string; readonly endpoint: string }
  readonly azure: { readonly client?: string; readonly endpoint: string; readonly scope: string }
}

/** A limit of an organisation: its name and its maximum. */
export interface LimitConfig {
  readonly limit: string
  readonly max: number
}

/** The parameters of a token bucket. */
export interface RateLimitConfig {
  readonly requestsPerSecond: number
  readonly burst: number
}

/** Limits of the number of requests, and of the time for which they keep the process busy. */
export interface WorkLimitConfig extends RateLimitConfig {
  readonly workMillisecondsPerSecond: number
  readonly workBurstMilliseconds: number
}

/** Limits for the reads of one principal, or of one address, at the registry host. */
export interface ReadLimitConfig {
  readonly concurrent: number
  readonly megabytesPerSecond: number
  readonly burstMegabytes: number
}

/** Settings of AWS identities, whose signed requests are sent to AWS. Without hosts, AWS identities are refused. */
export interface AwsConfig {
  readonly hosts: readonly string[]
  readonly endpoint?: string
  readonly audiences: readonly string[]
}

/** Files for TLS on a server port. */
export interface ServerTlsConfig {
  readonly certFile: string
  readonly keyFile: string
}

/** Files for TLS of the etcd client. `certFile` and `keyFile` are both set, or neither. */
export interface ClientTlsConfig {
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
}

/** The etcd cluster. `endpoints` is empty unless `store.kind` is `etcd`. */
export interface EtcdConfig {
  readonly endpoints: readonly string[]
  readonly prefix: string
  readonly tls?: ClientTlsConfig
  readonly username?: string
  readonly passwordFile?: string
}

/** The storage of the registry host's content. Either it is the OCI registry at `url`, or the embedded store in the folder `directory`. */
export interface UpstreamConfig {
  readonly url?: string
  readonly directory?: string
  readonly prefix?: string
  readonly username?: string
  readonly passwordFile?: string
  readonly caFile?: string
  readonly redirects?: 'follow' | 'pass'
}

/** The registry host. `upstream` is always set in roles `registry` and `dev`. */
export interface RegistryConfig {
  readonly port: number
  readonly host: string
  readonly scheme: 'http' | 'https'
  readonly tls?: ServerTlsConfig
  readonly publicOrganization?: string
  /** True if the registry host serves `_catalog`, the list of repositories. */
  readonly catalog: boolean
  /** True if the worker reads what pushed images contain. */
  readonly readContents: boolean
  /** Whether `deprecated` of tags follows their life cycles. */
  readonly lifecycle: { readonly deprecate: boolean }
  /** What signatures are checked against. */
  readonly signatures?: { readonly trustedRootFile?: string }
  readonly upstream?: UpstreamConfig
  readonly blobCacheMegabytes: number
  /** The retention of tag histories. If absent, all moves of tags are kept. */
  readonly history?: { readonly maxAgeDays?: number; readonly maxMoves?: number }
  readonly collect: { readonly graceHours: number }
}

/** The settings for the controller's work at the Kubernetes API server. */
export interface KubernetesConfig {
  /** Path of the kubeconfig file. It is not needed in a pod. */
  readonly kubeconfig?: string
  /** Name of this Kubernetes cluster in the owners of records. By default, the uid of the namespace `kube-system`. */
  readonly clusterId?: string
  /** Issuer of the cluster's service account tokens. It is always set in role `controller`. */
  readonly issuer?: string
  readonly tokenFile: string
  /** Without a namespace, the lease is in the namespace of the pod. The same applies to the mirror. */
  readonly lease: { readonly namespace?: string; readonly name: string }
  readonly mirror: { readonly enabled: boolean; readonly namespace?: string; readonly rootGroups: readonly string[]; readonly limit: number }
  readonly pullSecrets: { readonly enabled: boolean }
}

/** A scanner with the scanner API of Harbor. `tokenFile` is set if `authorization` is. */
export interface ScannerConfig {
  readonly name: string
  readonly url: string
  readonly identity: string
  readonly registryUrl?: string
  readonly authorization?: 'bearer' | 'basic' | 'apiKey'
  readonly tokenFile?: string
  readonly caFile?: string
  readonly timeoutSeconds?: number
  readonly scanMinutes?: number
  readonly concurrent?: number
}

/** A destination of audit events. The kind determines which keys may be set. */
export interface AuditSinkConfig {
  readonly kind: 'log' | 'file' | 'syslog' | 'https' | 'otlp'
  readonly name?: string
  readonly path?: string
  readonly maxMegabytes?: number
  readonly maxFiles?: number
  readonly url?: string
  readonly tokenFile?: string
  readonly address?: string
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
  readonly spoolMegabytes?: number
}

/** The destinations of audit events, how many denials of anonymous callers get an event each, and how long events are kept. */
export interface AuditConfig {
  readonly sinks: readonly AuditSinkConfig[]
  readonly anonymousPerMinute: number
  readonly deniedPerMinute: number
  readonly keepDays: number
  readonly keepMegabytes: number
}

/** The effective configuration: validated, with all defaults. `schema.ts` describes each key. Paths are as given, not resolved. */
export interface Config {
  /** URL of the API for clients, without a slash at its end. */
  readonly baseUrl: string
  readonly dataDir: string
  readonly listen: string
  readonly api: { readonly port: number; readonly tls?: ServerTlsConfig; readonly cors: { readonly origins: readonly string[] } }
  readonly ops: { readonly port: number }
  readonly registry: RegistryConfig
  readonly store: { readonly kind: 'sqlite' | 'etcd'; readonly sqlite: { readonly path: string }; readonly etcd: EtcdConfig }
  readonly kubernetes: KubernetesConfig
  readonly reads: 'linearizable' | 'bounded'
  readonly bootstrap: { readonly operators: readonly OperatorConfig[] }
  /** `keyFile` is always set in all roles but `dev` with etcd. */
  readonly encryption: { readonly keyFile?: string }
  readonly login: { readonly redirects: readonly string[] }
  readonly selfService: { readonly rootGroups: boolean; readonly organizationsPerPerson: number }
  readonly organizations: { readonly nameHoldDays: number }
  /** The limits of new organisations. Each list names a limit at most once. */
  readonly limits: { readonly selfService: readonly LimitConfig[]; readonly organizations: readonly LimitConfig[] }
  /** Limits per principal, and per address for requests without a known caller. */
  readonly rateLimit: WorkLimitConfig & {
    readonly enabled: boolean
    readonly address: WorkLimitConfig
    readonly scim: RateLimitConfig
    readonly reads: ReadLimitConfig
  }
  /** The maximum numbers of connections to each port. */
  readonly connections: { readonly max: number; readonly perAddress: number; readonly registryPerAddress: number }
  /** Networks of proxies whose header `X-Forwarded-For` is trusted. */
  readonly trustedProxies: readonly string[]
  /** Settings of the delivery of events to sinks. */
  readonly events: { readonly deliver: boolean; readonly networks: readonly string[]; readonly caFile?: string; readonly trafficWindowSeconds: number }
  readonly tokens: { readonly audiences: readonly string[]; readonly refresh: { readonly idleHours: number; readonly maxHours: number } }
  readonly issuers: readonly IssuerConfig[]
  readonly compat: { readonly namespaces: readonly string[] }
  readonly terms: readonly TermsConfig[]
  /** The parameters for checking cloud accounts. */
  readonly accountChecks: AccountChecksConfig
  readonly aws: AwsConfig
  /** Settings of the shutdown of a process. */
  readonly stop: { readonly drainSeconds: number; readonly graceSeconds: number }
  readonly audit: AuditConfig
  readonly catalogues: { readonly feeds: readonly FeedSettings[] }
  /** Only with `registry.readContents`. */
  readonly scanners: readonly ScannerConfig[]
  readonly log: { readonly level: 'debug' | 'info' | 'warn' | 'error'; readonly format: 'json' | 'text' }
}
