import { beforeAll, expect, test } from 'vitest'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { names, one, podSpecs, render, type Rendered, type Values } from './helm.ts'
import { valueSets } from './value-sets.ts'

const values = valueSets['what teams set every day']
const workloads = ['api', 'registry', 'controller', 'worker', 'etcd', 'upstream'] as const
const kindOf = (name: string): string => (name === 'etcd' || name === 'upstream' ? 'StatefulSet' : 'Deployment')

describeWithPart('helm', 'commonly used values of the chart', () => {
  let objects: readonly Rendered[] = []
  beforeAll(async () => {
    objects = await render(values)
  })

  const workload = (name: string): Rendered => one(objects, kindOf(name), `taproot-${name}`)

  test.for(workloads)('set annotations and labels of the workload and the service account of %s', (name) => {
    const given = values[name]
    expect(workload(name).metadata.annotations).toMatchObject(given.annotations)
    expect(workload(name).metadata.labels).toMatchObject(given.labels)
    const account = one(objects, 'ServiceAccount', `taproot-${name}`).metadata
    expect([account.annotations, account.labels]).toMatchObject([given.serviceAccount.annotations, given.serviceAccount.labels])
  })

  test.for(workloads)('set the pod fields of %s', (name) => {
    const given = values[name]
    const pod = workload(name)['spec'].template.spec
    const { hostAliases, dnsPolicy, dnsConfig, initContainers, envFrom } = given
    expect(pod).toMatchObject({ hostAliases, dnsPolicy, dnsConfig, initContainers })
    expect(pod.volumes).toContainEqual(given.extraVolumes[0])
    const [own, sidecar, ...more] = pod.containers
    expect([sidecar, more]).toEqual([given.extraContainers[0], []])
    expect(own).toMatchObject({
      envFrom,
      startupProbe: { periodSeconds: 2, failureThreshold: 300 },
      livenessProbe: { periodSeconds: 10, initialDelaySeconds: 5 },
      readinessProbe: { periodSeconds: 7 },
      securityContext: { runAsGroup: 3000, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    })
    expect(own.volumeMounts).toContainEqual(given.extraVolumeMounts[0])
  })

  test('chart values can switch a default security setting off for one workload', async () => {
    const found = await render({
      api: { containerSecurityContext: { readOnlyRootFilesystem: false } },
      pods: { containerSecurityContext: { privileged: false } },
    })
    const contextOf = (name: string): unknown => one(found, 'Deployment', `taproot-${name}`)['spec'].template.spec.containers[0].securityContext
    const own = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] }, privileged: false }
    expect([contextOf('api'), contextOf('registry')]).toEqual([{ ...own, readOnlyRootFilesystem: false }, own])
  })

  test('chart values with a HorizontalPodAutoscaler leave the number of pods to it', () => {
    expect(workload('api')['spec'].replicas).toBeUndefined()
    const { spec } = one(objects, 'HorizontalPodAutoscaler', 'taproot-api')
    expect(spec).toMatchObject({ minReplicas: 2, maxReplicas: 9, scaleTargetRef: { kind: 'Deployment', name: 'taproot-api' } })
    expect(spec.metrics.map(({ resource }: Rendered) => [resource.name, resource.target.averageUtilization])).toEqual([
      ['cpu', 80],
      ['memory', 70],
    ])
    expect(names(objects, 'HorizontalPodAutoscaler')).toEqual(['taproot-api'])
  })

  test('set budgets, update strategies, services and volume claims', () => {
    expect(one(objects, 'PodDisruptionBudget', 'taproot-api')['spec']).toMatchObject({ minAvailable: '50%' })
    expect(one(objects, 'PodDisruptionBudget', 'taproot-api')['spec']).not.toHaveProperty('maxUnavailable')
    expect(one(objects, 'PodDisruptionBudget', 'taproot-registry')['spec'].maxUnavailable).toBe(2)
    expect(names(objects, 'PodDisruptionBudget')).toEqual(['taproot-api', 'taproot-registry'])
    expect(workload('api')['spec'].strategy).toEqual({ rollingUpdate: { maxSurge: '50%' } })
    expect(workload('controller')['spec'].strategy).toEqual({ type: 'Recreate' })
    const service = one(objects, 'Service', 'taproot-api')
    expect(service['spec']).toMatchObject({
      loadBalancerClass: 'example.com/internal',
      loadBalancerSourceRanges: ['10.0.0.0/8'],
      externalTrafficPolicy: 'Local',
    })
    expect(service['spec'].ports.map(({ nodePort }: Rendered) => nodePort)).toEqual([30_080, 30_081])
    expect(service.metadata.labels).toMatchObject({ 'example.com/lb': 'internal' })
    expect(one(objects, 'Service', 'taproot-registry')['spec'].ports[0].nodePort).toBe(30_500)
    for (const [name, claimName] of [['etcd', 'etcd-data'] as const, ['upstream', 'upstream-data'] as const]) {
      const { spec } = workload(name)
      expect(spec.template.spec.volumes).toContainEqual({ name: 'data', persistentVolumeClaim: { claimName } })
      expect(spec.volumeClaimTemplates).toBeUndefined()
    }
  })

  test('set names, common annotations and monitors of all objects', () => {
    const exceptions = ['CustomResourceDefinition', 'ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']
    for (const { kind, metadata } of objects.filter((object) => !exceptions.includes(object.kind) && object.metadata.name !== 'own')) {
      expect(metadata.annotations, `${kind} ${metadata.name}`).toMatchObject(values.commonAnnotations)
      expect(metadata.labels, `${kind} ${metadata.name}`).toMatchObject({ 'app.kubernetes.io/name': 'registry-platform' })
    }
    const monitors = objects.filter(({ kind }) => kind === 'ServiceMonitor' || kind === 'PrometheusRule')
    expect(monitors.map(({ kind, metadata }) => `${metadata.namespace} ${kind} ${metadata.name}`).toSorted()).toEqual([
      'mirrors PrometheusRule taproot',
      'mirrors ServiceMonitor taproot',
      'mirrors ServiceMonitor taproot-etcd',
    ])
    expect(one(objects, 'ServiceMonitor', 'taproot')['spec'].namespaceSelector.matchNames).toEqual(['platform'])
    expect(one(objects, 'ConfigMap', 'own')).toMatchObject({ metadata: { namespace: 'platform' }, data: { release: 'taproot' } })
  })

  test('place the pods of helm test', () => {
    const { nodeSelector, tolerations, affinity, priorityClassName, dnsConfig } = values.tests
    const pods = objects.filter(({ kind }) => kind === 'Pod')
    expect(pods.map(({ metadata }) => metadata.name)).toEqual(['taproot-test-api', 'taproot-test-registry'])
    for (const { metadata, spec } of pods) {
      expect(spec).toMatchObject({ nodeSelector, tolerations, affinity, priorityClassName, dnsConfig })
      expect(spec.containers[0].resources).toEqual(values.tests.resources)
      expect(metadata.annotations).toMatchObject({ 'helm.sh/hook': 'test', ...values.tests.podAnnotations })
      expect(metadata.labels).toMatchObject(values.tests.podLabels)
    }
  })

  test.each<[sentence: string, values: Values, image: string, etcd: string]>([
    ['no override', { image: { repository: 'taproot', tag: '1' } }, 'taproot:1', 'gcr.io/etcd-development/etcd:v3.6.8'],
    ['one registry for one image', { image: { registry: 'one.example', tag: '1' } }, 'one.example/taproot:1', 'gcr.io/etcd-development/etcd:v3.6.8'],
    [
      'one registry for all images',
      { global: { imageRegistry: 'all.example:5000' }, image: { tag: '1' } },
      'all.example:5000/taproot:1',
      'all.example:5000/etcd-development/etcd:v3.6.8',
    ],
    [
      'an override in place of the registry in an image name',
      { global: { imageRegistry: 'all.example' }, image: { registry: 'one.example/mirror', repository: 'localhost:5000/platform/taproot', tag: '1' } },
      'one.example/mirror/platform/taproot:1',
      'all.example/etcd-development/etcd:v3.6.8',
    ],
  ])('chart values choose the registry of images: %s', async (_, given, image, etcd) => {
    const found = podSpecs(await render(given)).map(({ name, spec }) => [name, spec.containers[0].image])
    expect(Object.fromEntries(found)).toMatchObject({ 'taproot-api': image, 'taproot-test-api': image, 'taproot-etcd': etcd })
  })

  test('chart values of the controller restart no pods of other roles', async () => {
    const [before, after] = await Promise.all([{}, { kubernetes: { pullSecrets: { enabled: true }, mirror: { limit: 5 } } }].map(render))
    const digestOf = (found: readonly Rendered[] | undefined, role: string): unknown => one(found ?? [], 'Deployment', `taproot-${role}`)['spec'].template
    for (const role of ['api', 'registry']) expect(digestOf(after, role)).toEqual(digestOf(before, role))
    expect(digestOf(after, 'controller')).not.toEqual(digestOf(before, 'controller'))
  })
})
