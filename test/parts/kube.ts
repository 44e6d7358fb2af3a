import { startEtcd, type EtcdCluster } from './etcd.ts'
import { startKubeApiserver, type KubeApiserver, type KubeApiserverOptions } from './kube-apiserver.ts'
import { mustRunKubeClient } from './kube-client.ts'
import { startKubeControllerManager } from './kube-controller-manager.ts'

/** A Kubernetes without nodes: an etcd, an API server and, where asked for, the controllers of Kubernetes itself. */
export interface Kube {
  readonly etcd: EtcdCluster
  /** Also says how to `kill` and `restart` it. */
  readonly apiserver: KubeApiserver
  /** What a client needs, beside `kubeconfigFile`. */
  readonly access: { readonly server: string; readonly caPem: string; readonly token: string }
  readonly kubeconfigFile: string
  /** Runs a real kubectl as administrator and returns what it printed; throws where it fails. */
  kubectl(args: readonly string[], stdin?: string): Promise<string>
  /** Stops everything and removes the data. */
  stop(): Promise<void>
}

/** How it is started. */
export interface KubeOptions extends Pick<KubeApiserverOptions, 'flags' | 'serviceAccountIssuer'> {
  /** Starts kube-controller-manager too: garbage collection, deletion of namespaces, service accounts. */
  readonly controllerManager?: boolean
}

/** Starts a real Kubernetes API on free loopback ports with data of its own; resolves when it is ready. Throws, everything stopped, where a part does not start. */
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
