import { expect, test } from 'vitest'
import { describeWithParts } from '../support/parts/require-part.ts'
import { startKube } from '../support/parts/kubernetes/kube.ts'

const configMap = (name: string, owner?: { name: string; uid: string }): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, ...(owner !== undefined && { ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', ...owner }] }) },
  })

describeWithParts(['etcd', 'kube-apiserver', 'kubectl'], 'a Kubernetes API without nodes', () => {
  test('a Kubernetes API without nodes keeps objects, keys and its address over kill -9', async () => {
    const kube = await startKube()
    try {
      await kube.kubectl(['apply', '-f', '-'], configMap('kept'))
      const token = (await kube.kubectl(['create', 'serviceaccount', 'robot']).then(() => kube.kubectl(['create', 'token', 'robot']))).trim()
      await kube.apiserver.kill()
      await expect(kube.kubectl(['get', 'configmap', 'kept'])).rejects.toThrow('refused')
      await kube.apiserver.restart()
      expect(await kube.kubectl(['get', 'configmap', 'kept', '-o', 'name'])).toBe('configmap/kept\n')
      expect(await kube.kubectl(['auth', 'whoami', '--token', token, '-o', 'jsonpath={.status.userInfo.username}'])).toBe('system:serviceaccount:default:robot')
      expect(await kube.kubectl(['version', '-o', 'json'])).toContain('"gitVersion": "v1.36')
    } finally {
      await kube.stop()
    }
  })
})

describeWithParts(['etcd', 'kube-apiserver', 'kube-controller-manager', 'kubectl'], 'the Kubernetes controllers', () => {
  test('the Kubernetes controllers delete the objects of a deleted namespace, and objects without their owner', async () => {
    const kube = await startKube({ controllerManager: true })
    try {
      await kube.kubectl(['create', 'namespace', 'left'])
      await kube.kubectl(['apply', '-n', 'left', '-f', '-'], configMap('within'))
      await kube.kubectl(['delete', 'namespace', 'left', '--wait', '--timeout=60s'])
      await kube.kubectl(['apply', '-f', '-'], configMap('owner'))
      const uid = await kube.kubectl(['get', 'configmap', 'owner', '-o', 'jsonpath={.metadata.uid}'])
      await kube.kubectl(['apply', '-f', '-'], configMap('owned', { name: 'owner', uid }))
      await kube.kubectl(['delete', 'configmap', 'owner'])
      await kube.kubectl(['wait', '--for=delete', 'configmap/owned', '--timeout=60s'])
      expect(await kube.kubectl(['get', 'configmap', 'owned', '--ignore-not-found'])).toBe('')
    } finally {
      await kube.stop()
    }
  })
})
