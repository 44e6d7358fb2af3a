// Values that several workloads have in common.
import { count, flag, list, object, objects, section, share, text, texts, word } from './schema-node.js'

const quantity = '^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'

/** Where an image is; a digest takes precedence over a tag. */
export function image(what, repository, tag) {
  return section(what, {
    registry: text('Registry that replaces the one in `repository`. If empty: `global.imageRegistry`.', '', { pattern: '^([^/\\s]+(/[^/\\s]+)*)?$' }),
    repository: text('Repository, with or without a registry.', repository, { minLength: 1 }),
    tag: text(tag === '' ? "Tag. If empty: the chart's appVersion." : 'Tag.', tag),
    digest: text('Digest, `sha256:...`. It takes precedence over the tag.', '', { pattern: '^(sha256:[0-9a-f]{64})?$' }),
    pullPolicy: word('Pull policy.', ['Always', 'IfNotPresent', 'Never'], 'IfNotPresent'),
  })
}

/** Scheduling and resources of a workload's pods. */
export function scheduling({ cpu, memory, memoryLimit }) {
  return {
    resources: object('Resource requests and limits.', { requests: { cpu, memory }, limits: { memory: memoryLimit } }),
    podAnnotations: texts('Annotations of the pods.'),
    podLabels: texts('Labels of the pods.'),
    nodeSelector: texts('Node labels to require.'),
    tolerations: objects('Tolerations.'),
    affinity: object('Affinity rules.'),
    topologySpreadConstraints: objects(
      'Topology spread constraints. If empty, replicas are spread over nodes and zones where possible. The chart adds a missing `labelSelector`.',
    ),
    priorityClassName: text('Priority class.'),
    hostAliases: objects('Additional entries of `/etc/hosts`, as in a pod.'),
    dnsPolicy: word('DNS policy. If empty: the default of Kubernetes.', ['', 'ClusterFirst', 'ClusterFirstWithHostNet', 'Default', 'None'], ''),
    dnsConfig: object('DNS settings, as in a pod.'),
    containerSecurityContext: object('Security context of the containers. It is merged over `pods.containerSecurityContext`.'),
  }
}

/** Additions to a workload and its pods. */
export function additions() {
  const times = (which) => object(`Fields of the ${which} probe, such as \`periodSeconds\`. They are merged over those of the chart.`)
  return {
    annotations: texts('Annotations of the workload.'),
    labels: texts('Labels of the workload.'),
    serviceAccount: section('Its service account.', { annotations: texts('Annotations, for example to bind a cloud role.'), labels: texts('Labels.') }),
    probes: section('Probe settings.', { startup: times('startup'), liveness: times('liveness'), readiness: times('readiness') }),
    extraEnv: objects('Additional environment variables, as in a container.'),
    envFrom: objects('Additional environment variables from ConfigMaps and Secrets, as in a container.'),
    extraVolumes: objects('Additional volumes, as in a pod.'),
    extraVolumeMounts: objects('Mounts of `extraVolumes`, as in a container.'),
    initContainers: objects('Init containers, as in a pod.'),
    extraContainers: objects('Sidecar containers, as in a pod.'),
  }
}

/** Drains evict one pod at a time. */
export function disruption() {
  return {
    podDisruptionBudget: section('PodDisruptionBudget, for more than one pod.', {
      enabled: flag('Create it.', true),
      maxUnavailable: share('Maximum number of unavailable pods.', 1),
      minAvailable: share('Minimum number of available pods. It takes precedence over `maxUnavailable`.'),
    }),
  }
}

/** Autoscaling by load. */
export function autoscaling() {
  const percent = (what, defaultValue) => count(`Target for the average ${what} use, in percent of the request. 0: no target.`, defaultValue)
  return {
    autoscaling: section('HorizontalPodAutoscaler. If enabled, `replicas` is ignored.', {
      enabled: flag('Create it.', false),
      minReplicas: count('Minimum number of pods.', 2, { minimum: 1, maximum: 100 }),
      maxReplicas: count('Maximum number of pods.', 5, { minimum: 1, maximum: 100 }),
      targetCPUUtilizationPercentage: percent('CPU', 80),
      targetMemoryUtilizationPercentage: percent('memory', 0),
      metrics: objects('Additional metrics, as in `spec.metrics`.'),
      behavior: object('Scaling behavior, as in `spec.behavior`.'),
    }),
  }
}

/** Number of pods of a role, and how they stop. */
export function replicated(graceSeconds) {
  return {
    replicas: count('Number of pods. With more than one, the chart creates a PodDisruptionBudget.', 1, { maximum: 100 }),
    terminationGracePeriodSeconds: count('Time in seconds that a pod has to stop, including `drainSeconds` where there is one.', graceSeconds, {
      minimum: 5,
      maximum: 7200,
    }),
    strategy: object('Deployment strategy. If empty: a new pod gets ready before an old one stops.'),
    ...disruption(),
    ...additions(),
  }
}

/** How a pod that serves requests stops. */
export function draining() {
  return { drainSeconds: count('Time in seconds that a stopping pod still accepts requests, until all proxies know that it stops.', 10, { maximum: 600 }) }
}

const hosts = list('Host names. If empty: the one that clients use.', { type: 'string', minLength: 1 })
const parentRefs = objects('Gateways and listeners to attach to.')

/** A port of a Service. */
export function servicePort(description, defaultValue) {
  return count(description, defaultValue, { minimum: 1, maximum: 65_535 })
}

/** A port on every node, for the types of Services that have one. */
export function nodePort(of) {
  return count(`Node port for ${of}. 0: Kubernetes chooses.`, 0, { maximum: 65_535 })
}

/** How clients reach a role: Service with these ports, Ingress, Gateway API routes. */
export function endpoints(ports) {
  const routes = {
    ingress: section('Ingress for HTTP.', {
      enabled: flag('Create it.', false),
      className: text('Ingress class.'),
      annotations: texts('Annotations.'),
      hosts,
      tlsSecret: text('Secret with the certificate of these hosts. If empty, the Ingress has no TLS.'),
    }),
    httpRoute: section('HTTPRoute (Gateway API) for HTTP.', {
      enabled: flag('Create it.', false),
      annotations: texts('Annotations.'),
      parentRefs,
      hosts,
    }),
  }
  return {
    service: section('Service.', {
      type: word('Type of the Service.', ['ClusterIP', 'NodePort', 'LoadBalancer'], 'ClusterIP'),
      ...ports,
      annotations: texts('Annotations.'),
      labels: texts('Labels.'),
      loadBalancerClass: text('Class of the load balancer. If empty: the default of the cluster.'),
      loadBalancerSourceRanges: list('Networks that may connect to the load balancer. If empty: all.', { type: 'string', minLength: 1 }),
      externalTrafficPolicy: word(
        'External traffic policy. `Local` preserves client addresses. If empty: the default of Kubernetes.',
        ['', 'Cluster', 'Local'],
        '',
      ),
    }),
    tls: section('TLS in the pods. If empty, terminate TLS at your proxy.', {
      existingSecret: text('Secret with `tls.crt` and `tls.key`. Add `ca.crt` for `helm test` if the CA is not public.'),
    }),
    ...routes,
  }
}

/** Ingress and route for gRPC. They need their own host or listener: routes of one host are either HTTP or gRPC, and an Ingress uses one protocol for its Service. */
export function grpcEndpoints() {
  const ownHosts = list('Host names. They must differ from those for HTTP, except on another listener.', { type: 'string', minLength: 1 })
  return {
    grpcIngress: section('Ingress for gRPC, on its own host.', {
      enabled: flag('Create it.', false),
      className: text('Ingress class.'),
      annotations: texts('Annotations. Most ingress controllers need one that selects gRPC.', { 'nginx.ingress.kubernetes.io/backend-protocol': 'GRPC' }),
      hosts: ownHosts,
      tlsSecret: text('Secret with the certificate of these hosts.'),
    }),
    grpcRoute: section('GRPCRoute (Gateway API), on its own host or listener.', {
      enabled: flag('Create it.', false),
      annotations: texts('Annotations.'),
      parentRefs,
      hosts: ownHosts,
    }),
  }
}

/** A volume that remains after its pod and the release. */
export function persistence(size, existingClaim = 'Existing PersistentVolumeClaim to use.') {
  return section('PersistentVolumeClaim of each pod. Helm keeps it when you uninstall the release.', {
    enabled: flag('Create it. If false, all data is lost with the pod.', true),
    existingClaim: text(existingClaim),
    storageClass: text('Storage class. If empty: the default of the cluster.'),
    size: text('Size of the volume.', size, { pattern: quantity }),
  })
}
