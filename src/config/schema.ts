import { defaultNamespaces } from '../transport/aliases.ts'
import type { Config } from './config.ts'
import { count, days, flag, list, megabytes, port, seconds, section, text, type NodeFor } from './schema-node.ts'
import {
  accountChecks,
  auditSink,
  aws,
  etcd,
  feed,
  issuer,
  limit,
  operator,
  registryTls,
  scanner,
  selfServiceLimits,
  serverTls,
  terms,
  upstream,
} from './sections.ts'

/**
 * Every key of the configuration, with its type, default, meaning and limits. The validation, environment variables, the published JSON Schema and
 * docs/configuration.md are generated from it. Defaults that depend on the role or on other keys are in `defaults.ts`.
 */
export const configSchema = section('Configuration of Taproot.', {
  baseUrl: text('URL that clients use for the API, and name of the token issuer of Taproot. A change makes earlier tokens invalid.', {
    format: 'base-url',
  }),
  dataDir: text('Folder for data on disk: the embedded store and generated keys.', { default: '/var/lib/taproot' }),
  listen: text('Address that all ports listen on.', { format: 'listen-address', default: '0.0.0.0' }),
  api: section('The platform API.', {
    port: port('Port of the platform API: REST and gRPC.', 8080),
    tls: serverTls,
    cors: section('Pages of other origins that may call the API from a browser.', {
      origins: list('Origins whose scripts may read answers. With `*`, those of all origins may.', text('An origin.', { format: 'origin' }), []),
    }),
  }),
  ops: section('Operations.', { port: port('Port of `/healthz`, `/readyz` and `/metrics`.', 9090) }),
  registry: section('The registry host.', {
    port: port('Port of the registry host.', 5000),
    host: text('Name that clients use for the registry host, with the port if it is not the default.', { format: 'host-port' }),
    scheme: text('Scheme that clients use for the registry host. Part of the URL of the token endpoint.', { enum: ['http', 'https'] }),
    tls: registryTls,
    publicOrganization: text('Name of the root group whose repos everyone can pull without signing in.'),
    catalog: flag('Whether `/v2/_catalog` lists the repositories that the caller can pull. If false, it returns 405.', false),
    upstream,
    blobCacheMegabytes: megabytes(
      'Memory for often pulled blobs, in megabytes (1,000,000 bytes). One blob uses at most half of it. The process can use 50% more while blobs change. 0 turns it off.',
      256,
    ),
    history: section('Retention of tag histories. Without these settings, Taproot keeps all moves.', {
      maxAgeDays: count('Days to keep a move. The newest move of each tag is always kept.'),
      maxMoves: count('Number of moves to keep for each tag: the newest ones.'),
    }),
    readContents: flag('Whether to read what pushed images contain. If false, images wait.', true),
    lifecycle: section('Life cycles of tags.', {
      deprecate: flag('Whether to set `deprecated` of tags whose versions are no longer supported, and to take it back if the dates change.', false),
    }),
    signatures: section('Signatures of images, for pull policies.', {
      trustedRootFile: text(
        'File with the trusted root of sigstore (`trusted_root.json`): certificate authorities and logs for keyless signatures. Nothing is fetched. It is read again when it changes.',
      ),
    }),
    collect: section('Removal of unused content.', {
      graceHours: count('Hours to keep unused content. An upload must take less, from its first byte to its manifest.', 168),
    }),
  }),
  store: section('Storage of records.', {
    kind: text('`sqlite`: embedded, one process. `etcd`: a cluster, any number of replicas.', { enum: ['sqlite', 'etcd'], default: 'sqlite' }),
    sqlite: section('The embedded store.', { path: text('The database file.') }),
    etcd,
  }),
  kubernetes: section('Kubernetes objects, for role `controller`.', {
    kubeconfig: text('Kubeconfig file. Default: the service account of the pod.'),
    clusterId: text(
      'Name of this cluster in the owners of records. Clusters that share a store need different names. Default: the uid of the namespace `kube-system`.',
      { format: 'cluster-id' },
    ),
    issuer: text('Issuer of the service account tokens of the cluster. Default: the issuer of the token in `kubernetes.tokenFile`.', {
      format: 'http-url',
    }),
    tokenFile: text(
      'File with a service account token of the cluster. It is read if `kubernetes.issuer` is needed and not set. If its issuer changes, the process stops, and uses the new issuer after its restart.',
      { default: '/var/run/secrets/kubernetes.io/serviceaccount/token' },
    ),
    lease: section('Lease for the election of the leader among the controllers.', {
      namespace: text('Namespace of the lease. Default: the namespace of the pod.'),
      name: text('Name of the lease.', { default: 'taproot-controller' }),
    }),
    mirror: section('Read-only objects that mirror the records of the API.', {
      enabled: flag('Whether to create mirror objects.', true),
      namespace: text('Namespace of the mirror objects. Default: the namespace of the pod.'),
      rootGroups: list('Uids or names of the root groups to mirror. Default: all.', text('A root group.'), []),
      limit: count('Maximum number of mirror objects.', 10_000),
    }),
    pullSecrets: section('Secrets that the controller writes: for image pulls, and with the shared secrets of subscriptions.', {
      enabled: flag(
        'Whether to write Secrets: for the annotation `taproot.dev/pull-secret` of service accounts, and for `secretName` of subscriptions.',
        false,
      ),
    }),
  }),
  reads: text('`linearizable`: a read sees every write that completed before the read started. `bounded`: a read can be as old as the delay of the watch.', {
    enum: ['linearizable', 'bounded'],
    default: 'linearizable',
  }),
  bootstrap: section('Content of a new installation.', { operators: list('Identities that hold every capability everywhere.', operator, []) }),
  encryption: section('Encryption of stored secrets.', {
    keyFile: text(
      'File with the key that encrypts the data key: 32 bytes, raw or as hex or base64 text. All roles but `dev` need it with etcd; otherwise the first start creates a key in `dataDir`. Without this file, the stored secrets are lost.',
    ),
  }),
  login: section('Sign-in with a browser.', {
    redirects: list(
      'URLs to which a sign-in may redirect a browser with tokens; their query is ignored. URLs of the machine of the browser (http://localhost) are always allowed.',
      text('A URL.', { format: 'http-url' }),
      [],
    ),
  }),
  selfService: section('Rights of every signed-in person.', {
    rootGroups: flag('Whether every signed-in person can create root groups, and becomes their owner.', false),
    organizationsPerPerson: count('Maximum number of root groups that one person created and that still exist.', 10),
  }),
  organizations: section('Organisations.', {
    nameHoldDays: days(
      'Days that the name of a deleted or renamed organisation stays reserved for its former owners. With 0, everyone can use the name at once.',
      30,
    ),
  }),
  limits: section('Limits of new organisations: the initial `resourceLimits` of a root group. Operators can change them with `setLimits`.', {
    selfService: list('Limits of organisations that people create for themselves. A list here replaces the whole default.', limit, selfServiceLimits),
    organizations: list('Limits of organisations that operators create.', limit, []),
  }),
  rateLimit: section('Rate limits, as token buckets. Each replica counts by itself.', {
    enabled: flag('Whether to limit requests.', true),
    requestsPerSecond: count('Requests per second of a principal, on average.', 100),
    burst: count('Requests that a principal can send at once.', 200),
    workMillisecondsPerSecond: count('Processing time per second for the requests of a principal, on average, in milliseconds.', 250),
    workBurstMilliseconds: count('Processing time that a principal can use at once, in milliseconds. An ordinary request takes one or two.', 2500),
    address: section(
      'Limits per address (IPv6: per /64) for requests with refused credentials or without credentials: token exchange, registration, browser and device sign-in, ping.',
      {
        requestsPerSecond: count('Requests per second from an address, on average.', 100),
        burst: count('Requests that can come from an address at once.', 200),
        workMillisecondsPerSecond: count('Processing time per second for these requests, on average, in milliseconds.', 250),
        workBurstMilliseconds: count('Processing time that these requests can use at once, in milliseconds.', 2500),
      },
    ),
    reads: section(
      'Limits for reads at the registry host (GET and HEAD below `/v2/`, and `/token`). They replace the limits above, per principal and per address. Principals share the capacity fairly.',
      {
        concurrent: count('Concurrent reads.', 4000),
        megabytesPerSecond: count('Megabytes (1,000,000 bytes) of responses per second, on average.', 2500),
        burstMegabytes: count('Megabytes of responses at once.', 250_000),
      },
    ),
    scim: section('Limits per organisation and address for changes of users over SCIM.', {
      requestsPerSecond: count('Changes per second, on average.', 25),
      burst: count('Changes at once.', 50),
    }),
  }),
  connections: section('Limits of connections to the API port and to the registry port.', {
    max: count('Concurrent connections. Taproot closes additional ones immediately.', 10_000),
    perAddress: count('Concurrent connections from one address (IPv6: one /64) to the API port. Trusted proxies are exempt.', 1000),
    registryPerAddress: count('Concurrent connections from one address to the registry port. A cluster behind one address opens several for each node.', 4000),
  }),
  trustedProxies: list(
    'Networks of your proxies. For limits and the audit log, the client is the last entry of `X-Forwarded-For` outside these networks. From other addresses, the header is ignored.',
    text('A network.', { format: 'network' }),
    [],
  ),
  events: section('Delivery of events to sinks.', {
    deliver: flag('Whether to deliver events. If false, events wait until they expire.', true),
    networks: list(
      'Private networks that may contain sinks. Connections to other private addresses are refused, so that tenants cannot reach them.',
      text('A network.', { format: 'network' }),
      [],
    ),
    caFile: text('PEM file with CA certificates to trust for sinks, in addition to those of the system.'),
    trafficWindowSeconds: seconds(
      'Seconds in which equal pulls at the registry host have one event: same caller, repo, digest, tag, method and result. With 0, each pull has one.',
      300,
    ),
  }),
  tokens: section('Tokens of Taproot.', {
    audiences: list('Audiences that the token exchange can issue tokens for.', text('An audience.')),
    refresh: section('Refresh tokens of people. Each one works once and returns the next one.', {
      idleHours: count('Hours until an unused refresh token expires.', 168),
      maxHours: count('Hours until the person must sign in again, even with an unexpired refresh token.', 720),
    }),
  }),
  issuers: list('Token issuers that are allowed without an identity that names them, or that need more settings than their name.', issuer, []),
  compat: section('Compatibility with clients of the same API family.', {
    namespaces: list('Additional package names under which the same services are served.', text('A package name.', { format: 'package-name' }), [
      ...defaultNamespaces,
    ]),
  }),
  terms: list('Documents that organisations can accept.', terms, []),
  accountChecks,
  aws,
  stop: section('Shutdown of a process on SIGTERM or SIGINT.', {
    drainSeconds: seconds('Seconds to accept requests while `/readyz` already fails, so that a load balancer can stop sending requests.', 0),
    graceSeconds: seconds('Seconds for running requests to end, after `drainSeconds`.', 3),
  }),
  audit: section('The audit trail: one event for each change, denial and sign-in.', {
    sinks: list('Destinations of the events.', auditSink, [{ kind: 'log' }]),
    anonymousPerMinute: count('Denials of anonymous callers, per minute and process, that get an event each. Additional ones are only counted.', 600),
    deniedPerMinute: count(
      'Denials of the identities of one organisation, per minute and process, that get an event each. Additional ones are only counted.',
      600,
    ),
    keepDays: count('Days to keep events for `GET /audit/v2/events`.', 30),
    keepMegabytes: count(
      'Size of the events that are kept: of the index on each replica, and of the segments in the upstream. The oldest ones are removed above it.',
      2000,
    ),
  }),
  catalogues: section('Catalogues of imported data.', {
    feeds: list('Sources that the worker imports at intervals.', feed, []),
  }),
  scanners: list('Scanners with the scanner API of Harbor. The worker has them scan pushed images, and keeps their reports as referrers.', scanner, []),
  log: section('The log.', {
    level: text('Lowest level to write.', { enum: ['debug', 'info', 'warn', 'error'], default: 'info' }),
    format: text('`json` for programs: one object per line. `text` for people at a terminal.', { enum: ['json', 'text'], default: 'json' }),
  }),
}) satisfies NodeFor<Config>

/** Returns the configuration's JSON Schema (draft 7), which is published as docs/config.schema.json. */
export function configJsonSchema(): Readonly<Record<string, unknown>> {
  return { $schema: 'http://json-schema.org/draft-07/schema#', title: 'Taproot configuration', ...configSchema }
}
