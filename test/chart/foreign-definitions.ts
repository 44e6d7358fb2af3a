/** Kinds of others that the chart makes objects of where it is told to. Their own projects define what is in them; here it is enough that they are there. */
const foreignKinds = [
  { group: 'gateway.networking.k8s.io', version: 'v1', kind: 'HTTPRoute' },
  { group: 'gateway.networking.k8s.io', version: 'v1', kind: 'GRPCRoute' },
  { group: 'monitoring.coreos.com', version: 'v1', kind: 'ServiceMonitor' },
  { group: 'monitoring.coreos.com', version: 'v1', kind: 'PrometheusRule' },
] as const

/** Definitions of these kinds as one manifest, for `kubectl apply`. */
export function foreignDefinitions(): string {
  const items = foreignKinds.map(({ group, version, kind }) => {
    const singular = kind.toLowerCase()
    const schema = { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } }
    return {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: {
        name: `${singular}s.${group}`,
        // The API server protects the group of the Gateway API: only what its project approved may be in it.
        annotations: { 'api-approved.kubernetes.io': 'unapproved, for tests' },
      },
      spec: {
        group,
        scope: 'Namespaced',
        names: { kind, singular, plural: `${singular}s` },
        versions: [{ name: version, served: true, storage: true, schema }],
      },
    }
  })
  return JSON.stringify({ apiVersion: 'v1', kind: 'List', items })
}
