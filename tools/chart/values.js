// Every value of the chart: one row says its type, default and meaning. values.yaml, values.schema.json and the table in the chart's README follow from it.
import { count, flag, given, list, object, objects, section, text, texts, word } from './schema-node.js'
import {
  additions,
  autoscaling,
  disruption,
  doors,
  draining,
  grpcDoors,
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
const existing = (holds, where = 'the one that is made') => text(`Secret that you made, with ${holds}; ${where} if empty.`, '', name)

const issuer = section(
  'One issuer.',
  {
    issuer: given("The issuer's name, exactly as in its tokens.", httpUrl),
    jwksUri: given('Where its keys are, if not where its discovery document says.', httpUrl),
    caFile: given('File in the pods: the authority that signed its certificate. `extraVolumes` brings it.'),
    tokenFile: given('File in the pods with a bearer token that is sent to it.'),
    allowPrivate: { type: 'boolean', description: 'It may have a private or loopback address, and may use http.' },
  },
  ['issuer'],
)
const operator = section(
  'One operator.',
  { issuer: given("The token's issuer; that of the cluster's service account tokens if absent.", httpUrl), subject: given("The token's subject.") },
  ['subject'],
)

const kubernetes = section('The cluster, as Taproot knows it.', {
  issuer: text("Issuer of the cluster's service account tokens, exactly as in them. Taproot reads it from a token of its own pods if empty.", '', optionalIssuer),
  jwksUri: text(
    "Where the keys of these tokens are. The API server of every cluster has them, also where its issuer is the cloud provider's.",
    'https://kubernetes.default.svc/openid/v1/jwks',
    httpUrl,
  ),
  clusterId: text('Name of this cluster in `managedBy`; the uid of the namespace kube-system if empty.', '', {
    pattern: '^([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?)?$',
  }),
  mirror: section('Read-only objects of what the API owns.', {
    enabled: flag('Whether there are any.', true),
    namespace: text("Where they are; the release's namespace if empty. It must be there.", '', name),
    rootGroups: list('Root groups, by uid or name, that are mirrored; all if empty.', { type: 'string', minLength: 1 }),
    limit: count('Objects at most.', 10_000, { minimum: 1 }),
    policy: flag(
      'Whether a ValidatingAdmissionPolicy keeps everybody but the controller from changing them. Without it whoever may write objects can change mirrors, take their label off, or put it on objects of their own.',
      true,
    ),
  }),
  pullSecrets: section('Pull secrets for service accounts that ask for them by annotation.', {
    enabled: flag('Whether the controller keeps any. It needs to write Secrets in all namespaces for that.', false),
  }),
})

const etcd = section('The store.', {
  enabled: flag('The bundled etcd: for trying out, and for small installations that can be without it for a moment. Switch it off for one of your own.', true),
  replicas: { type: 'integer', description: 'Members. Choose at installation: it is not changed later.', enum: [1, 3], default: 1 },
  image: image('Its image: any that has the program `etcd` 3.6 on its path.', 'gcr.io/etcd-development/etcd', 'v3.6.8'),
  quotaBackendBytes: count('Size of the database at which etcd stops taking writes.', 8_589_934_592, { minimum: 67_108_864, maximum: 8_589_934_592 }),
  persistence: persistence('10Gi', 'A PersistentVolumeClaim that you made, in place of one that is made; with one member only.'),
  tls: section('Certificates of the bundled etcd.', {
    serverSecret: existing('`ca.crt`, `tls.crt`, `tls.key` of the members'),
    peerCommonName: text('Common name of the certificate in `serverSecret`: only who has it is a member.', 'etcd', { minLength: 1 }),
    clientSecret: existing("`ca.crt`, `tls.crt`, `tls.key` of Taproot's own certificate"),
  }),
  ...disruption(),
  ...additions(),
  ...scheduling({ cpu: '100m', memory: '128Mi', memoryLimit: '2Gi' }),
  external: section('An etcd of your own, where `etcd.enabled` is false.', {
    endpoints: list('The client URLs of all members.', { type: 'string', ...httpUrl }),
    prefix: text('What every key starts with. Two installations on one cluster need different prefixes.', '/taproot', { pattern: '^/[\\x21-\\x7e]*[^/\\s]$' }),
    tlsSecret: existing('`ca.crt` and, for client certificates, `tls.crt` and `tls.key`', "the system's authorities and no client certificate"),
    clientCertificate: flag('Whether `tlsSecret` has a client certificate.', true),
    username: text('User, where etcd has authentication on.'),
    passwordSecret: existing("`password`: that user's", 'no password'),
  }),
})

const upstream = section("What keeps the images' bytes behind the registry host. Only Taproot talks to it.", {
  enabled: flag('The bundled registry, CNCF distribution on one volume: for trying out. Switch it off for one of your own.', true),
  image: image('Its image: any that has the program `registry` 3.1 on its path.', 'docker.io/library/registry', '3.1.2'),
  persistence: persistence('50Gi'),
  existingSecret: existing('`password`, `htpasswd` (user `taproot`, bcrypt) and `http-secret`'),
  tlsSecret: existing('`ca.crt`, `tls.crt`, `tls.key` of the bundled registry'),
  ...additions(),
  ...scheduling({ cpu: '50m', memory: '64Mi', memoryLimit: '512Mi' }),
  external: section('A registry of your own, where `upstream.enabled` is false.', {
    url: text('Where it is. Without it the API runs without a registry, and the registry host must be switched off.', '', optionalUrl),
    prefix: text('First part of every repository name there.'),
    username: text('User there.'),
    passwordSecret: existing("`password`: that user's", 'no password'),
    caSecret: existing('`ca.crt`: the authority that signed its certificate', "the system's authorities"),
    redirects: word(
      'Where it redirects blobs to its storage: `follow` reads them from there; `pass` sends clients there, which must reach it.',
      ['follow', 'pass'],
      'follow',
    ),
  }),
})

const networkPolicy = section('NetworkPolicies. etcd and the bundled registry are reached by Taproot only.', {
  enabled: flag('Whether there are any.', true),
  clients: list('Who may reach the API and the registry host, as in `ingress.from`; everybody if empty.', { type: 'object' }),
  monitoring: list('Who may reach metrics, as in `ingress.from`; everybody in the cluster if empty.', { type: 'object' }, [{ namespaceSelector: {} }]),
})

const monitoring = section('Prometheus operator.', {
  serviceMonitor: section('ServiceMonitor.', {
    enabled: flag('Whether there is one.', false),
    namespace: text("Its namespace; the release's if empty.", '', name),
    interval: text('How often is scraped.', '30s', { minLength: 1 }),
    labels: texts('Labels that your Prometheus selects by.'),
  }),
  prometheusRule: section('Alerts.', {
    enabled: flag('Whether there are any.', false),
    namespace: text("Their namespace; the release's if empty.", '', name),
    labels: texts('Labels that your Prometheus selects by.'),
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
        ...object('What an umbrella chart passes to all charts. `imageRegistry`: the registry of all images, where `image.registry` names none.'),
        properties: { imageRegistry: text('The registry of all images.') },
      },
      fullnameOverride: text("Starts all names; the release's name if empty.", '', { pattern: '^([a-z]([-a-z0-9]{0,38}[a-z0-9])?)?$' }),
      nameOverride: text('The label `app.kubernetes.io/name` of all objects. Choose at installation: it is not changed later.', 'taproot', {
        pattern: '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$',
      }),
      commonLabels: texts('Labels of all objects.'),
      commonAnnotations: texts('Annotations of all objects but the definitions, the policy for mirrors and the claims of volumes.'),
      extraObjects: objects('More objects of the release; templates in them are filled in.'),
      clusterDomain: text("The cluster's DNS domain.", 'cluster.local', { minLength: 1 }),
      image: image('The image of Taproot.', 'taproot', ''),
      imagePullSecrets: list('Secrets to pull all images with.', section('One Secret.', { name: given('Its name.') }, ['name'])),
      baseUrl: text('The URL under which clients reach the API; also the name of its token issuer. That of the Service if empty.', '', optionalUrl),
      operators: list('Who holds every capability everywhere, beside the service account `<release>-admin`.', operator),
      admin: section('The service account `<release>-admin`.', { enabled: flag('Whether there is one, and whether it is an operator.', true) }),
      issuers: list("Token issuers that need more than their name, beside this cluster's.", issuer),
      config,
      extraVolumes: list('More volumes of the API, registry host and controller, as in a pod.', { type: 'object' }),
      extraVolumeMounts: list('Where they are mounted.', { type: 'object' }),
      encryption: section('Secrets at rest.', { existingSecret: existing('`key`: 32 bytes, as base64 or hex text') }),
      kubernetes,
      api: section('The API server.', {
        ...replicated(60),
        ...draining(),
        ...autoscaling(),
        ...doors({
          port: servicePort('Port of HTTP and gRPC.', 80),
          grpcPort: servicePort('Port of gRPC alone, for proxies that must know.', 50_051),
          nodePort: nodePort('HTTP and gRPC'),
          grpcNodePort: nodePort('gRPC alone'),
        }),
        ...grpcDoors(),
        ...scheduling({ cpu: '200m', memory: '256Mi', memoryLimit: '2Gi' }),
      }),
      registry: section('The registry host.', {
        enabled: flag('Whether there is one.', true),
        host: text('The name, and port if not the default one, under which clients reach it. That of the Service if empty.', '', { pattern: '^[^/?#@\\s]*$' }),
        ...replicated(120),
        ...draining(),
        ...autoscaling(),
        ...doors({ port: servicePort('Port.', 80), nodePort: nodePort('it') }),
        ...scheduling({ cpu: '100m', memory: '512Mi', memoryLimit: '1Gi' }),
      }),
      controller: section('The controller of Kubernetes objects.', {
        enabled: flag('Whether there is one.', true),
        ...replicated(30),
        ...scheduling({ cpu: '100m', memory: '192Mi', memoryLimit: '1Gi' }),
      }),
      etcd,
      upstream,
      initSecrets: section('The Job that makes the Secrets which are absent and renews certificates that near their end.', {
        enabled: flag('Whether there is one. Without it name a Secret of your own everywhere.', true),
        ...scheduling({ cpu: '50m', memory: '128Mi', memoryLimit: '512Mi' }),
      }),
      tests: section('The pods of `helm test`.', scheduling({ cpu: '50m', memory: '128Mi', memoryLimit: '512Mi' })),
      crds: section('Custom resource definitions. They are kept when the release goes.', {
        enabled: flag('Whether they are installed and upgraded with the release.', true),
      }),
      rbac: section('Roles and bindings.', {
        create: flag('Whether they are made.', true),
        aggregate: flag(
          "Whether the cluster's roles `view`, `edit` and `admin` are about the objects of taproot.dev too. What an object may do is up to the grants, all the same.",
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
