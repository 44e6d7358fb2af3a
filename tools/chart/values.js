// Every value of the chart: one row says its type, default and meaning. values.yaml, values.schema.json and the table in the chart's README follow from it.
import { count, flag, given, list, object, objects, section, text, texts, word } from './schema-node.js'
import {
  additions,
  autoscaling,
  disruption,
  draining,
  endpoints,
  grpcEndpoints,
  image,
  nodePort,
  persistence,
  replicated,
  scheduling,
  servicePort,
} from './workloads.js'

const httpUrl = { pattern: '^https?://[^/?#\\s]+[^?#\\s]*$' }
const optionalIssuer = { pattern: '^(https?://[^/?#\\s]+[^?#\\s]*)?$' }
const optionalUrl = { pattern: '^(https?://[^/?#\\s]+[^?#\\s]*[^/?#\\s])?$' }
const name = { pattern: '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$' }
const existing = (holds, where = 'the generated one') => text(`Existing Secret with ${holds}. If empty: ${where}.`, '', name)

const issuer = section(
  'One issuer.',
  {
    issuer: given("The issuer's name, exactly as in its tokens.", httpUrl),
    jwksUri: given('URL of its keys. Default: the one in its discovery document.', httpUrl),
    caFile: given('Path in the pods: CA certificates to trust for it (PEM). Mount it with `extraVolumes`.'),
    tokenFile: given('Path in the pods: a bearer token to send to it.'),
    allowPrivate: { type: 'boolean', description: 'Allow private and loopback addresses, and http.' },
  },
  ['issuer'],
)
const operator = section('One operator.', { issuer: given("Issuer of the token. Default: the cluster's.", httpUrl), subject: given('Subject of the token.') }, [
  'subject',
])

const kubernetes = section('The cluster that Taproot runs in.', {
  issuer: text(
    "Issuer of the cluster's service account tokens, exactly as in the tokens. If empty, Taproot reads it from the token in its pods.",
    '',
    optionalIssuer,
  ),
  jwksUri: text(
    'URL of the keys of these tokens. Every API server serves them, also if the cloud provider is the issuer.',
    'https://kubernetes.default.svc/openid/v1/jwks',
    httpUrl,
  ),
  clusterId: text('Name of this cluster in `managedBy`. If empty: the uid of the namespace kube-system.', '', {
    pattern: '^([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?)?$',
  }),
  mirror: section('Read-only objects that show the records of the API.', {
    enabled: flag('Create them.', true),
    namespace: text("Their namespace, which must exist. If empty: the release's.", '', name),
    rootGroups: list('Root groups to mirror, by uid or name. If empty: all.', { type: 'string', minLength: 1 }),
    limit: count('Maximum number of objects.', 10_000, { minimum: 1 }),
    policy: flag(
      'Let a ValidatingAdmissionPolicy refuse changes by others than the controller. Without it, users who can write objects can change mirrors, and add or remove their label.',
      true,
    ),
  }),
  pullSecrets: section('Pull secrets for service accounts with the annotation `taproot.dev/pull-secret`.', {
    enabled: flag('Let the controller create them. It then gets the right to write Secrets in all namespaces.', false),
  }),
})

const etcd = section('The store.', {
  enabled: flag(
    'Install etcd: for evaluation, and for small installations that tolerate short outages. In production, disable it and use `etcd.external`.',
    true,
  ),
  replicas: { type: 'integer', description: 'Number of members. It can not change after the installation.', enum: [1, 3], default: 1 },
  image: image('Image with the program `etcd` 3.6 in its PATH.', 'gcr.io/etcd-development/etcd', 'v3.6.8'),
  quotaBackendBytes: count('Database size in bytes above which etcd refuses writes.', 8_589_934_592, { minimum: 67_108_864, maximum: 8_589_934_592 }),
  persistence: persistence('10Gi', 'Existing PersistentVolumeClaim to use. With one member only.'),
  tls: section('Certificates of the installed etcd.', {
    serverSecret: existing('`ca.crt`, `tls.crt`, `tls.key` of the members'),
    peerCommonName: text('Common name of the certificate in `serverSecret`. Members accept only peers with this name.', 'etcd', { minLength: 1 }),
    clientSecret: existing("`ca.crt`, `tls.crt`, `tls.key` of Taproot's own certificate"),
  }),
  ...disruption(),
  ...additions(),
  ...scheduling({ cpu: '100m', memory: '128Mi', memoryLimit: '2Gi' }),
  external: section('Your own etcd, if `etcd.enabled` is false.', {
    endpoints: list('The client URLs of all members.', { type: 'string', ...httpUrl }),
    prefix: text('Prefix of every key. Two installations on one etcd cluster need different prefixes.', '/taproot', { pattern: '^/[\\x21-\\x7e]*[^/\\s]$' }),
    tlsSecret: existing('`ca.crt` and, for client certificates, `tls.crt` and `tls.key`', 'system CA certificates, no client certificate'),
    clientCertificate: flag('Use the client certificate in `tlsSecret`.', true),
    username: text('User name, if etcd has authentication enabled.'),
    passwordSecret: existing("the user's `password`", 'no password'),
  }),
})

const upstream = section('The registry that stores the content of images. Only Taproot connects to it.', {
  enabled: flag('Install CNCF distribution on one volume, for evaluation. In production, disable it and use `upstream.external`.', true),
  image: image('Image with the program `registry` 3.1 in its PATH.', 'docker.io/library/registry', '3.1.2'),
  persistence: persistence('50Gi'),
  existingSecret: existing('`password`, `htpasswd` (user `taproot`, bcrypt) and `http-secret`'),
  tlsSecret: existing('`ca.crt`, `tls.crt`, `tls.key` of the installed registry'),
  ...additions(),
  ...scheduling({ cpu: '50m', memory: '64Mi', memoryLimit: '512Mi' }),
  external: section('Your own registry, if `upstream.enabled` is false.', {
    url: text('URL of the registry. If empty, set `registry.enabled` to false: the API then runs without a registry.', '', optionalUrl),
    prefix: text('Prefix of every repository name in it.'),
    username: text('User name.'),
    passwordSecret: existing("the user's `password`", 'no password'),
    caSecret: existing('`ca.crt`: CA certificates to trust for it', "the system's CA certificates"),
    redirects: word(
      'What to do when it redirects a blob to its storage. `follow`: read the blob from there. `pass`: redirect the client, which must reach that storage.',
      ['follow', 'pass'],
      'follow',
    ),
  }),
})

const networkPolicy = section('NetworkPolicies. They allow only Taproot to connect to the installed etcd and registry.', {
  enabled: flag('Create them.', true),
  clients: list('Peers that may connect to the API and the registry host, as in `ingress.from`. If empty: all.', { type: 'object' }),
  monitoring: list('Peers that may read metrics, as in `ingress.from`. Default: all pods of the cluster.', { type: 'object' }, [{ namespaceSelector: {} }]),
})

const monitoring = section('Objects of the Prometheus operator.', {
  serviceMonitor: section('ServiceMonitor.', {
    enabled: flag('Create it.', false),
    namespace: text("Its namespace. If empty: the release's.", '', name),
    interval: text('Scrape interval.', '30s', { minLength: 1 }),
    labels: texts('Labels that your Prometheus selects.'),
  }),
  prometheusRule: section('Alerts.', {
    enabled: flag('Create them.', false),
    namespace: text("Their namespace. If empty: the release's.", '', name),
    labels: texts('Labels that your Prometheus selects.'),
  }),
})

const pods = section('All pods.', {
  securityContext: object('Security context of the pods.', {
    runAsNonRoot: true,
    runAsUser: 65_532,
    runAsGroup: 65_532,
    fsGroup: 65_532,
    fsGroupChangePolicy: 'OnRootMismatch',
  }),
  containerSecurityContext: object('Security context of the containers.', {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  }),
  labels: texts('Labels.'),
  annotations: texts('Annotations.'),
})

/** The values as a JSON Schema; `config` is the part of Taproot's own configuration that the chart does not set. */
export function valuesSchema(config) {
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Values of the chart taproot',
    ...section('', {
      global: {
        ...object('Values that an umbrella chart shares. `imageRegistry`: the registry of all images without an `image.registry` of their own.'),
        properties: { imageRegistry: text('The registry of all images.') },
      },
      fullnameOverride: text('Prefix of all object names. If empty: the release name.', '', { pattern: '^([a-z]([-a-z0-9]{0,38}[a-z0-9])?)?$' }),
      nameOverride: text('Label `app.kubernetes.io/name` of all objects. It can not change after the installation.', 'taproot', {
        pattern: '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$',
      }),
      commonLabels: texts('Labels of all objects.'),
      commonAnnotations: texts('Annotations of all objects except the custom resource definitions, the mirror policy and volume claims.'),
      extraObjects: objects('Additional objects of the release. Templates in them are rendered.'),
      clusterDomain: text("The cluster's DNS domain.", 'cluster.local', { minLength: 1 }),
      image: image('The image of Taproot.', 'taproot', ''),
      imagePullSecrets: list('Pull secrets for all images.', section('One Secret.', { name: given('Its name.') }, ['name'])),
      baseUrl: text('URL that clients use for the API; also its token issuer. If empty: the URL of the Service.', '', optionalUrl),
      operators: list('Subjects that hold every capability everywhere, in addition to the service account `<release>-admin`.', operator),
      admin: section('The service account `<release>-admin`.', { enabled: flag('Create it, and make it an operator.', true) }),
      issuers: list("Token issuers that need more settings than their name. The cluster's own issuer is always configured.", issuer),
      config,
      extraVolumes: list('Additional volumes of the API, the registry host and the controller, as in a pod.', { type: 'object' }),
      extraVolumeMounts: list('Mounts of `extraVolumes`, as in a container.', { type: 'object' }),
      encryption: section('Encryption of secrets in the store.', { existingSecret: existing('`key`: 32 bytes, as base64 or hex text') }),
      kubernetes,
      api: section('The API server.', {
        ...replicated(60),
        ...draining(),
        ...autoscaling(),
        ...endpoints({
          port: servicePort('Port of HTTP and gRPC.', 80),
          grpcPort: servicePort('Port for gRPC only, for proxies that need one port per protocol.', 50_051),
          nodePort: nodePort('HTTP and gRPC'),
          grpcNodePort: nodePort('gRPC only'),
        }),
        ...grpcEndpoints(),
        ...scheduling({ cpu: '200m', memory: '256Mi', memoryLimit: '2Gi' }),
      }),
      registry: section('The registry host.', {
        enabled: flag('Install it.', true),
        host: text('Host name that clients use, with the port if it is not the default. If empty: the host name of the Service.', '', {
          pattern: '^[^/?#@\\s]*$',
        }),
        ...replicated(120),
        ...draining(),
        ...autoscaling(),
        ...endpoints({ port: servicePort('Port.', 80), nodePort: nodePort('the registry host') }),
        ...scheduling({ cpu: '100m', memory: '512Mi', memoryLimit: '1Gi' }),
      }),
      controller: section('The controller of Kubernetes objects.', {
        enabled: flag('Install it.', true),
        ...replicated(30),
        ...scheduling({ cpu: '100m', memory: '192Mi', memoryLimit: '1Gi' }),
      }),
      etcd,
      upstream,
      initSecrets: section('The Job that creates missing Secrets and renews certificates before they expire.', {
        enabled: flag('Run it. If false, set every `existingSecret` and TLS Secret yourself.', true),
        ...scheduling({ cpu: '50m', memory: '128Mi', memoryLimit: '512Mi' }),
      }),
      tests: section('The pods of `helm test`.', scheduling({ cpu: '50m', memory: '128Mi', memoryLimit: '512Mi' })),
      crds: section('Custom resource definitions. Helm keeps them when you uninstall the release.', {
        enabled: flag('Install and upgrade them with the release.', true),
      }),
      rbac: section('Roles and bindings.', {
        create: flag('Create them.', true),
        aggregate: flag(
          'Extend the cluster roles `view`, `edit` and `admin` to the objects of taproot.dev. Grants still limit what these objects can do.',
          false,
        ),
      }),
      networkPolicy,
      monitoring,
      pods,
    }),
  }
}

/** Keys of Taproot's configuration that the chart sets from other values. */
export const ownedKeys = [
  'baseUrl',
  'dataDir',
  'listen',
  'api',
  'ops',
  'registry.port',
  'registry.host',
  'registry.tls',
  'registry.upstream',
  'store',
  'bootstrap',
  'encryption',
  'issuers',
  'kubernetes',
  'stop',
]
