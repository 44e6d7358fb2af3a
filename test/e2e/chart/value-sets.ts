import type { Values } from './helm.ts'

const gateway = { name: 'public', namespace: 'gateways' }

/** All secrets of the bundles are provided by the user. */
const ownSecrets = {
  encryption: { existingSecret: 'my-encryption' },
  etcd: { tls: { serverSecret: 'my-etcd-server', clientSecret: 'my-etcd-client', peerCommonName: 'member' } },
  upstream: { existingSecret: 'my-upstream', tlsSecret: 'my-upstream-tls' },
} satisfies Values

const externalStore = {
  enabled: false,
  external: {
    endpoints: ['https://etcd-0.example.com:2379', 'https://etcd-1.example.com:2379', 'https://etcd-2.example.com:2379'],
    prefix: '/platforms/one',
    tlsSecret: 'etcd-access',
    clientCertificate: false,
    username: 'taproot',
    passwordSecret: 'etcd-access',
  },
}

const externalUpstream = {
  enabled: false,
  external: {
    url: 'https://harbor.example.com',
    prefix: 'taproot',
    username: 'robot$taproot',
    passwordSecret: 'harbor',
    caSecret: 'harbor-ca',
    redirects: 'pass',
  },
}

const placement = {
  podAnnotations: { 'example.com/team': 'platform' },
  podLabels: { 'example.com/cost': 'shared' },
  nodeSelector: { 'kubernetes.io/os': 'linux' },
  tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'platform', effect: 'NoSchedule' }],
  affinity: {
    nodeAffinity: {
      preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, preference: { matchExpressions: [{ key: 'disk', operator: 'In', values: ['ssd'] }] } }],
    },
  },
  topologySpreadConstraints: [{ maxSkew: 2, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'DoNotSchedule' }],
  priorityClassName: 'system-cluster-critical',
  resources: { requests: { cpu: '1', memory: '1Gi' }, limits: { memory: '1Gi' } },
}

/** A container that the strictest Pod Security Standard admits. */
const sidecar = {
  name: 'sidecar',
  image: 'example.com/sidecar:1',
  resources: { requests: { memory: '16Mi' } },
  securityContext: { readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
}

/** Commonly used values, for each workload. */
const daily = {
  annotations: { 'example.com/team': 'platform' },
  labels: { 'example.com/tier': 'one' },
  serviceAccount: { annotations: { 'eks.amazonaws.com/role-arn': 'arn:aws:iam::123456789012:role/taproot' }, labels: { 'example.com/cloud': 'yes' } },
  probes: { startup: { failureThreshold: 300 }, liveness: { initialDelaySeconds: 5 }, readiness: { periodSeconds: 7 } },
  envFrom: [{ configMapRef: { name: 'proxy', optional: true } }],
  extraVolumes: [{ name: 'cache', emptyDir: {} }],
  extraVolumeMounts: [{ name: 'cache', mountPath: '/var/cache/own' }],
  initContainers: [{ ...sidecar, name: 'wait' }],
  extraContainers: [sidecar],
  hostAliases: [{ ip: '10.0.0.1', hostnames: ['login.internal'] }],
  dnsPolicy: 'ClusterFirst',
  dnsConfig: { options: [{ name: 'ndots', value: '2' }] },
  containerSecurityContext: { runAsGroup: 3000 },
}

/** Sets of values. Each is rendered, and accepted by a real API server. */
export const valueSets = {
  'as it is, for trying out': {},
  'production: stores of your own behind an Ingress': {
    baseUrl: 'https://platform.example.com',
    operators: [{ issuer: 'https://login.example.com', subject: 'ann' }],
    admin: { enabled: false },
    image: { repository: 'registry.example.com/platform/taproot', digest: `sha256:${'0123456789abcdef'.repeat(4)}` },
    imagePullSecrets: [{ name: 'pull' }],
    encryption: { existingSecret: 'my-encryption' },
    etcd: externalStore,
    upstream: externalUpstream,
    api: {
      replicas: 3,
      ingress: { enabled: true, className: 'nginx', tlsSecret: 'platform-tls', annotations: { 'nginx.ingress.kubernetes.io/proxy-body-size': '1m' } },
      grpcIngress: { enabled: true, className: 'nginx', hosts: ['grpc.example.com'], tlsSecret: 'grpc-tls' },
    },
    registry: { replicas: 3, host: 'registry.example.com', ingress: { enabled: true, className: 'nginx', tlsSecret: 'registry-tls' } },
    controller: { replicas: 2 },
    worker: { replicas: 2, catalogues: { size: '50Gi', storageClassName: 'fast' } },
  },
  'a Gateway for both hosts': {
    baseUrl: 'https://platform.example.com',
    api: {
      httpRoute: { enabled: true, parentRefs: [{ ...gateway, sectionName: 'https' }] },
      grpcRoute: { enabled: true, parentRefs: [{ ...gateway, sectionName: 'grpc' }], hosts: ['platform.example.com'] },
    },
    registry: { host: 'registry.example.com', httpRoute: { enabled: true, parentRefs: [gateway] } },
  },
  'three members, TLS in the pods': {
    etcd: { replicas: 3, quotaBackendBytes: 2_147_483_648, persistence: { storageClass: 'fast', size: '20Gi' } },
    upstream: { persistence: { storageClass: 'large', size: '1Ti' } },
    api: { replicas: 3, tls: { existingSecret: 'api-tls' }, service: { port: 443, type: 'LoadBalancer', annotations: { 'example.com/lb': 'internal' } } },
    registry: { replicas: 2, tls: { existingSecret: 'registry-tls' }, service: { port: 8443, type: 'LoadBalancer' } },
  },
  'watched by Prometheus': {
    monitoring: {
      serviceMonitor: { enabled: true, interval: '15s', labels: { release: 'prometheus' } },
      prometheusRule: { enabled: true, labels: { release: 'prometheus' } },
      dashboard: { enabled: true, annotations: { grafana_folder: 'Platform' } },
    },
    networkPolicy: {
      clients: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'ingress' } } }],
      monitoring: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } } }],
    },
  },
  'all secrets are your own, nothing is made': { ...ownSecrets, initSecrets: { enabled: false } },
  'the API alone, without images and objects': {
    registry: { enabled: false },
    controller: { enabled: false },
    worker: { enabled: false },
    upstream: { enabled: false },
  },
  'nothing is kept, ports on the nodes': {
    etcd: { persistence: { enabled: false } },
    upstream: { persistence: { enabled: false } },
    networkPolicy: { enabled: false },
    api: { service: { type: 'NodePort' }, drainSeconds: 0 },
    registry: { service: { type: 'NodePort', port: 5000 }, host: 'localhost:5000' },
  },
  'placed with care': {
    commonLabels: { 'example.com/owner': 'platform' },
    pods: { labels: { 'example.com/all': 'yes' }, annotations: { 'example.com/all': 'yes' }, securityContext: { runAsUser: 2000 } },
    api: {
      ...placement,
      replicas: 2,
      extraEnv: [
        { name: 'NODE_OPTIONS', value: '--max-old-space-size=1024' },
        { name: 'HTTPS_PROXY', value: 'http://proxy.example.com' },
      ],
    },
    registry: placement,
    controller: placement,
    worker: placement,
    etcd: placement,
    upstream: placement,
    initSecrets: placement,
    extraVolumes: [{ name: 'authorities', configMap: { name: 'authorities' } }],
    extraVolumeMounts: [{ name: 'authorities', mountPath: '/etc/taproot/authorities', readOnly: true }],
    issuers: [{ issuer: 'https://login.internal', caFile: '/etc/taproot/authorities/ca.crt', allowPrivate: true }],
  },
  'other names, all of the configuration': {
    fullnameOverride: 'registry-platform',
    clusterDomain: 'corp.example',
    crds: { enabled: false },
    rbac: { create: false },
    config: {
      reads: 'bounded',
      registry: { scheme: 'https', publicOrganization: 'public', history: { maxAgeDays: 365 }, collect: { graceHours: 24 } },
      rateLimit: { requestsPerSecond: 500, burst: 1000 },
      selfService: { rootGroups: true },
      compat: { namespaces: [] },
      terms: [{ id: 'usage', label: 'Terms of use', url: 'https://example.com/terms' }],
      log: { level: 'debug' },
    },
  },
  'a cloud, with pull secrets and mirrors elsewhere': {
    rbac: { aggregate: true },
    kubernetes: {
      issuer: 'https://oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF',
      clusterId: 'production-1',
      mirror: { namespace: 'mirrors', rootGroups: ['acme'], limit: 500 },
      pullSecrets: { enabled: true },
    },
  },
  'what teams set every day': {
    nameOverride: 'registry-platform',
    commonAnnotations: { 'example.com/contact': 'platform@example.com' },
    global: { imageRegistry: 'mirror.example.com:5000/all' },
    api: {
      ...daily,
      autoscaling: { enabled: true, maxReplicas: 9, targetMemoryUtilizationPercentage: 70, behavior: { scaleDown: { stabilizationWindowSeconds: 600 } } },
      podDisruptionBudget: { minAvailable: '50%' },
      strategy: { rollingUpdate: { maxSurge: '50%' } },
      service: {
        type: 'LoadBalancer',
        nodePort: 30_080,
        grpcNodePort: 30_081,
        loadBalancerClass: 'example.com/internal',
        loadBalancerSourceRanges: ['10.0.0.0/8'],
        externalTrafficPolicy: 'Local',
        labels: { 'example.com/lb': 'internal' },
      },
    },
    registry: { ...daily, replicas: 3, podDisruptionBudget: { maxUnavailable: 2 }, service: { type: 'NodePort', nodePort: 30_500 } },
    controller: { ...daily, replicas: 2, strategy: { type: 'Recreate' }, podDisruptionBudget: { enabled: false } },
    worker: { ...daily },
    etcd: { ...daily, persistence: { existingClaim: 'etcd-data' } },
    upstream: { ...daily, image: { registry: 'other.example.com' }, persistence: { existingClaim: 'upstream-data' } },
    tests: { ...placement, dnsConfig: daily.dnsConfig },
    monitoring: { serviceMonitor: { enabled: true, namespace: 'mirrors' }, prometheusRule: { enabled: true, namespace: 'mirrors' } },
    extraObjects: [
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'own', namespace: '{{ .Release.Namespace }}' }, data: { release: '{{ .Release.Name }}' } },
    ],
  },
  'no mirrors': { kubernetes: { mirror: { enabled: false, policy: false } } },
} as const satisfies Readonly<Record<string, Values>>
