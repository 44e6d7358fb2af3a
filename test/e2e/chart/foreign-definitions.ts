/** The schema of a definition. Under `--validate=strict` the API server refuses fields that it lacks. */
type Schema = Readonly<Record<string, unknown>>

const text = (pattern?: string): Schema => ({ type: 'string', minLength: 1, ...(pattern !== undefined && { pattern }) })
const texts: Schema = { type: 'object', additionalProperties: { type: 'string' } }
const listOf = (items: Schema): Schema => ({ type: 'array', items, minItems: 1 })
const object = (properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema => ({ type: 'object', properties, required })

const label = '[a-z0-9]([-a-z0-9]*[a-z0-9])?'
const name = text(`^${label}([.]${label})*$`)
const port: Schema = { type: 'integer', minimum: 1, maximum: 65_535 }
const duration = text('^([0-9]+(ms|s|m|h|d|w|y))+$')
const metricLabel = text('^[a-zA-Z_][a-zA-Z0-9_]*$')

/** The chart treats HTTPRoute and GRPCRoute alike: all requests of a host are routed to one Service, and a Service needs a port. */
const route = object({
  parentRefs: listOf(object({ name, namespace: name, sectionName: name, port }, ['name'])),
  hostnames: listOf(text(`^([*][.])?${label}([.]${label})*$`)),
  rules: listOf(object({ backendRefs: listOf(object({ name, port }, ['name', 'port'])) })),
})
const serviceMonitor = object(
  {
    selector: object({ matchLabels: texts }),
    namespaceSelector: object({ matchNames: listOf(name) }),
    endpoints: listOf(
      object({
        port: text(),
        interval: duration,
        relabelings: listOf(object({ sourceLabels: listOf(metricLabel), targetLabel: metricLabel })),
      }),
    ),
  },
  ['selector', 'endpoints'],
)
const rule = object({ alert: text(), expr: text(), for: duration, labels: texts, annotations: texts }, ['expr'])
const prometheusRule = object({ groups: listOf(object({ name: text(), rules: listOf(rule) }, ['name'])) })

/** Foreign kinds of which the chart can create objects. They have the fields that it sets, as their projects define them, and no others. */
const foreignKinds = [
  { group: 'gateway.networking.k8s.io', version: 'v1', kind: 'HTTPRoute', spec: route },
  { group: 'gateway.networking.k8s.io', version: 'v1', kind: 'GRPCRoute', spec: route },
  { group: 'monitoring.coreos.com', version: 'v1', kind: 'ServiceMonitor', spec: serviceMonitor },
  { group: 'monitoring.coreos.com', version: 'v1', kind: 'PrometheusRule', spec: prometheusRule },
] as const

/** Definitions of these kinds as one manifest, for `kubectl apply`. */
export function foreignDefinitions(): string {
  const items = foreignKinds.map(({ group, version, kind, spec }) => {
    const singular = kind.toLowerCase()
    const schema = { openAPIV3Schema: object({ spec }, ['spec']) }
    return {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: {
        name: `${singular}s.${group}`,
        // The API server protects the group of the Gateway API: it may contain only approved definitions.
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
