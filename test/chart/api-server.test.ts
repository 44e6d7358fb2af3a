import { resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startKube, type Kube } from '../parts/kube.ts'
import { describeWithPart } from '../parts/require-part.ts'
import { foreignDefinitions } from './foreign-definitions.ts'
import { objectsOf, release, renderText, type Rendered } from './helm.ts'
import { valueSets } from './value-sets.ts'

const patience = 180_000

describeWithPart('kube-apiserver', 'a real API server', () => {
  let kube: Kube

  beforeAll(async () => {
    kube = await startKube()
    for (const namespace of [release.namespace, 'mirrors']) await kube.kubectl(['create', 'namespace', namespace])
    // Pods, also those that only a template makes, are held to the strictest standard; a breach is a warning here.
    await kube.kubectl(['label', 'namespace', release.namespace, 'pod-security.kubernetes.io/warn=restricted', 'pod-security.kubernetes.io/enforce=restricted'])
    await kube.kubectl(['apply', '-f', '-'], foreignDefinitions())
    await kube.kubectl(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s'])
  }, patience)
  afterAll(async () => kube?.stop())

  /** A bare pod is refused where its service account is not there: a dry run makes none. */
  async function makeAccounts(text: string): Promise<void> {
    const items = objectsOf(text).filter(({ kind }) => kind === 'ServiceAccount')
    await kube.kubectl(['apply', '--server-side', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
  }

  test.for(Object.entries(valueSets))('accepts every object: %s', { timeout: patience }, async ([, values]) => {
    const text = await renderText(values)
    await makeAccounts(text)
    const accepted = await kube.kubectl(['apply', '--server-side', '--dry-run=server', '--validate=strict', '--warnings-as-errors', '-f', '-'], text)
    expect(accepted.trim().split('\n')).toHaveLength(objectsOf(text).length)
  })

  test('accepts the base for kustomize', { timeout: patience }, async () => {
    await kube.kubectl(['create', 'namespace', 'taproot'])
    const base = resolve(import.meta.dirname, '../../deploy/kustomize/base')
    await kube.kubectl(['apply', '--server-side', '--dry-run=server', '--validate=strict', '--warnings-as-errors', '-k', base])
  })

  test('keeps what was rendered: nothing is defaulted to something else', { timeout: patience }, async () => {
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
