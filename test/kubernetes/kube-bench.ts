import { randomBytes } from 'node:crypto'
import { onTestFinished } from 'vitest'
import { createKubeClient, type KubeClient, type KubeClientOptions } from '../../src/kubernetes/client/kube-client.ts'
import type { KubeObject, ObjectDraft, ObjectType } from '../../src/kubernetes/kube-api.ts'
import type { Kube } from '../support/parts/kubernetes/kube.ts'
import { startTcpProxy, type TcpProxy } from '../support/parts/tcp-proxy.ts'

/** The system's randomness. */
export const random = { bytes: (count: number): Uint8Array => randomBytes(count) }

/** A signal that never aborts. */
export const { signal } = new AbortController()

/** A type of objects without constraints. */
export const configMaps: ObjectType = { group: '', version: 'v1', kind: 'ConfigMap', plural: 'configmaps', namespaced: true }

/** A ConfigMap in the namespace `default`, or another one. */
export function configMap(
  name: string,
  options: { readonly namespace?: string; readonly value?: string; readonly labels?: Record<string, string> } = {},
): ObjectDraft {
  const { namespace = 'default', value = '', labels } = options
  return { metadata: { name, namespace, ...(labels !== undefined && { labels }) }, data: { value } }
}

/** Returns the value in a ConfigMap of `configMap`. */
export function valueOf(object: KubeObject | undefined): string | undefined {
  return (object?.['data'] as { readonly value: string } | undefined)?.value // a cast of what configMap made
}

/** Returns a client with the rights of an administrator and without a rate limit. It is closed after the test. */
export function clientOf({ apiserver, access }: Kube, options: Partial<KubeClientOptions> & { readonly port?: number } = {}): KubeClient {
  const { port = apiserver.port, ...more } = options
  const endpoint = { from: 'token', server: `https://127.0.0.1:${port}`, ca: access.caPem, token: access.token } as const
  const client = createKubeClient({ endpoint, userAgent: 'taproot-test', random, rate: { perSecond: 10_000, burst: 10_000 }, ...more })
  onTestFinished(() => client.close())
  return client
}

/** Returns a network to the API server that can fail. It is closed after the test. */
export async function proxyTo({ apiserver }: Kube, onConnect: () => void = () => undefined): Promise<TcpProxy> {
  const proxy = await startTcpProxy(() => {
    onConnect()
    return apiserver.port
  })
  onTestFinished(() => proxy.close())
  return proxy
}

/** Makes a namespace that no other test has. */
export async function freshNamespace(kube: Kube): Promise<string> {
  const name = `test-${randomBytes(5).toString('hex')}`
  const namespaces: ObjectType = { group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces', namespaced: false }
  await clientOf(kube).create(namespaces, { metadata: { name } }, signal)
  return name
}

/** Compacts the history of the underlying etcd up to now, so that the API server knows only what is in its memory. */
export async function compact({ etcd }: Kube): Promise<void> {
  const [member] = etcd.members
  const { header } = (await member?.call('kv/range', { key: Buffer.from('none').toString('base64') })) as { header: { revision: string } } // a cast of etcd's answer
  await member?.call('kv/compaction', { revision: header.revision, physical: true })
}
