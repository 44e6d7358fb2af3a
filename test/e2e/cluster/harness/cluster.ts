import { spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { partSets } from '../../../../tools/part-sets.js'
import { startKubeApiserver, type KubeApiserver } from '../../../support/parts/kubernetes/kube-apiserver.ts'
import { mustRunKubeClient, runKubeClient, type KubeClientResult } from '../../../support/parts/kubernetes/kube-client.ts'
import { startKubeControllerManager } from '../../../support/parts/kubernetes/kube-controller-manager.ts'
import { describeUnless, describeWithParts, requirePart } from '../../../support/parts/require-part.ts'
import { makeCgroups } from './cgroups.ts'
import { claimPlace } from './remains/claim-place.ts'
import { run } from './command.ts'
import { enterNetwork, makeNetwork } from './network.ts'
import type { Place } from './place.ts'
import { writeProgramImage, type ProgramImage } from './program-image.ts'
import { removeRemains } from './remains/remains.ts'
import {
  addRegistry,
  clusterDomain,
  containerdIn,
  containerdSocket,
  dnsIn,
  etcdIn,
  kubeletClientFlags,
  kubeletIn,
  pauseImage,
  proxyIn,
  schedulerIn,
} from './servers.ts'
import { makeVolumes } from './volumes.ts'

const apiserverPort = 6443

/** A running one-node cluster. Node, pods and Services can be reached from the machine by their addresses, and the machine from pods by `hostAddress`. */
export interface Cluster {
  readonly place: Place
  readonly apiserver: KubeApiserver
  /** Connection data of a client in addition to `kubeconfigFile`, valid on the machine and in pods. */
  readonly access: { readonly server: string; readonly caPem: string; readonly token: string }
  readonly kubeconfigFile: string
  /** The address at which a test can receive requests of pods. */
  readonly hostAddress: string
  /** Runs a real kubectl as administrator and returns its output. Throws if it fails. `stdin` is for `apply -f -`. */
  kubectl(args: readonly string[], stdin?: string): Promise<string>
  /** Runs a real helm as administrator and returns its output. Throws if it fails. */
  helm(args: readonly string[]): Promise<string>
  /** Runs either and returns all its output, also if it fails. */
  client(name: 'kubectl' | 'helm', args: readonly string[]): Promise<KubeClientResult>
  /** Imports the image of an OCI archive into the node as `repository:<tag in the archive>`, for `imagePullPolicy: Never` or `IfNotPresent`. */
  importImage(archive: string, repository: string): Promise<void>
  /** Creates an image of static programs and imports it into the node. */
  importPrograms(image: ProgramImage): Promise<void>
  /** Gives the node `count` volumes of 10 GiB and a default storage class for claims. May be called once. */
  addVolumes(count: number): Promise<void>
  /** Lets the node pull images of `host` from `url`, which may be plain HTTP, such as `registry.test` from `http://198.18.4.9:5000`. */
  addRegistry(host: string, url: string): Promise<void>
  /**
   * Resolves the address of a Service by the cluster's DNS: `resolve('api.default')` looks up `api.default.svc.cluster.local`. Throws if there is no address.
   */
  resolve(service: string): Promise<string>
  /** The command prefix that runs a command in the cluster's network. */
  readonly enter: readonly string[]
  /** Returns pods, events and the last log lines of all containers, for the message of a failed test. */
  report(): Promise<string>
  /** Ends every process of the cluster and removes all its files. A second call does nothing. */
  stop(): Promise<void>
}

/** Options of a cluster. */
export interface ClusterOptions {
  /** More flags of kubelet, by name. */
  readonly kubeletFlags?: Readonly<Record<string, string>>
  /** The issuer of service account tokens; kubeadm's by default. */
  readonly serviceAccountIssuer?: string
}

/** Like `describe`, for tests that need a cluster. On a machine without the requirements they are skipped, or fail with REQUIRE_ALL_PARTS=1. */
export function describeWithCluster(title: string, body: () => void): void {
  const isRoot = process.platform === 'linux' && process.getuid?.() === 0
  if (isRoot && spawnSync('unshare', ['--mount', '--net', 'true']).status === 0) describeWithParts(partSets.cluster, title, body)
  else describeUnless('a cluster needs root on Linux and the right to create namespaces', title, body)
}

/**
 * Starts Kubernetes with one node in its own network namespace. Resolves when the node is ready and DNS answers. Needs root on Linux. Throws if a part does
 * not start, after removing everything.
 */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  const place = await claimPlace()
  const stops: (() => Promise<void>)[] = []
  const remove = async (): Promise<void> => {
    try {
      // The parts remove their files in other places themselves.
      await Promise.all(stops.splice(0).map((step) => step()))
    } finally {
      await removeRemains(place)
    }
  }
  let removal: Promise<void> | undefined
  // Runs once only: afterwards the place may belong to another cluster.
  const stop = (): Promise<void> => (removal ??= remove())
  const starts: Promise<unknown>[] = []
  try {
    await makeCgroups(place.name)
    await makeNetwork(place)
    const starting = startApiserver(place, stops, options)
    starts.push(starting, startContainerd(place))
    await Promise.all(starts)
    const apiserver = await starting
    const servers = [
      schedulerIn(place, apiserver),
      proxyIn(place, apiserver),
      await dnsIn(place, apiserver),
      await kubeletIn(place, apiserver, options.kubeletFlags),
    ]
    starts.push(startManager(place, apiserver, stops), ...servers.map((server) => server.start()))
    await Promise.all(starts)
    return clusterOf(place, apiserver, stop)
  } catch (error) {
    await stop()
    // Parts that were still starting have failed by now, because their processes ended.
    await Promise.allSettled(starts)
    throw error
  }
}

async function startApiserver(place: Place, stops: (() => Promise<void>)[], { serviceAccountIssuer }: ClusterOptions): Promise<KubeApiserver> {
  const { server, endpoint } = etcdIn(place)
  await server.start()
  const network = { address: place.nodeAddress, port: apiserverPort, serviceRange: place.serviceRange, enter: enterNetwork(place) }
  const flags = ['--kubelet-preferred-address-types=InternalIP', '--allow-privileged=true', ...(await kubeletClientFlags(place))]
  const issuer = serviceAccountIssuer ?? `https://kubernetes.default.svc.${clusterDomain}`
  const apiserver = await startKubeApiserver({ etcdEndpoints: [endpoint], network, flags, serviceAccountIssuer: issuer })
  stops.push(() => apiserver.stop())
  return apiserver
}

async function startManager(place: Place, apiserver: KubeApiserver, stops: (() => Promise<void>)[]): Promise<void> {
  const manager = await startKubeControllerManager({ apiserver, enter: enterNetwork(place), address: place.nodeAddress })
  stops.push(() => manager.stop())
}

async function startContainerd(place: Place): Promise<void> {
  const containerd = await containerdIn(place)
  await containerd.start()
  await importPrograms(place, { name: pauseImage, programs: [requirePart('pause')] })
}

async function importPrograms(place: Place, image: ProgramImage): Promise<void> {
  const archive = join(place.directory, `${randomUUID()}.tar`)
  await writeProgramImage(image, archive)
  await importArchive(place, [archive])
  await rm(archive)
}

async function importArchive(place: Place, args: readonly string[]): Promise<void> {
  await run(requirePart('ctr'), ['--address', containerdSocket(place), '--namespace', 'k8s.io', 'images', 'import', ...args])
}

function clusterOf(place: Place, apiserver: KubeApiserver, stop: () => Promise<void>): Cluster {
  const { kubeconfigFile } = apiserver
  const names = new Resolver()
  names.setServers([`${place.nodeAddress}:53`])
  const kubectl: Cluster['kubectl'] = (args, stdin) => mustRunKubeClient('kubectl', args, { kubeconfigFile, ...(stdin !== undefined && { stdin }) })
  return {
    place,
    apiserver,
    access: { server: apiserver.url, caPem: apiserver.ca, token: apiserver.token },
    kubeconfigFile,
    hostAddress: place.hostAddress,
    enter: enterNetwork(place),
    kubectl,
    helm: (args) => mustRunKubeClient('helm', args, { kubeconfigFile }),
    client: (name, args) => runKubeClient(name, args, { kubeconfigFile }),
    importImage: (archive, repository) => importArchive(place, ['--base-name', repository, archive]),
    importPrograms: (image) => importPrograms(place, image),
    addVolumes: async (count) => {
      await kubectl(['apply', '-f', '-'], JSON.stringify(await makeVolumes(place, count)))
    },
    addRegistry: (host, url) => addRegistry(place, host, url),
    resolve: async (service) => {
      const [address] = await names.resolve4(`${service}.svc.${clusterDomain}`)
      if (address === undefined) throw new Error(`${service} has no address`)
      return address
    },
    report: () => report(kubectl),
    stop,
  }
}

async function report(kubectl: Cluster['kubectl']): Promise<string> {
  const questions = [
    ['get', 'pods', '-A', '-o', 'wide'],
    ['get', 'events', '-A', '--sort-by=.lastTimestamp'],
    ['describe', 'pods', '-A'],
  ]
  const answers = questions.map((args) => kubectl(args).catch((error: unknown) => String(error)))
  const pods = await kubectl(['get', 'pods', '-A', '-o', 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\\n"}{end}']).catch(() => '')
  const logs = pods.split('\n').flatMap((line) => {
    const [namespace, pod] = line.split(' ')
    if (namespace === undefined || pod === undefined) return []
    const args = ['logs', '--namespace', namespace, pod, '--all-containers', '--tail=50']
    return [kubectl(args).then((text) => `--- ${line}\n${text}`, String)]
  })
  return (await Promise.all([...answers, ...logs])).join('\n')
}
