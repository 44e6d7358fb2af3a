import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { chartDirectory, helm, names, objectsOf, one, podSpecs, release, render, renderText, type Rendered } from './helm.ts'
import { valueSets } from './value-sets.ts'

const sets = Object.entries(valueSets)
/** Kubernetes kinds without a namespace. */
const clusterKinds = ['ClusterRole', 'ClusterRoleBinding', 'CustomResourceDefinition', 'ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']

/** Returns violations of the rules of a hardened namespace (Pod Security Standard "restricted") and of GitOps tools. */
function errorsOf({ name, spec }: { readonly name: string; readonly spec: Rendered['spec'] }): string[] {
  const { securityContext: pod, containers } = spec
  const faults = [
    spec.enableServiceLinks === false ? '' : 'Services set its environment',
    pod.runAsNonRoot === true || pod.runAsUser > 0 ? '' : 'may run as root',
    pod.seccompProfile?.type === 'RuntimeDefault' ? '' : 'has no seccomp profile',
    spec.automountServiceAccountToken === (name.includes('-controller') || name.includes('-init-secrets'))
      ? ''
      : 'has a token that it does not need, or lacks one',
    ...containers.flatMap(({ securityContext, resources }: Rendered['spec']) => [
      securityContext.readOnlyRootFilesystem === true ? '' : 'may write to its image',
      securityContext.allowPrivilegeEscalation === false ? '' : 'may gain privileges',
      securityContext.capabilities.drop.includes('ALL') ? '' : 'has capabilities',
      resources.requests?.memory === undefined ? 'asks for no memory' : '',
    ]),
  ]
  return faults.filter((fault) => fault !== '').map((fault) => `${name}: ${fault}`)
}

describeWithPart('helm', 'the chart', () => {
  test.for(sets)('%s: passes a strict lint', async ([, values]) => {
    const { code, stdout, stderr } = await helm(['lint', '--strict', chartDirectory], values)
    expect(`${stdout}${stderr}`).not.toMatch(/\[(WARNING|ERROR)\]/)
    expect(code).toBe(0)
  })

  test.for(sets)('%s: renders the same bytes each time, without a secret', async ([, values]) => {
    const text = await renderText(values)
    expect(await renderText(values)).toBe(text)
    const objects = objectsOf(text)
    expect(names(objects, 'Secret')).toEqual([])
    expect(podSpecs(objects).flatMap(errorsOf)).toEqual([])
    for (const { kind, metadata } of objects) expect(metadata.namespace !== undefined, `${kind} ${metadata.name}`).toBe(!clusterKinds.includes(kind))
    const keys = objects.map(({ kind, metadata }) => `${kind} ${metadata.namespace ?? ''} ${metadata.name}`)
    expect(keys).toEqual([...new Set(keys)])
  })

  test('the chart renders for each role its own Deployment and Service, all with one image', async () => {
    const objects = await render()
    expect(names(objects, 'Deployment')).toEqual(['taproot-api', 'taproot-controller', 'taproot-registry', 'taproot-worker'])
    expect(
      new Set(['api', 'registry', 'controller', 'worker'].map((role) => one(objects, 'Deployment', `taproot-${role}`).spec.template.spec.containers[0].image))
        .size,
    ).toBe(1)
    for (const role of ['api', 'registry']) {
      const { selector } = one(objects, 'Service', `taproot-${role}`).spec
      expect(one(objects, 'Deployment', `taproot-${role}`).spec.template.metadata.labels).toMatchObject(selector)
      expect(selector['app.kubernetes.io/component']).toBe(role)
    }
  })

  test('the chart keeps a stopping pod serving until no requests arrive, and starts a new pod before', async () => {
    const objects = await render({ api: { replicas: 3, drainSeconds: 15, terminationGracePeriodSeconds: 40 } })
    const { spec } = one(objects, 'Deployment', 'taproot-api')
    expect(spec.strategy.rollingUpdate).toEqual({ maxUnavailable: 0, maxSurge: 1 })
    expect(spec.template.spec.terminationGracePeriodSeconds).toBe(40)
    expect(spec.template.spec.containers[0].env).toEqual([
      { name: 'TAPROOT_STOP_DRAIN_SECONDS', value: '15' },
      { name: 'TAPROOT_STOP_GRACE_SECONDS', value: '20' },
    ])
    expect(one(objects, 'PodDisruptionBudget', 'taproot-api').spec.maxUnavailable).toBe(1)
    expect(names(objects, 'PodDisruptionBudget')).toEqual(['taproot-api'])
  })

  test('the chart keeps the definitions when the release is uninstalled; the policy for mirrors names this controller', async () => {
    const objects = objectsOf(await renderText({}, { name: 'one', namespace: 'elsewhere' }))
    const definitions = objects.filter(({ kind }) => kind === 'CustomResourceDefinition')
    expect(definitions.length).toBeGreaterThan(5)
    for (const { metadata } of definitions) expect(metadata.annotations).toMatchObject({ 'helm.sh/resource-policy': 'keep' })
    const { variables } = one(objects, 'ValidatingAdmissionPolicy', 'mirrors.taproot.dev').spec
    expect(variables).toContainEqual({ name: 'controllerNamespace', expression: "'elsewhere'" })
    expect(variables).toContainEqual({ name: 'controllerName', expression: "'one-controller'" })
    expect(names(await render({ kubernetes: { mirror: { policy: false } } }), 'ValidatingAdmissionPolicy')).toEqual([])
  })

  test('the chart renames the Job exactly when its content changes, as a Job is immutable', async () => {
    const jobs = await Promise.all([{}, { api: { replicas: 2 } }, { image: { tag: 'next' } }].map(async (values) => names(await render(values), 'Job')))
    expect(jobs[0]).toHaveLength(1)
    expect(jobs[1]).toEqual(jobs[0])
    expect(jobs[2]).not.toEqual(jobs[0])
    for (const object of await render())
      expect(object.metadata.annotations ?? {}).not.toHaveProperty(['helm.sh/hook'], expect.stringMatching(/install|upgrade/))
  })

  test('the chart selects one workload with every Service, policy and budget, and all roles for metrics', async () => {
    const objects = await render({ api: { replicas: 2 }, monitoring: { serviceMonitor: { enabled: true } } })
    const workloads = objects.filter(({ kind }) => kind === 'Deployment' || kind === 'StatefulSet')
    const chosen = (labels: Readonly<Record<string, string>>): string[] =>
      workloads
        .filter(({ spec }) => Object.entries(labels).every(([label, value]) => spec.template.metadata.labels[label] === value))
        .map(({ metadata }) => metadata.name)
        .toSorted()
    for (const { kind, metadata, spec } of objects) {
      const selector =
        kind === 'Service'
          ? spec.selector
          : ['NetworkPolicy', 'PodDisruptionBudget'].includes(kind)
            ? (spec.podSelector ?? spec.selector).matchLabels
            : undefined
      const all = ['taproot-api', 'taproot-controller', 'taproot-registry', 'taproot-worker']
      if (selector !== undefined) expect(chosen(selector)).toEqual(metadata.name === 'taproot-metrics' ? all : [metadata.name])
    }
  })

  test('docs/operations.md explains each alert of the chart, where its runbook_url leads', async () => {
    const rules = one(
      await render({ monitoring: { prometheusRule: { enabled: true, runbookUrl: 'https://wiki.example/operations' } } }),
      'PrometheusRule',
      'taproot',
    )['spec'].groups[0].rules
    const page = readFileSync(resolve(chartDirectory, '../../docs/operations.md'), 'utf8')
    const described = [...page.matchAll(/^### (Taproot\w+)\n\n\S/gm)].map((match) => match[1])
    expect(described).toEqual(rules.map(({ alert }: { readonly alert: string }) => alert))
    for (const { alert, expr, annotations } of rules) {
      expect(expr.replaceAll(/taproot_\w+\{job="taproot-metrics", namespace="platform"[,}]/g, ''), alert).not.toContain('taproot_')
      expect(annotations.runbook_url).toBe(`https://wiki.example/operations#${alert.toLowerCase()}`)
    }
  })

  test('the chart has a board for the sidecar of Grafana', async () => {
    const board = one(await render({ monitoring: { dashboard: { enabled: true, namespace: 'grafana' } } }), 'ConfigMap', 'taproot-dashboard')
    expect(board.metadata).toMatchObject({ namespace: 'grafana', labels: { grafana_dashboard: '1' } })
    expect(board['data']).toEqual({ 'taproot.json': readFileSync(resolve(chartDirectory, 'files/dashboard.json'), 'utf8') })
    expect(names(await render(), 'ConfigMap')).not.toContain('taproot-dashboard')
  })

  test('the chart restarts the pods after a change of the configuration', async () => {
    const digests = await Promise.all(
      [{}, { config: { log: { level: 'debug' } } }].map(
        async (values) => one(await render(values), 'Deployment', 'taproot-api').spec.template.metadata.annotations,
      ),
    )
    expect(digests[0]).not.toEqual(digests[1])
  })

  test('the chart explains in NOTES how to create the first root group', async () => {
    const { stdout } = await helm(['install', release.name, chartDirectory, '--namespace', release.namespace, '--dry-run=client'], {
      baseUrl: 'https://p.example.com',
    })
    expect(stdout).toContain('kubectl create token taproot-admin -n platform --audience https://p.example.com')
    expect(stdout).toContain('https://p.example.com')
  })
})
