// Values that several workloads have in common.
import { count, flag, list, object, objects, section, share, text, texts, word } from './schema-node.js'

const quantity = '^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'

/** Where an image is; a digest wins over a tag. */
export function image(what, repository, tag) {
  return section(what, {
    registry: text('Registry, in place of the one in `repository`; `global.imageRegistry` if empty.', '', { pattern: '^([^/\\s]+(/[^/\\s]+)*)?$' }),
    repository: text('Name, with or without a registry.', repository, { minLength: 1 }),
    tag: text(tag === '' ? "Tag; the chart's appVersion if empty." : 'Tag.', tag),
    digest: text('Digest, `sha256:...`; wins over the tag.', '', { pattern: '^(sha256:[0-9a-f]{64})?$' }),
    pullPolicy: word('When it is pulled.', ['Always', 'IfNotPresent', 'Never'], 'IfNotPresent'),
  })
}

/** Where a workload's pods run and what they get. */
export function scheduling({ cpu, memory, memoryLimit }) {
  return {
    resources: object('Requests and limits.', { requests: { cpu, memory }, limits: { memory: memoryLimit } }),
    podAnnotations: texts('Annotations of the pods.'),
    podLabels: texts('Labels of the pods.'),
    nodeSelector: texts('Labels that nodes must have.'),
    tolerations: objects('Taints that are tolerated.'),
    affinity: object('Affinity rules.'),
    topologySpreadConstraints: objects(
      "In place of the chart's own, which spread replicas over nodes and zones where they can. An absent `labelSelector` is filled in.",
    ),
    priorityClassName: text('Priority class.'),
    hostAliases: objects('Entries of `/etc/hosts`, as in a pod.'),
    dnsPolicy: word('DNS policy; that of Kubernetes if empty.', ['', 'ClusterFirst', 'ClusterFirstWithHostNet', 'Default', 'None'], ''),
    dnsConfig: object('DNS settings, as in a pod.'),
    containerSecurityContext: object('Security context of the containers, over `pods.containerSecurityContext`.'),
  }
}

/** What teams add to a workload and to its pods. */
export function additions() {
  const times = (which) => object(`Fields of the ${which} probe, such as \`periodSeconds\`, over those of the chart.`)
  return {
    annotations: texts('Annotations of the workload.'),
    labels: texts('Labels of the workload.'),
    serviceAccount: section('Its service account.', { annotations: texts('Annotations, as for roles of a cloud.'), labels: texts('Labels.') }),
    probes: section('Times of the probes.', { startup: times('startup'), liveness: times('liveness'), readiness: times('readiness') }),
    extraEnv: objects('More environment variables, as in a pod.'),
    envFrom: objects('More environment variables, from ConfigMaps and Secrets, as in a pod.'),
    extraVolumes: objects('More volumes, as in a pod.'),
    extraVolumeMounts: objects('Where they are mounted.'),
    initContainers: objects('Containers that run before, as in a pod.'),
    extraContainers: objects('Containers that run beside it, as in a pod.'),
  }
}

/** Nodes are emptied one pod at a time. */
export function disruption() {
  return {
    podDisruptionBudget: section('PodDisruptionBudget, where there is more than one pod.', {
      enabled: flag('Whether there is one.', true),
      maxUnavailable: share('Pods that may be away.', 1),
      minAvailable: share('Pods that must be there; wins over `maxUnavailable`.'),
    }),
  }
}

/** How many pods there are by load. */
export function autoscaling() {
  const percent = (what, defaultValue) => count(`Average use of ${what} in percent of what the pods request; 0 for none.`, defaultValue)
  return {
    autoscaling: section('HorizontalPodAutoscaler. It decides over `replicas`.', {
      enabled: flag('Whether there is one.', false),
      minReplicas: count('Pods at least.', 2, { minimum: 1, maximum: 100 }),
      maxReplicas: count('Pods at most.', 5, { minimum: 1, maximum: 100 }),
      targetCPUUtilizationPercentage: percent('processor time', 80),
      targetMemoryUtilizationPercentage: percent('memory', 0),
      metrics: objects('More metrics, as in `spec.metrics`.'),
      behavior: object('How fast it scales, as in `spec.behavior`.'),
    }),
  }
}

/** How many pods a role has, and how they end. */
export function replicated(graceSeconds) {
  return {
    replicas: count('Pods. More than one get a PodDisruptionBudget.', 1, { maximum: 100 }),
    terminationGracePeriodSeconds: count('How long a pod that is to go may take in all.', graceSeconds, { minimum: 5, maximum: 7200 }),
    strategy: object('Deployment strategy. If empty, a new pod is ready before an old one goes.'),
    ...disruption(),
    ...additions(),
  }
}

/** How a pod that serves requests ends. */
export function draining() {
  return { drainSeconds: count('How long a pod that is to go still takes new requests: until nothing sends it any.', 10, { maximum: 600 }) }
}

const hosts = list('Host names; by default that of the URL under which clients reach it.', { type: 'string', minLength: 1 })
const parentRefs = objects('Gateways (and their listeners) that it belongs to.')

/** A port of a Service. */
export function servicePort(description, defaultValue) {
  return count(description, defaultValue, { minimum: 1, maximum: 65_535 })
}

/** A port on every node, where the type of the Service has one. */
export function nodePort(of) {
  return count(`Port on the nodes for ${of}; 0: Kubernetes chooses.`, 0, { maximum: 65_535 })
}

/** What stands before a role: Service with these ports, Ingress, Gateway API routes. */
export function doors(ports) {
  const routes = {
    ingress: section('Ingress for HTTP.', {
      enabled: flag('Whether there is one.', false),
      className: text('Ingress class.'),
      annotations: texts('Annotations.'),
      hosts,
      tlsSecret: text('Secret with the certificate of these hosts. Without it the Ingress has no TLS.'),
    }),
    httpRoute: section('HTTPRoute (Gateway API) for HTTP.', {
      enabled: flag('Whether there is one.', false),
      annotations: texts('Annotations.'),
      parentRefs,
      hosts,
    }),
  }
  return {
    service: section('Service.', {
      type: word('Its type.', ['ClusterIP', 'NodePort', 'LoadBalancer'], 'ClusterIP'),
      ...ports,
      annotations: texts('Annotations.'),
      labels: texts('Labels.'),
      loadBalancerClass: text('Class of the load balancer; the default one of the cluster if empty.'),
      loadBalancerSourceRanges: list('Networks that may reach the load balancer; all if empty.', { type: 'string', minLength: 1 }),
      externalTrafficPolicy: word('`Local` keeps the addresses of clients; that of Kubernetes if empty.', ['', 'Cluster', 'Local'], ''),
    }),
    tls: section('TLS in the pods themselves. What stands before them ends TLS if this is empty.', {
      existingSecret: text('Secret with `tls.crt` and `tls.key`; where no public authority signed, also `ca.crt`, for `helm test`.'),
    }),
    ...routes,
  }
}

/** Doors for gRPC, which need a host or a listener of their own: routes of one host are either HTTP or gRPC, and an Ingress speaks one protocol to its Service. */
export function grpcDoors() {
  const ownHosts = list('Host names. They differ from those of HTTP, unless it is another listener.', { type: 'string', minLength: 1 })
  return {
    grpcIngress: section('Ingress for gRPC, on a host of its own.', {
      enabled: flag('Whether there is one.', false),
      className: text('Ingress class.'),
      annotations: texts('Annotations; most controllers need one that says GRPC.', { 'nginx.ingress.kubernetes.io/backend-protocol': 'GRPC' }),
      hosts: ownHosts,
      tlsSecret: text('Secret with the certificate of these hosts.'),
    }),
    grpcRoute: section('GRPCRoute (Gateway API), on a host or a listener of its own.', {
      enabled: flag('Whether there is one.', false),
      annotations: texts('Annotations.'),
      parentRefs,
      hosts: ownHosts,
    }),
  }
}

/** A volume that outlives its pod, and the release. */
export function persistence(size, existingClaim = 'A PersistentVolumeClaim that you made, in place of one that is made.') {
  return section('PersistentVolumeClaim of each pod. It is kept when the release goes.', {
    enabled: flag('Without it everything is lost with the pod.', true),
    existingClaim: text(existingClaim),
    storageClass: text('Storage class; the default one of the cluster if empty.'),
    size: text('Size.', size, { pattern: quantity }),
  })
}
