import { mkdir, writeFile } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { selfSigned } from '../../../auth/certificate.ts'
import { askServer, isServing } from '../../../support/parts/ask-server.ts'
import type { KubeApiserver } from '../../../support/parts/kubernetes/kube-apiserver.ts'
import { requirePart } from '../../../support/parts/require-part.ts'
import { ServerProcess } from '../../../support/parts/server-process.ts'
import { run } from './command.ts'
import { enterNetwork } from './network.ts'
import type { Place } from './place.ts'
import { canOverlay } from './storage.ts'

/** The port of the proxy at the edge, on the machine's address in the cluster. */
export const edgePort = 8080
/** The name of the one node. */
export const nodeName = 'node'
/** The domain of Services. */
export const clusterDomain = 'cluster.local'
/** The image of a pod's first container. */
export const pauseImage = 'taproot.test/pause:1'

const ports = { etcd: 2379, etcdPeer: 2380, proxyHealth: 10256, proxyMetrics: 10249, schedulerHealth: 10259, dnsHealth: 8181 }
const podPids = 1024

type PartName = Parameters<typeof requirePart>[0]

interface Server {
  readonly name: PartName
  readonly flags: Readonly<Record<string, string>>
  readonly isReady: () => Promise<boolean>
  readonly env?: Readonly<Record<string, string>>
}

function serverIn(place: Place, { name, flags, ...rest }: Server): ServerProcess {
  const args = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`)
  return new ServerProcess({ name, command: [...enterNetwork(place), requirePart(name), ...args], timeoutMs: 180_000, ...rest })
}

/** Starts the store of the API server. Its data may be lost when the machine stops. */
export function etcdIn(place: Place): { server: ServerProcess; endpoint: string } {
  const endpoint = `http://${place.nodeAddress}:${ports.etcd}`
  const peer = `http://${place.nodeAddress}:${ports.etcdPeer}`
  const flags = {
    'data-dir': join(place.directory, 'etcd'),
    'listen-client-urls': endpoint,
    'advertise-client-urls': endpoint,
    'listen-peer-urls': peer,
    'initial-advertise-peer-urls': peer,
    'initial-cluster': `default=${peer}`,
    'unsafe-no-fsync': 'true',
    'log-level': 'error',
  }
  return { server: serverIn(place, { name: 'etcd', flags, isReady: () => isServing(`${endpoint}/health`) }), endpoint }
}

/** Starts the scheduler. */
export function schedulerIn(place: Place, apiserver: KubeApiserver): ServerProcess {
  const flags = {
    kubeconfig: apiserver.kubeconfigFile,
    'bind-address': place.nodeAddress,
    'secure-port': String(ports.schedulerHealth),
    'cert-dir': join(place.directory, 'scheduler'),
    'leader-elect': 'false',
  }
  return serverIn(place, { name: 'kube-scheduler', flags, isReady: () => isServing(`https://${place.nodeAddress}:${ports.schedulerHealth}/healthz`) })
}

/** Starts the proxy of Services. iptables may be missing, and connection tracking can not be configured. */
export function proxyIn(place: Place, apiserver: KubeApiserver): ServerProcess {
  const flags = {
    kubeconfig: apiserver.kubeconfigFile,
    'proxy-mode': 'nftables',
    'cluster-cidr': place.podRange,
    'hostname-override': nodeName,
    'healthz-bind-address': `${place.nodeAddress}:${ports.proxyHealth}`,
    'metrics-bind-address': `${place.nodeAddress}:${ports.proxyMetrics}`,
    'conntrack-max-per-core': '0',
    'conntrack-min': '0',
    'conntrack-tcp-timeout-established': '0s',
    'conntrack-tcp-timeout-close-wait': '0s',
    'conntrack-udp-timeout': '0s',
    'conntrack-udp-timeout-stream': '0s',
  }
  const path = [dirname(requirePart('nft')), process.env['PATH'] ?? ''].join(delimiter)
  return serverIn(place, {
    name: 'kube-proxy',
    flags,
    env: { PATH: path },
    isReady: () => isServing(`http://${place.nodeAddress}:${ports.proxyHealth}/healthz`),
  })
}

/** Starts DNS at port 53 of the node: it answers names of Services, and denies all other names. */
export async function dnsIn(place: Place, apiserver: KubeApiserver): Promise<ServerProcess> {
  const file = join(place.directory, 'Corefile')
  const block = (zones: string, settings: readonly string[]): string[] => [`${zones} {`, `  bind ${place.nodeAddress}`, '  errors', ...settings, '}']
  const lines = [
    ...block(`${clusterDomain}:53 in-addr.arpa:53`, [
      `  ready ${place.nodeAddress}:${ports.dnsHealth}`,
      `  kubernetes ${clusterDomain} in-addr.arpa {`,
      `    kubeconfig ${apiserver.kubeconfigFile} test`,
      '    pods verified',
      '    ttl 1',
      '  }',
    ]),
    ...block('.:53', ['  template ANY ANY {', '    rcode NXDOMAIN', '  }']),
  ]
  await writeFile(file, `${lines.join('\n')}\n`)
  return serverIn(place, { name: 'coredns', flags: { conf: file }, isReady: () => isServing(`http://${place.nodeAddress}:${ports.dnsHealth}/ready`) })
}

/** Returns the address of containerd's socket. */
export function containerdSocket(place: Place): string {
  return join(place.directory, 'containerd.sock')
}

/** Starts containerd. It pulls images of foreign hosts through the edge. */
export async function containerdIn(place: Place): Promise<ServerProcess> {
  const [file, networks] = [join(place.directory, 'containerd.toml'), join(place.directory, 'networks')]
  await mkdir(networks)
  const pods = {
    cniVersion: '1.0.0',
    name: 'pods',
    // The node routes every packet of a pod. On a bridge, Services would not work between pods.
    plugins: [
      {
        type: 'ptp',
        ipam: { type: 'host-local', dataDir: join(place.directory, 'addresses'), ranges: [[{ subnet: place.podRange }]], routes: [{ dst: '0.0.0.0/0' }] },
      },
    ],
  }
  await writeFile(join(networks, 'pods.conflist'), JSON.stringify(pods))
  await writeFile(file, containerdSettings(place, { networks, snapshotter: (await canOverlay()) ? 'overlayfs' : 'native' }))
  const path = [dirname(requirePart('containerd-shim-runc-v2')), dirname(requirePart('runc')), process.env['PATH'] ?? ''].join(delimiter)
  const outside = { HTTP_PROXY: `http://${place.hostAddress}:${edgePort}`, NO_PROXY: [place.nodeAddress, place.serviceRange, place.podRange].join(',') }
  const ctr = requirePart('ctr')
  const isReady = (): Promise<boolean> =>
    run(ctr, ['--address', containerdSocket(place), '--connect-timeout', '2s', 'version']).then(
      () => true,
      () => false,
    )
  return serverIn(place, { name: 'containerd', flags: { config: file }, env: { ...outside, PATH: path }, isReady })
}

/** Configures where containerd pulls images of a host from; it reads this file on each pull. */
export async function addRegistry(place: Place, host: string, url: string): Promise<void> {
  const folder = join(registriesFolder(place), host)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'hosts.toml'), `server = ${JSON.stringify(url)}\n[host.${JSON.stringify(url)}]\ncapabilities = ['pull', 'resolve']\n`)
}

function registriesFolder(place: Place): string {
  return join(place.directory, 'registries')
}

function containerdSettings(place: Place, { networks, snapshotter }: { networks: string; snapshotter: string }): string {
  const folder = (name: string): string => JSON.stringify(join(place.directory, name))
  return `
version = 3
root = ${folder('containerd/root')}
state = ${folder('containerd/state')}
[grpc]
address = ${JSON.stringify(containerdSocket(place))}
[plugins.'io.containerd.nri.v1.nri']
disable = true
[plugins.'io.containerd.cri.v1.images']
snapshotter = '${snapshotter}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '${pauseImage}'
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = ${JSON.stringify(registriesFolder(place))}
[plugins.'io.containerd.cri.v1.runtime']
# Machines without CAP_SYS_RESOURCE: without it no pod starts.
restrict_oom_score_adj = true
disable_hugetlb_controller = true
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [${JSON.stringify(dirname(requirePart('cni-plugins')))}]
conf_dir = ${JSON.stringify(networks)}
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = ${JSON.stringify(requirePart('runc'))}
SystemdCgroup = false
`
}

/** Returns flags with the certificate by which kubelet trusts the API server. */
export async function kubeletClientFlags(place: Place): Promise<string[]> {
  const { certificate, key } = selfSigned('kube-apiserver')
  const [certFile, keyFile] = [join(place.directory, 'kubelet-client.crt'), join(place.directory, 'kubelet-client.key')]
  await writeFile(certFile, certificate)
  await writeFile(keyFile, key, { mode: 0o600 })
  return [`--kubelet-client-certificate=${certFile}`, `--kubelet-client-key=${keyFile}`]
}

/** Starts kubelet, after `kubeletClientFlags`. */
export async function kubeletIn(place: Place, apiserver: KubeApiserver, moreFlags: Readonly<Record<string, string>> = {}): Promise<ServerProcess> {
  const file = join(place.directory, 'kubelet.json')
  const folder = (name: string): string => join(place.directory, name)
  const configuration = {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    address: place.nodeAddress,
    authentication: { anonymous: { enabled: false }, webhook: { enabled: false }, x509: { clientCAFile: folder('kubelet-client.crt') } },
    authorization: { mode: 'AlwaysAllow' },
    containerRuntimeEndpoint: `unix://${containerdSocket(place)}`,
    cgroupDriver: 'cgroupfs',
    cgroupRoot: `/${place.name}`,
    cgroupsPerQOS: true,
    enforceNodeAllocatable: [],
    failCgroupV1: false,
    failSwapOn: false,
    localStorageCapacityIsolation: false,
    evictionHard: { 'memory.available': '64Mi' },
    imageGCHighThresholdPercent: 100,
    imageGCLowThresholdPercent: 99,
    podPidsLimit: podPids,
    clusterDomain,
    clusterDNS: [place.nodeAddress],
    resolvConf: '',
    podLogsDir: folder('logs'),
    volumePluginDir: folder('volume-plugins'),
    syncFrequency: '10s',
  }
  await writeFile(file, JSON.stringify(configuration))
  const flags = {
    config: file,
    kubeconfig: apiserver.kubeconfigFile,
    'root-dir': folder('kubelet'),
    'cert-dir': folder('kubelet-certificates'),
    'hostname-override': nodeName,
    'node-ip': place.nodeAddress,
    ...moreFlags,
  }
  return serverIn(place, { name: 'kubelet', flags, isReady: () => isNodeReady(apiserver) })
}

async function isNodeReady(apiserver: KubeApiserver): Promise<boolean> {
  const node = await askServer(`${apiserver.url}/api/v1/nodes/${nodeName}`, { authorization: `Bearer ${apiserver.token}` })
  if (node?.status !== 200) return false
  const { status } = JSON.parse(node.body) as { status: { conditions?: readonly { type: string; status: string }[] } } // a cast of the API server's answer
  return status.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') ?? false
}
