/** The roles of the command that take a configuration; their defaults differ. */
export type Role = 'api' | 'registry' | 'controller' | 'dev'

/** An operator: holds everything everywhere (docs/spec/iam.md#operators). */
export interface OperatorConfig {
  readonly issuer: string
  readonly subject: string
}

/** An issuer that the installation trusts to be contacted. */
export interface IssuerConfig {
  readonly issuer: string
  readonly jwksUri?: string
  readonly caFile?: string
  readonly tokenFile?: string
  readonly allowPrivate?: boolean
}

/** A document that organisations may accept. */
export interface TermsConfig {
  readonly id: string
  readonly label: string
  readonly url: string
}

/** How accounts at cloud providers are checked: one without its first key is not. */
export interface AccountChecksConfig {
  readonly amazon: { readonly role?: string; readonly endpoint: string; readonly partition: string; readonly audience: string }
  readonly google: { readonly provider?: string; readonly endpoint: string }
  readonly azure: { readonly client?: string; readonly endpoint: string; readonly scope: string }
}

/** A limit of an organisation. */
export interface LimitConfig {
  readonly limit: string
  readonly max: number
}

/** A token bucket. */
export interface RateLimitConfig {
  readonly requestsPerSecond: number
  readonly burst: number
}

/** Also for how long requests may hold the process. */
export interface WorkLimitConfig extends RateLimitConfig {
  readonly workMillisecondsPerSecond: number
  readonly workBurstMilliseconds: number
}

/** What the reads of a principal, or address, at the registry host may take. */
export interface ReadLimitConfig {
  readonly concurrent: number
  readonly megabytesPerSecond: number
  readonly burstMegabytes: number
}

/** Where signed AWS requests are verified; no host: nowhere. */
export interface AwsConfig {
  readonly hosts: readonly string[]
  readonly endpoint?: string
  readonly audiences: readonly string[]
}

/** The files of a TLS server. */
export interface ServerTlsConfig {
  readonly certFile: string
  readonly keyFile: string
}

/** How the etcd client speaks TLS; `certFile` and `keyFile` come together. */
export interface ClientTlsConfig {
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
}

/** The etcd cluster; `endpoints` is empty unless `store.kind` is `etcd`. */
export interface EtcdConfig {
  readonly endpoints: readonly string[]
  readonly prefix: string
  readonly tls?: ClientTlsConfig
  readonly username?: string
  readonly passwordFile?: string
}

/** What keeps the bytes behind the registry host: an OCI registry at `url`, or the embedded store of a folder; one of both is there. */
export interface UpstreamConfig {
  readonly url?: string
  readonly directory?: string
  readonly prefix?: string
  readonly username?: string
  readonly passwordFile?: string
  readonly caFile?: string
  readonly redirects?: 'follow' | 'pass'
}

/** The registry host; `upstream` is always there in roles `registry` and `dev`. */
export interface RegistryConfig {
  readonly port: number
  readonly host: string
  readonly scheme: 'http' | 'https'
  readonly tls?: ServerTlsConfig
  readonly publicOrganization?: string
  /** Whether `_catalog` is served. */
  readonly catalog: boolean
  readonly upstream?: UpstreamConfig
  readonly blobCacheMegabytes: number
  /** What of tag histories is kept; all of it where absent. */
  readonly history?: { readonly maxAgeDays?: number; readonly maxMoves?: number }
  readonly collect: { readonly graceHours: number }
}

/** What the controller works with at the Kubernetes API server. */
export interface KubernetesConfig {
  /** The file that says where the API server is; in a pod none is needed. */
  readonly kubeconfig?: string
  /** The uid of the namespace `kube-system` where absent. */
  readonly clusterId?: string
  /** Always there in role `controller`. */
  readonly issuer?: string
  readonly tokenFile: string
  /** Absent namespaces are the pod's own. */
  readonly lease: { readonly namespace?: string; readonly name: string }
  readonly mirror: { readonly enabled: boolean; readonly namespace?: string; readonly rootGroups: readonly string[]; readonly limit: number }
  readonly pullSecrets: { readonly enabled: boolean }
}

/** A destination of audit events. Which keys apply depends on the kind. */
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

/** The effective configuration: defaults filled in, validated. Each key is described in `schema.ts`; paths are as given, not resolved. */
export interface Config {
  /** Ends without a slash. */
  readonly baseUrl: string
  readonly dataDir: string
  readonly listen: string
  readonly api: { readonly port: number; readonly tls?: ServerTlsConfig }
  readonly ops: { readonly port: number }
  readonly registry: RegistryConfig
  readonly store: { readonly kind: 'sqlite' | 'etcd'; readonly sqlite: { readonly path: string }; readonly etcd: EtcdConfig }
  readonly kubernetes: KubernetesConfig
  readonly reads: 'linearizable' | 'bounded'
  readonly bootstrap: { readonly operators: readonly OperatorConfig[] }
  /** `keyFile` is always there in roles `api`, `registry` and `controller` on etcd. */
  readonly encryption: { readonly keyFile?: string }
  readonly login: { readonly redirects: readonly string[] }
  readonly selfService: { readonly rootGroups: boolean; readonly organizationsPerPerson: number }
  readonly organizations: { readonly nameHoldDays: number }
  /** What new organisations get; a limit is named once. */
  readonly limits: { readonly selfService: readonly LimitConfig[]; readonly organizations: readonly LimitConfig[] }
  /** Per principal, and per address for requests without a known caller. */
  readonly rateLimit: WorkLimitConfig & {
    readonly enabled: boolean
    readonly address: WorkLimitConfig
    readonly scim: RateLimitConfig
    readonly reads: ReadLimitConfig
  }
  /** How many connections each port takes. */
  readonly connections: { readonly max: number; readonly perAddress: number; readonly registryPerAddress: number }
  /** Networks of proxies whose `X-Forwarded-For` is believed. */
  readonly trustedProxies: readonly string[]
  /** How events reach sinks. */
  readonly events: { readonly deliver: boolean; readonly networks: readonly string[]; readonly caFile?: string; readonly trafficWindowSeconds: number }
  readonly tokens: { readonly audiences: readonly string[]; readonly refresh: { readonly idleHours: number; readonly maxHours: number } }
  readonly issuers: readonly IssuerConfig[]
  readonly compat: { readonly namespaces: readonly string[] }
  readonly terms: readonly TermsConfig[]
  /** Which accounts of cloud providers are checked, and where. */
  readonly accountChecks: AccountChecksConfig
  readonly aws: AwsConfig
  /** How a process stops. */
  readonly stop: { readonly drainSeconds: number; readonly graceSeconds: number }
  /** Where audit events go, and how many anonymous denials get one. */
  readonly audit: { readonly sinks: readonly AuditSinkConfig[]; readonly anonymousPerMinute: number }
  readonly log: { readonly level: 'debug' | 'info' | 'warn' | 'error' }
}
