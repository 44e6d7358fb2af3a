import { defaultNamespaces } from '../transport/aliases.ts'
import { limitNames } from '../engine/quota/limits.ts'
import type { Config } from './config.ts'
import { count, days, flag, list, megabytes, port, seconds, section, text, type NodeFor } from './schema-node.ts'

const certFiles = { certFile: text('PEM file: the certificate and its chain.'), keyFile: text('PEM file: the private key.') }
const serverTls = section('TLS on the API port. Without it the API speaks plain HTTP/1.1 and cleartext HTTP/2.', certFiles, ['certFile', 'keyFile'])
const registryTls = section('TLS on the registry port. Without it the registry host speaks plain HTTP.', certFiles, ['certFile', 'keyFile'])

const etcdTls = section('TLS towards etcd.', {
  caFile: text("PEM file: the authority that signed etcd's certificates. Default: the system's authorities."),
  certFile: text('PEM file: client certificate.'),
  keyFile: text("PEM file: the client certificate's private key."),
})

const etcd = section('The etcd cluster, where `store.kind` is `etcd`.', {
  endpoints: list('The client URLs of all members.', text('A client URL.', { format: 'http-url' }), []),
  prefix: text('What every key starts with. Two installations on one cluster need different prefixes.', { format: 'key-prefix', default: '/taproot' }),
  tls: etcdTls,
  username: text('User, where etcd has authentication on.'),
  passwordFile: text("File that holds that user's password."),
})

const upstream = section('What keeps the bytes. It must be reachable by Taproot only.', {
  url: text('Where the OCI registry is that keeps them.', { format: 'http-url' }),
  directory: text('Folder of the embedded upstream, in place of a registry. One process at a time uses it.'),
  prefix: text('First part of every repository name in that registry.'),
  username: text('User there.'),
  passwordFile: text("File that holds that user's password."),
  caFile: text("PEM file: the authority that signed its certificate. Default: the system's authorities."),
  redirects: text(
    'What to do if the upstream redirects blobs to its storage. `follow` reads them there. `pass` redirects clients, which must reach the storage. Anyone with such a URL can use it until it expires.',
    { enum: ['follow', 'pass'] },
  ),
})

const clusters = 'Default: `kubernetes.issuer`.'
const operator = section('One operator.', { issuer: text(`The token's issuer. ${clusters}`, { format: 'http-url' }), subject: text("The token's subject.") }, [
  'subject',
])

const issuer = section('One issuer.', {
  issuer: text(`The issuer's name, exactly as in its tokens. ${clusters}`, { format: 'http-url' }),
  jwksUri: text('Where its keys are, if not where its discovery document says.', { format: 'http-url' }),
  caFile: text('PEM file: the authority that signed its certificate.'),
  tokenFile: text('File with a bearer token that is sent to it (a Kubernetes API server wants one).'),
  allowPrivate: flag('It may have a private or loopback address, and may use http.'),
})

const terms = section(
  'One document.',
  { id: text('Its name in the API.'), label: text('Its title.'), url: text('Where it can be read.', { format: 'http-url' }) },
  ['id', 'label', 'url'],
)

const limit = section(
  'One limit.',
  {
    limit: text('Its name.', { enum: limitNames }),
    max: { type: 'integer', description: 'The most that there may be.', minimum: 0, maximum: 2_147_483_647 },
  },
  ['limit', 'max'],
)

/** Bounded for everything that a stranger can make many of. */
const selfServiceLimits = Object.entries({
  content_mib: 51_200,
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

const accountChecks = section("Checks of groups' accounts at cloud providers. A provider that is not configured is answered with `not configured`.", {
  amazon: section('Amazon: `AssumeRoleWithWebIdentity` with a token of our issuer, whose subject is the uid of the group.', {
    role: text('Name of the role that is assumed in each account.'),
    endpoint: text('Where its token service is.', { format: 'http-url', default: 'https://sts.amazonaws.com' }),
    partition: text('The partition in the names of its resources.', { default: 'aws' }),
    audience: text('Audience of our token.', { default: 'sts.amazonaws.com' }),
  }),
  google: section('Google: a token exchange with a workload identity pool of the project.', {
    provider: text('Pool and provider in each project.', { format: 'pool-provider' }),
    endpoint: text('Where its token service is.', { format: 'http-url', default: 'https://sts.googleapis.com/v1/token' }),
  }),
  azure: section('Azure: client credentials with a token of our issuer as the assertion.', {
    client: text('The key in `clientIds` of the client that is signed in.'),
    endpoint: text('Where its token service is.', { format: 'http-url', default: 'https://login.microsoftonline.com' }),
    scope: text('What is asked for.', { default: 'https://management.azure.com/.default' }),
  }),
})

const aws = section('AWS identities: their callers sign a `GetCallerIdentity` request, which is sent to AWS to learn who they are.', {
  hosts: list('Hosts that such a request may be signed for: add those of regions or partitions. Empty: AWS identities are refused.', text('A host name.'), [
    'sts.amazonaws.com',
  ]),
  endpoint: text(
    'Where such requests are sent in place of their host, for an endpoint inside a private network: it may have a private address. Its certificate must be good for the host of the request.',
    { format: 'http-url' },
  ),
  audiences: list('Audiences that mean this installation.', text('An audience.')),
})

/**
 * Every key of the configuration: one row says its type, default, meaning and bounds. Validation, environment variables, the published
 * JSON Schema and docs/configuration.md follow from it. Defaults that depend on the role or on other keys are in `defaults.ts`.
 */
export const configSchema = section('Configuration of Taproot.', {
  baseUrl: text('The URL under which clients reach the API; also the name of its own token issuer. Changing it makes earlier tokens invalid.', {
    format: 'base-url',
  }),
  dataDir: text('Folder for what is kept on disk: the embedded store and made keys.', { default: '/var/lib/taproot' }),
  listen: text('Address that all ports listen on.', { format: 'listen-address', default: '0.0.0.0' }),
  api: section('The platform API.', { port: port('Port of the platform API: REST and gRPC.', 8080), tls: serverTls }),
  ops: section('Operations.', { port: port('Port of `/healthz`, `/readyz` and `/metrics`.', 9090) }),
  registry: section('The registry host.', {
    port: port('Port of the registry host.', 5000),
    host: text('The name, and port if not the default one, under which clients reach the registry host.', { format: 'host-port' }),
    scheme: text('How clients reach the registry host. Part of the URL of the token endpoint.', { enum: ['http', 'https'] }),
    tls: registryTls,
    publicOrganization: text('Name of the root group whose repos anyone may pull.'),
    catalog: flag('Whether `/v2/_catalog` lists the repositories that the caller may pull. If off, the answer is 405.', false),
    upstream,
    blobCacheMegabytes: megabytes(
      'Memory for blobs that are pulled again and again, in megabytes (1,000,000 bytes); each blob takes half of it at most. While blobs change, the process may have half as much again for a while. 0 for none.',
      256,
    ),
    history: section('What of the histories of tags is kept. Without any of these all of it is.', {
      maxAgeDays: count('How long a move is kept, in days. The newest of each tag always is.'),
      maxMoves: count('How many moves of each tag are kept: the newest.'),
    }),
    collect: section('Removal of bytes that nothing needs.', {
      graceHours: count('How long bytes that nothing needs are kept, in hours: uploads may take so long from their first byte to their manifest.', 168),
    }),
  }),
  store: section('Where the records are.', {
    kind: text('`sqlite`: embedded, one process. `etcd`: a cluster, any number of replicas.', { enum: ['sqlite', 'etcd'], default: 'sqlite' }),
    sqlite: section('The embedded store.', { path: text('The database file.') }),
    etcd,
  }),
  kubernetes: section('Kubernetes objects, for role `controller`.', {
    kubeconfig: text('File that says where the API server is. Default: the service account of the pod.'),
    clusterId: text(
      'The name of this cluster in what records say of their owner. No two clusters that share a store may have the same. Default: the uid of the namespace `kube-system`.',
      { format: 'cluster-id' },
    ),
    issuer: text("The issuer of the cluster's service account tokens. Default: that of the token in `kubernetes.tokenFile`.", {
      format: 'http-url',
    }),
    tokenFile: text(
      'File with a token of a service account of the cluster. It is read where `kubernetes.issuer` is needed and has no value. When it names another issuer, the process stops, so that its restart uses that.',
      { default: '/var/run/secrets/kubernetes.io/serviceaccount/token' },
    ),
    lease: section('What the controllers elect their leader by.', {
      namespace: text('Its namespace. Default: that of the pod.'),
      name: text('Its name.', { default: 'taproot-controller' }),
    }),
    mirror: section('Objects that show what the API owns.', {
      enabled: flag('Whether there are any.', true),
      namespace: text('Where they are. Default: that of the pod.'),
      rootGroups: list('Uids or names of the root groups that are shown. Default: all.', text('A root group.'), []),
      limit: count('How many there are at most.', 10_000),
    }),
    pullSecrets: section('Secrets for pulling images.', {
      enabled: flag('Whether Secrets are kept for service accounts that ask for one by the annotation `taproot.dev/pull-secret`.', false),
    }),
  }),
  reads: text('`linearizable`: a read sees every write that was answered before it began. `bounded`: it may be late by what the watch lags.', {
    enum: ['linearizable', 'bounded'],
    default: 'linearizable',
  }),
  bootstrap: section('What an empty installation starts with.', { operators: list('Who holds every capability everywhere.', operator, []) }),
  encryption: section('Secrets at rest.', {
    keyFile: text(
      'File with the key that wraps the data key: 32 bytes, as they are or as hex or base64 text. Required for roles `api`, `registry` and `controller` on etcd; elsewhere a key is made in `dataDir` on first start. Without this file the stored secrets are lost.',
    ),
  }),
  login: section('Signing in by a browser.', {
    redirects: list(
      'URLs that a browser may be sent to with tokens, whatever their query. Addresses on the machine of the browser (http://localhost) always may.',
      text('A URL.', { format: 'http-url' }),
      [],
    ),
  }),
  selfService: section('What any signed-in person may do.', {
    rootGroups: flag('Create root groups, becoming their owner.', false),
    organizationsPerPerson: count('How many root groups that one person made may be there at once.', 10),
  }),
  organizations: section('Organisations.', {
    nameHoldDays: days(
      'How many days the name of a deleted or renamed organisation is reserved for its former owners. 0: everyone can take the name at once.',
      30,
    ),
  }),
  limits: section('What an organisation may have at most: `resourceLimits` of its root group when it is made. Operators change them by `setLimits`.', {
    selfService: list('Limits of organisations that people make for themselves. A list here replaces the whole default.', limit, selfServiceLimits),
    organizations: list('Limits of organisations that operators make.', limit, []),
  }),
  rateLimit: section('Token buckets. Each replica has its own.', {
    enabled: flag('Whether requests are limited.', true),
    requestsPerSecond: count('Requests that a principal may send per second in the long run.', 100),
    burst: count('Requests that a principal may send at once.', 200),
    workMillisecondsPerSecond: count('For how long the requests of a principal may hold a process, in milliseconds of each second in the long run.', 250),
    workBurstMilliseconds: count(
      'The same at once, in milliseconds. What is dear for a process is refused only after that: an ordinary request takes one or two.',
      2500,
    ),
    address: section(
      'Per address (IPv6: per /64), for refused credentials and for requests that need none: token exchange, registering, signing in by a browser or on a device, ping.',
      {
        requestsPerSecond: count('Such requests that may come from an address per second in the long run.', 100),
        burst: count('Such requests that may come from an address at once.', 200),
        workMillisecondsPerSecond: count('For how long they may hold a process, in milliseconds of each second in the long run.', 250),
        workBurstMilliseconds: count('The same at once, in milliseconds.', 2500),
      },
    ),
    reads: section(
      'Reads at the registry host (GET and HEAD below `/v2/`, and `/token`): these limits replace the ones above, per principal and per address. Reads of many principals take turns.',
      {
        concurrent: count('Reads that may be under way at once.', 4000),
        megabytesPerSecond: count('Megabytes (1,000,000 bytes) of answers per second in the long run.', 2500),
        burstMegabytes: count('Megabytes of answers at once.', 250_000),
      },
    ),
    scim: section('Per organisation and address, for changes of users over SCIM.', {
      requestsPerSecond: count('Changes per second in the long run.', 25),
      burst: count('Changes at once.', 50),
    }),
  }),
  connections: section('Connections that the API port, and the registry port, take.', {
    max: count('At once; more are closed as they come.', 10_000),
    perAddress: count('From one address (IPv6: one /64) at once at the API port, unless it is that of a trusted proxy.', 1000),
    registryPerAddress: count('The same at the registry port: a cluster behind one address opens several for each node.', 4000),
  }),
  trustedProxies: list(
    'Networks of your proxies. For limits and the audit log, the client is the last entry of `X-Forwarded-For` that is not one of them. From other addresses the header is ignored.',
    text('A network.', { format: 'network' }),
    [],
  ),
  events: section('Delivery of events to sinks.', {
    deliver: flag('Whether events are delivered. If off, they wait, for as long as events are kept.', true),
    networks: list(
      'Private networks that sinks may be in. Connections to other private addresses are refused, so that tenants cannot reach them.',
      text('A network.', { format: 'network' }),
      [],
    ),
    caFile: text("PEM file: authorities that may sign certificates of sinks, in addition to the system's."),
  }),
  tokens: section('Our own tokens.', {
    audiences: list('Audiences that the token exchange issues.', text('An audience.')),
    refresh: section("People's refresh tokens: each works once and is answered with the next.", {
      idleHours: count('How long one works that is not used, in hours.', 168),
      maxHours: count('How long they follow one another at most, in hours: then the person signs in again.', 720),
    }),
  }),
  issuers: list('Token issuers that may be contacted though no identity names them, or that need more than their name.', issuer, []),
  compat: section('Clients of the same API family.', {
    namespaces: list('Package names under which the same services are also served.', text('A package name.', { format: 'package-name' }), [
      ...defaultNamespaces,
    ]),
  }),
  terms: list('Documents that organisations may accept.', terms, []),
  accountChecks,
  aws,
  stop: section('How a process stops on SIGTERM or SIGINT.', {
    drainSeconds: seconds(
      'How long it still takes requests, not ready any more, so that nothing is led to it when it closes its ports. For use behind a balancer.',
      0,
    ),
    graceSeconds: seconds('How long running requests may then take to end.', 3),
  }),
  log: section('The log.', { level: text('The least severe level that is written.', { enum: ['debug', 'info', 'warn', 'error'], default: 'info' }) }),
}) satisfies NodeFor<Config>

/** The configuration's JSON Schema (draft 7), as it is published in docs/config.schema.json. */
export function configJsonSchema(): Readonly<Record<string, unknown>> {
  return { $schema: 'http://json-schema.org/draft-07/schema#', title: 'Taproot configuration', ...configSchema }
}
