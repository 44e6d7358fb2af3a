import { defaultNamespaces } from '../transport/aliases.ts'
import { limitNames } from '../engine/quota/limits.ts'
import type { Config } from './config.ts'
import { count, days, flag, list, megabytes, port, seconds, section, text, type NodeFor } from './schema-node.ts'

const certFiles = { certFile: text('PEM file with the certificate and its chain.'), keyFile: text('PEM file with the private key.') }
const serverTls = section('TLS on the API port. Without it, the API uses HTTP/1.1 and HTTP/2 without encryption.', certFiles, ['certFile', 'keyFile'])
const registryTls = section('TLS on the registry port. Without it, the registry host uses HTTP without encryption.', certFiles, ['certFile', 'keyFile'])

const etcdTls = section('TLS for connections to etcd.', {
  caFile: text('PEM file with the CA certificate of etcd. Default: the CA certificates of the system.'),
  certFile: text('PEM file with the client certificate.'),
  keyFile: text('PEM file with the private key of the client certificate.'),
})

const etcd = section('The etcd cluster, if `store.kind` is `etcd`.', {
  endpoints: list('Client URLs of all members.', text('A client URL.', { format: 'http-url' }), []),
  prefix: text('Prefix of every key. Two installations on one cluster need different prefixes.', { format: 'key-prefix', default: '/taproot' }),
  tls: etcdTls,
  username: text('User name for etcd, if it has authentication turned on.'),
  passwordFile: text('File with the password of that etcd user.'),
})

const upstream = section('Storage of image content. Only Taproot may be able to reach it.', {
  url: text('URL of the OCI registry that stores the content.', { format: 'http-url' }),
  directory: text('Folder of the embedded upstream, in place of a registry. Only one process at a time can use it.'),
  prefix: text('First component of every repository name in the upstream registry.'),
  username: text('User name for the upstream registry.'),
  passwordFile: text('File with the password for the upstream registry.'),
  caFile: text('PEM file with the CA certificate of the upstream registry. Default: the CA certificates of the system.'),
  redirects: text(
    'Handling of redirects to the storage of the upstream. `follow` reads blobs there. `pass` redirects clients, which must be able to reach the storage. Anyone with such a URL can use it until it expires.',
    { enum: ['follow', 'pass'] },
  ),
})

const clusters = 'Default: `kubernetes.issuer`.'
const operator = section(
  'One operator.',
  { issuer: text(`Issuer of the token. ${clusters}`, { format: 'http-url' }), subject: text('Subject of the token.') },
  ['subject'],
)

const issuer = section('One issuer.', {
  issuer: text(`Name of the issuer, exactly as in its tokens. ${clusters}`, { format: 'http-url' }),
  jwksUri: text('URL of its keys. Default: the one in its discovery document.', { format: 'http-url' }),
  caFile: text('PEM file with the CA certificate of the issuer.'),
  tokenFile: text('File with a bearer token to send to the issuer. A Kubernetes API server needs one.'),
  allowPrivate: flag('Whether the issuer may have a private or loopback address, and use http.'),
})

const feed = section(
  'One feed.',
  {
    name: text('Name of the feed, for example `pypa`.'),
    source: text(
      'An https URL, an artifact such as `oci://registry.example.com/name:tag`, or the path of a mounted file or folder. Content is as for `taproot import`.',
    ),
    everyMinutes: count('Minutes between the starts of two runs. A server that supports it sends the content only if it changed.', 1440),
    group: text('Group that advisories belong to: uid or path.'),
    ecosystem: text('OSV ecosystem of packages whose documents name no distribution, for example `Wolfi` or `Alpine:v3.20`. Exports in OSV form need it.'),
    replace: flag('Whether a run removes what the source no longer has.'),
    tokenFile: text('File with a bearer token to send to the URL. For a registry, it may have `user:password`.'),
    caFile: text('PEM file with the CA certificate of the URL. Default: the CA certificates of the system.'),
    allowPrivate: flag('Whether the URL may have a private or loopback address, and use http. A registry with http is `oci+http://…`.'),
  },
  ['name', 'source'],
)

const terms = section(
  'One document.',
  { id: text('Id of the document in the API.'), label: text('Title of the document.'), url: text('URL of the document.', { format: 'http-url' }) },
  ['id', 'label', 'url'],
)

const limit = section(
  'One limit.',
  {
    limit: text('Name of the limit.', { enum: limitNames }),
    max: { type: 'integer', description: 'The maximum.', minimum: 0, maximum: 2_147_483_647 },
  },
  ['limit', 'max'],
)

/** The default limits of organisations that people create for themselves. They cover everything of which anyone could create many. */
const selfServiceLimits = Object.entries({
  content_mib: 51_200,
  dead_letter_mib: 64,
  external_group_role_mappings: 1_000,
  group_invites: 200,
  groups: 500,
  identities: 2_000,
  idps: 20,
  manifest_mib: 128,
  record_mib: 128,
  repositories: 1_000,
  role_bindings: 10_000,
  roles: 200,
  scim_users: 10_000,
  subscriptions: 100,
  tags: 50_000,
  uploads: 100,
}).map(([name, max]) => ({ limit: name, max }))

const accountChecks = section('Checks of the cloud accounts of groups. For a provider without configuration, the check returns `not configured`.', {
  amazon: section('Amazon: `AssumeRoleWithWebIdentity` with a token of Taproot, whose subject is the uid of the group.', {
    role: text('Name of the role to assume in each account.'),
    endpoint: text('URL of the token service.', { format: 'http-url', default: 'https://sts.amazonaws.com' }),
    partition: text('Partition in the ARN of the role.', { default: 'aws' }),
    audience: text('Audience of the token.', { default: 'sts.amazonaws.com' }),
  }),
  google: section('Google: a token exchange with a workload identity pool in each project.', {
    provider: text('Names of the pool and the provider in each project.', { format: 'pool-provider' }),
    endpoint: text('URL of the token service.', { format: 'http-url', default: 'https://sts.googleapis.com/v1/token' }),
  }),
  azure: section('Azure: client credentials with a token of Taproot as the assertion.', {
    client: text('Key of the client id to sign in with, in the map `clientIds` of the account association.'),
    endpoint: text('URL of the token service.', { format: 'http-url', default: 'https://login.microsoftonline.com' }),
    scope: text('Scope to request.', { default: 'https://management.azure.com/.default' }),
  }),
})

const aws = section('AWS identities. A caller signs a `GetCallerIdentity` request, and Taproot sends it to AWS to identify the caller.', {
  hosts: list(
    'Hosts that a caller may sign the request for: add those of your regions or partitions. If empty, AWS identities are refused.',
    text('A host name.'),
    ['sts.amazonaws.com'],
  ),
  endpoint: text(
    'URL to send these requests to in place of their host, such as an endpoint in a private network. Its certificate must be valid for the host of the request.',
    { format: 'http-url' },
  ),
  audiences: list('Audiences of this installation in AWS requests.', text('An audience.')),
})

const auditSink = section(
  'One destination of audit events.',
  {
    kind: text(
      '`log`: the log of the process. `file`: JSON lines in a file. `syslog`: RFC 5424 over TLS. `https`: JSON lines in POST requests. `otlp`: OTLP logs over HTTP, as JSON.',
      { enum: ['log', 'file', 'syslog', 'https', 'otlp'] },
    ),
    name: text('Name of the sink in metrics, and of its folder below `<dataDir>/audit`. Default: the kind.', { format: 'sink-name' }),
    path: text('Path of the file, for the kind `file`.'),
    maxMegabytes: count('Megabytes after which a new file replaces the full one, for the kind `file`. Default: 100.'),
    maxFiles: count('Number of files to keep, including the current one, for the kind `file`. Default: 10.'),
    url: text('URL of the receiver, for the kinds `https` and `otlp` (such as `http://collector:4318/v1/logs`).', { format: 'http-url' }),
    tokenFile: text('File with a bearer token, for the kinds `https` and `otlp`.'),
    address: text('Host and port of the receiver, for the kind `syslog`. Default port: 6514.', { format: 'host-port' }),
    caFile: text('PEM file with the CA certificate of the receiver. Default: the CA certificates of the system.'),
    certFile: text('PEM file with the client certificate, for the kind `syslog`.'),
    keyFile: text('PEM file with the private key of the client certificate, for the kind `syslog`.'),
    spoolMegabytes: count(
      'Maximum megabytes of events that wait on disk for the receiver, for the kinds `syslog`, `https` and `otlp`. More events are dropped. Default: 256.',
    ),
  },
  ['kind'],
)

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
  api: section('The platform API.', { port: port('Port of the platform API: REST and gRPC.', 8080), tls: serverTls }),
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
  log: section('The log.', { level: text('Lowest level to write.', { enum: ['debug', 'info', 'warn', 'error'], default: 'info' }) }),
}) satisfies NodeFor<Config>

/** Returns the configuration's JSON Schema (draft 7), which is published as docs/config.schema.json. */
export function configJsonSchema(): Readonly<Record<string, unknown>> {
  return { $schema: 'http://json-schema.org/draft-07/schema#', title: 'Taproot configuration', ...configSchema }
}
