import { limitNames } from '../engine/quota/limits.ts'
import { count, flag, list, section, text, upTo } from './schema-node.ts'

const certFiles = { certFile: text('PEM file with the certificate and its chain.'), keyFile: text('PEM file with the private key.') }
/** TLS of the API port. */
export const serverTls = section('TLS on the API port. Without it, the API uses HTTP/1.1 and HTTP/2 without encryption.', certFiles, ['certFile', 'keyFile'])
/** TLS of the registry port. */
export const registryTls = section('TLS on the registry port. Without it, the registry host uses HTTP without encryption.', certFiles, ['certFile', 'keyFile'])

const etcdTls = section('TLS for connections to etcd.', {
  caFile: text('PEM file with the CA certificate of etcd. Default: the CA certificates of the system.'),
  certFile: text('PEM file with the client certificate.'),
  keyFile: text('PEM file with the private key of the client certificate.'),
})

/** The etcd cluster. */
export const etcd = section('The etcd cluster, if `store.kind` is `etcd`.', {
  endpoints: list('Client URLs of all members.', text('A client URL.', { format: 'http-url' }), []),
  prefix: text('Prefix of every key. Two installations on one cluster need different prefixes.', { format: 'key-prefix', default: '/taproot' }),
  tls: etcdTls,
  username: text('User name for etcd, if it has authentication turned on.'),
  passwordFile: text('File with the password of that etcd user.'),
})

/** The upstream registry. */
export const upstream = section('Storage of image content. Only Taproot may be able to reach it.', {
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
/** An operator. */
export const operator = section(
  'One operator.',
  { issuer: text(`Issuer of the token. ${clusters}`, { format: 'http-url' }), subject: text('Subject of the token.') },
  ['subject'],
)

/** A token issuer. */
export const issuer = section('One issuer.', {
  issuer: text(`Name of the issuer, exactly as in its tokens. ${clusters}`, { format: 'http-url' }),
  jwksUri: text('URL of its keys. Default: the one in its discovery document.', { format: 'http-url' }),
  caFile: text('PEM file with the CA certificate of the issuer.'),
  tokenFile: text('File with a bearer token to send to the issuer. A Kubernetes API server needs one.'),
  allowPrivate: flag('Whether the issuer may have a private or loopback address, and use http.'),
})

/** A feed of a catalogue. */
export const feed = section(
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

/** A scanner. */
export const scanner = section(
  'One scanner.',
  {
    name: text('Name of the scanner in reports, metrics and logs. Images are scanned again under another name.', { format: 'sink-name' }),
    url: text('URL of the scanner, to which `/api/v1/scan` is added. Redirects are not followed.', { format: 'base-url' }),
    identity: text('Uid of the identity that the scanner acts as. Images are scanned where it may pull and push.', { format: 'identity' }),
    registryUrl: text('URL at which the scanner reaches the registry host. Default: `registry.scheme` and `registry.host`.', { format: 'base-url' }),
    authorization: text('How requests to the scanner are authorized with `tokenFile`. Default: `bearer`. For `basic`, the file has `user:password`.', {
      enum: ['bearer', 'basic', 'apiKey'],
    }),
    tokenFile: text('File with the credential for the scanner.'),
    caFile: text('PEM file with the CA certificate of the scanner. Default: the CA certificates of the system.'),
    timeoutSeconds: upTo(600, 'Seconds for one request to the scanner, with its answer. Default: 30.'),
    scanMinutes: upTo(60, 'Minutes from the request for a scan to its report, and the life of its token. Default: 30.'),
    concurrent: upTo(8, 'Number of scans at the same time. Each may hold a report of 32 MiB in memory. Default: 4.'),
  },
  ['name', 'url', 'identity'],
)

/** A document to accept. */
export const terms = section(
  'One document.',
  { id: text('Id of the document in the API.'), label: text('Title of the document.'), url: text('URL of the document.', { format: 'http-url' }) },
  ['id', 'label', 'url'],
)

/** A limit of an organisation. */
export const limit = section(
  'One limit.',
  {
    limit: text('Name of the limit.', { enum: limitNames }),
    max: { type: 'integer', description: 'The maximum.', minimum: 0, maximum: 2_147_483_647 },
  },
  ['limit', 'max'],
)

/** The default limits of organisations that people create for themselves. They cover everything of which anyone could create many. */
export const selfServiceLimits = Object.entries({
  advisories: 500,
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

/** Checks of cloud accounts. */
export const accountChecks = section('Checks of the cloud accounts of groups. For a provider without configuration, the check returns `not configured`.', {
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

/** AWS identities. */
export const aws = section('AWS identities. A caller signs a `GetCallerIdentity` request, and Taproot sends it to AWS to identify the caller.', {
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

/** A destination of audit events. */
export const auditSink = section(
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
