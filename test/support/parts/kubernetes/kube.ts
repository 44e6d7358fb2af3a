import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { endWithWorker, startEtcd, type EtcdCluster, type EtcdMember } from '../etcd.ts'
import { startKubeApiserver, type KubeApiserver, type KubeApiserverOptions } from './kube-apiserver.ts'
import { mustRunKubeClient } from './kube-client.ts'
import { startKubeControllerManager } from './kube-controller-manager.ts'
import { onWorkerEnd } from '../worker-end.ts'

/** A Kubernetes without nodes: an etcd, an API server and optionally the Kubernetes controllers. */
export interface Kube {
  readonly etcd: EtcdCluster
  /** Offers `kill` and `restart`. */
  readonly apiserver: KubeApiserver
  /** Client settings besides `kubeconfigFile`. */
  readonly access: { readonly server: string; readonly caPem: string; readonly token: string }
  readonly kubeconfigFile: string
  /** Runs a real kubectl as administrator and returns its output; throws if it fails. */
  kubectl(args: readonly string[], stdin?: string): Promise<string>
  /** Stops everything and removes the data. */
  stop(): Promise<void>
}

/** Options of the start. */
export interface KubeOptions extends Pick<KubeApiserverOptions, 'flags' | 'serviceAccountIssuer'> {
  /** Starts kube-controller-manager too: garbage collection, deletion of namespaces, service accounts. */
  readonly controllerManager?: boolean
}

/** Starts a real Kubernetes API on free loopback ports with its own data; resolves when it is ready. If a part does not start, stops all and throws. */
export async function startKube(options: KubeOptions = {}): Promise<Kube> {
  const { controllerManager = false, ...apiserverOptions } = options
  const stops: (() => Promise<void>)[] = []
  const stop = async (): Promise<void> => {
    for (const step of stops.splice(0).reverse()) await step()
  }
  try {
    const etcd = await startEtcd()
    stops.push(() => etcd.stop())
    const apiserver = await startKubeApiserver({ etcdEndpoints: etcd.endpoints, ...apiserverOptions })
    stops.push(() => apiserver.stop())
    if (controllerManager) {
      const manager = await startKubeControllerManager({ apiserver })
      stops.push(() => manager.stop())
    }
    const { kubeconfigFile } = apiserver
    return {
      etcd,
      apiserver,
      access: { server: apiserver.url, caPem: apiserver.ca, token: apiserver.token },
      kubeconfigFile,
      kubectl: (args, stdin) => mustRunKubeClient('kubectl', args, { kubeconfigFile, ...(stdin !== undefined && { stdin }) }),
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** The Kubernetes of this worker, and its keys before its first user. */
let shared: Promise<{ readonly kube: Kube; readonly kept: ReadonlySet<string> }> | undefined
let isInUse = false

/**
 * The Kubernetes API of this worker. It starts with the first use, runs `prepare` once, and ends with the worker. `stop` removes all that this use wrote.
 * It has one user at a time: while it is in use, this starts another one. A test that kills it or its etcd starts its own.
 */
export async function shareKube(prepare: (kube: Kube) => Promise<void>): Promise<Kube> {
  if (isInUse) {
    const own = await startKube()
    await prepare(own)
    return own
  }
  isInUse = true
  shared ??= startShared(prepare)
  const { kube, kept } = await shared
  const [member] = kube.etcd.members
  return {
    ...kube,
    stop: async () => {
      if (member !== undefined) await removeWritten(member, kept)
      isInUse = false
    },
  }
}

async function startShared(prepare: (kube: Kube) => Promise<void>): Promise<{ kube: Kube; kept: ReadonlySet<string> }> {
  const kube = await startKube()
  endWithWorker(kube.etcd)
  onWorkerEnd(() => {
    void kube.apiserver.kill()
    rmSync(dirname(kube.kubeconfigFile), { recursive: true, force: true })
  })
  await prepare(kube)
  return { kube, kept: new Set(await keysOf(kube.etcd.members)) }
}

const base64 = (text: string): string => Buffer.from(text).toString('base64')
/** Keys that the API server writes by itself at any time. */
const ofTheServer =
  /^\/registry\/(?:masterleases|peerserverlease|ranges|services|endpointslices)\/|\/kube-(?:system|public|node-lease)(?:\/|$)|^\/registry\/namespaces\/default$/

async function keysOf([member]: readonly EtcdMember[]): Promise<string[]> {
  const answer = await member?.call('kv/range', { key: base64('/registry/'), range_end: base64('/registry0'), keys_only: true })
  const { kvs = [] } = (answer ?? {}) as { kvs?: { key: string }[] } // a cast of etcd's answer
  return kvs.map(({ key }) => Buffer.from(key, 'base64').toString()).filter((key) => !ofTheServer.test(key))
}

/** Deletes keys in etcd, so that finalizers, policies and hooks of a test do not prevent it. The API server sees the deletions in its watch. */
async function removeWritten(member: EtcdMember, kept: ReadonlySet<string>): Promise<void> {
  const written = (await keysOf([member])).filter((key) => !kept.has(key))
  const mostInOne = 100
  for (let at = 0; at < written.length; at += mostInOne) {
    const success = written.slice(at, at + mostInOne).map((key) => ({ request_delete_range: { key: base64(key) } }))
    await member.call('kv/txn', { success })
  }
}
