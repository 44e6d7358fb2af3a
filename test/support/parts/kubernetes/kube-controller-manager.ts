import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isServing } from '../ask-server.ts'
import { freePorts } from '../free-port.ts'
import type { KubeApiserver } from './kube-apiserver.ts'
import { requirePart } from '../require-part.ts'
import { ServerProcess } from '../server-process.ts'

/** A running controller manager. */
export interface KubeControllerManager {
  readonly pid: number
  readonly output: string
  /** Kills the process and removes its files. */
  stop(): Promise<void>
}

/** Options of the start. */
export interface KubeControllerManagerOptions {
  readonly apiserver: KubeApiserver
  /** Prefix of the command, e.g. to enter a network namespace. */
  readonly enter?: readonly string[]
  /** The listen address; 127.0.0.1 by default. */
  readonly address?: string
  readonly flags?: readonly string[]
}

/** Starts a real kube-controller-manager: garbage collection, deletion of namespaces, service accounts, Deployments and the rest. Resolves when it is healthy. */
export async function startKubeControllerManager(options: KubeControllerManagerOptions): Promise<KubeControllerManager> {
  const { apiserver, address = '127.0.0.1' } = options
  const program = requirePart('kube-controller-manager')
  const directory = await mkdtemp(join(tmpdir(), 'taproot-kube-controller-manager-'))
  const [port = 0] = await freePorts(1)
  const values = {
    kubeconfig: apiserver.kubeconfigFile,
    'bind-address': address,
    'secure-port': String(port),
    'cert-dir': join(directory, 'certificates'),
    'service-account-private-key-file': apiserver.serviceAccountKeyFile,
    // The certificate authority for pods.
    'root-ca-file': apiserver.certFile,
    'leader-elect': 'false',
  }
  const flags = Object.entries(values).map(([name, value]) => `--${name}=${value}`)
  const server = new ServerProcess({
    name: 'kube-controller-manager',
    command: [...(options.enter ?? []), program, ...flags, ...(options.flags ?? [])],
    isReady: () => isServing(`https://${address}:${port}/healthz`),
  })
  const stop = async (): Promise<void> => {
    await server.kill()
    await rm(directory, { recursive: true, force: true, maxRetries: 3 })
  }
  try {
    await server.start()
  } catch (error) {
    await stop()
    throw error
  }
  return {
    get pid() {
      return server.pid
    },
    get output() {
      return server.output
    },
    stop,
  }
}
