// Values that several workloads have in common.
import { count, flag, list, object, objects, section, text, texts, word } from './schema-node.js'

const quantity = '^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'

/** Where an image is; a digest wins over a tag. */
export function image(what, repository, tag) {
  return section(what, {
    repository: text('Registry and name.', repository, { minLength: 1 }),
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
  }
}

/** How many pods a role has, and how they end. */
export function replicated(graceSeconds) {
  return {
    replicas: count('Pods. More than one get a PodDisruptionBudget.', 1, { maximum: 100 }),
    terminationGracePeriodSeconds: count('How long a pod that is to go may take in all.', graceSeconds, { minimum: 5, maximum: 7200 }),
    extraEnv: objects('More environment variables, as in a pod.'),
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
export function persistence(size) {
  return section('PersistentVolumeClaim of each pod. It is kept when the release goes.', {
    enabled: flag('Without it everything is lost with the pod.', true),
    storageClass: text('Storage class; the default one of the cluster if empty.'),
    size: text('Size.', size, { pattern: quantity }),
  })
}
