import { chmod, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Place } from './place.ts'
import { nodeName } from './servers.ts'

const className = 'local'

/** Creates folders on the node. Returns the objects that offer them to claims: a default storage class and one volume for each. */
export async function makeVolumes(place: Place, count: number): Promise<object> {
  const names = Array.from({ length: count }, (_, index) => `local-${index}`)
  const folder = (name: string): string => join(place.directory, 'volumes', name)
  for (const name of names) {
    await mkdir(folder(name), { recursive: true })
    // Like other provisioners: pods run as different users.
    await chmod(folder(name), 0o777)
  }
  const storageClass = {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: className, annotations: { 'storageclass.kubernetes.io/is-default-class': 'true' } },
    provisioner: 'kubernetes.io/no-provisioner',
    volumeBindingMode: 'WaitForFirstConsumer',
  }
  const onNode = { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [nodeName] }] }
  const volumes = names.map((name) => ({
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name },
    spec: {
      capacity: { storage: '10Gi' },
      accessModes: ['ReadWriteOnce'],
      persistentVolumeReclaimPolicy: 'Retain',
      storageClassName: className,
      local: { path: folder(name) },
      nodeAffinity: { required: { nodeSelectorTerms: [onNode] } },
    },
  }))
  return { apiVersion: 'v1', kind: 'List', items: [storageClass, ...volumes] }
}
