import { resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { foreignDefinitions } from './foreign-definitions.ts'
import { objectsOf, release, renderText, type Rendered } from './helm.ts'
import { valueSets } from './value-sets.ts'

describeWithPart('kube-apiserver', 'a real Kubernetes API server', () => {
  let kube: Kube

  beforeAll(async () => {
    kube = await startKube()
    for (const namespace of [release.namespace, 'mirrors']) await kube.kubectl(['create', 'namespace', namespace])
    // Pods and pod templates must meet the strictest standard; a violation is a warning here.
    await kube.kubectl(['label', 'namespace', release.namespace, 'pod-security.kubernetes.io/warn=restricted', 'pod-security.kubernetes.io/enforce=restricted'])
    await kube.kubectl(['apply', '-f', '-'], foreignDefinitions())
    await kube.kubectl(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s'])
  })
  afterAll(async () => kube?.stop())

  /** Creates the service accounts: a bare pod without its service account is refused, and a dry run creates none. */
  async function makeAccounts(text: string): Promise<void> {
    const items = objectsOf(text).filter(({ kind }) => kind === 'ServiceAccount')
    await kube.kubectl(['apply', '--server-side', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
  }

  test.for(Object.entries(valueSets))('a real Kubernetes API server accepts every object of the chart: %s', async ([, values]) => {
    const text = await renderText(values)
    await makeAccounts(text)
    const accepted = await kube.kubectl(['apply', '--server-side', '--dry-run=server', '--validate=strict', '--warnings-as-errors', '-f', '-'], text)
    expect(accepted.trim().split('\n')).toHaveLength(objectsOf(text).length)
  })

  test.each<[string, keyof typeof valueSets, RegExp, string, string]>([
    ['an unknown field of a route', 'a Gateway for both hosts', /hostnames:/, 'hosts:', '.spec.hosts: field not declared in schema'],
    ['a Service without a port', 'a Gateway for both hosts', /^ +port: 80$(?=\n---)/m, '', 'port: Required value'],
    ['an unknown field of a monitor', 'watched by Prometheus', /interval: 15s/, 'every: 15s', '.spec.endpoints[0].every: field not declared in schema'],
    ['a rule without an expression', 'watched by Prometheus', /^ +expr:.*$/m, '', 'spec.groups[0].rules[0].expr: Required value'],
    ['an invalid time', 'watched by Prometheus', /for: 1m/, 'for: soon', 'spec.groups[0].rules[0].for'],
  ])('a real Kubernetes API server refuses a changed chart with %s', async (_, set, right, wrong, complaint) => {
    const text = await renderText(valueSets[set])
    await makeAccounts(text)
    const broken = text.replace(right, wrong)
    expect(broken).not.toBe(text)
    await expect(kube.kubectl(['apply', '--server-side', '--dry-run=server', '--validate=strict', '-f', '-'], broken)).rejects.toThrow(complaint)
  })

  test('a real Kubernetes API server accepts the kustomize base', async () => {
    await kube.kubectl(['create', 'namespace', 'taproot'])
    const base = resolve(import.meta.dirname, '../../../deploy/kustomize/base')
    await kube.kubectl(['apply', '--server-side', '--dry-run=server', '--validate=strict', '--warnings-as-errors', '-k', base])
  })

  test('a real Kubernetes API server stores the rendered objects unchanged: no API server default replaces a value', async () => {
    const text = await renderText({})
    await makeAccounts(text)
    const answer = await kube.kubectl(['apply', '--server-side', '--dry-run=server', '-o', 'json', '-f', '-'], text)
    const { items } = JSON.parse(answer) as { items: Rendered[] }
    const service = items.find(({ kind, metadata }) => kind === 'Service' && metadata.name === 'taproot-api')
    expect(service?.['spec'].ports).toMatchObject([
      { name: 'api', port: 80 },
      { name: 'grpc', port: 50_051, appProtocol: 'kubernetes.io/h2c' },
    ])
    const etcd = items.find(({ kind, metadata }) => kind === 'StatefulSet' && metadata.name === 'taproot-etcd')
    expect(etcd?.['spec'].persistentVolumeClaimRetentionPolicy).toEqual({ whenDeleted: 'Retain', whenScaled: 'Retain' })
  })
})
