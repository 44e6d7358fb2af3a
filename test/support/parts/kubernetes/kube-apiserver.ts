import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isServing } from '../ask-server.ts'
import { freePorts } from '../free-port.ts'
import { requirePart } from '../require-part.ts'
import { ServerProcess } from '../server-process.ts'

/** A network reserved for benchmarks (RFC 2544), without listeners: the server requires addresses that are not loopback. */
const defaultNetwork = { advertiseAddress: '198.18.0.1', serviceRange: '198.19.0.0/24' }

/** A running Kubernetes API server. */
export interface KubeApiserver {
  /** `https://127.0.0.1:<port>` */
  readonly url: string
  readonly port: number
  readonly pid: number
  /** The certificate authority of its certificate, PEM. */
  readonly ca: string
  /** Its own certificate (with the chain) and key, PEM files, valid for 127.0.0.1 and localhost. */
  readonly certFile: string
  readonly keyFile: string
  /** A bearer token in group `system:masters`. */
  readonly token: string
  /** A kubeconfig file with URL, authority and token. */
  readonly kubeconfigFile: string
  /** Signs the tokens of service accounts, PEM file. */
  readonly serviceAccountKeyFile: string
  /** The end of its standard error output. */
  readonly output: string
  /** Kills the process and waits for its end; connections to it are cut. */
  kill(): Promise<void>
  /** Starts the server again after `kill`, with the same address and keys; resolves when it is ready. */
  restart(): Promise<void>
  /** Kills the process and removes its files; its data in etcd stays. */
  stop(): Promise<void>
}

/** Options of the start. */
export interface KubeApiserverOptions {
  readonly etcdEndpoints: readonly string[]
  /** Prefix of its keys; `/registry` by default. */
  readonly etcdPrefix?: string
  /** `iss` of the tokens of service accounts; `https://kubernetes.default.svc` by default. */
  readonly serviceAccountIssuer?: string
  /** The listen address, and the range of Service addresses. By default a free port of 127.0.0.1, and unreachable Services. */
  readonly network?: {
    readonly address: string
    readonly port: number
    readonly serviceRange: string
    /** Prefix of the command, e.g. to enter a network namespace. */
    readonly enter: readonly string[]
  }
  /** More flags, e.g. `--feature-gates=...`. */
  readonly flags?: readonly string[]
}

/** Starts a real kube-apiserver on a running etcd with its own certificate; resolves after `/readyz` succeeds. */
export async function startKubeApiserver(options: KubeApiserverOptions): Promise<KubeApiserver> {
  const program = requirePart('kube-apiserver')
  const directory = await mkdtemp(join(tmpdir(), 'taproot-kube-apiserver-'))
  const port = options.network?.port ?? (await freePorts(1))[0] ?? 0
  const address = options.network?.address ?? '127.0.0.1'
  const token = randomBytes(16).toString('hex')
  await writeKeys(directory, token)
  const url = `https://${address}:${port}`
  const server = new ServerProcess({
    name: 'kube-apiserver',
    command: [...(options.network?.enter ?? []), program, ...flagsOf(options, { directory, port })],
    isReady: () => isServing(`${url}/readyz`, { authorization: `Bearer ${token}` }),
  })
  const stop = async (): Promise<void> => {
    await server.kill()
    await rm(directory, { recursive: true, force: true, maxRetries: 3 })
  }
  const certFile = join(directory, 'certificates', 'apiserver.crt')
  const kubeconfigFile = join(directory, 'kubeconfig.json')
  try {
    await server.start()
    const ca = await readFile(certFile, 'utf8')
    await writeFile(kubeconfigFile, JSON.stringify(kubeconfigOf({ url, ca, token })), { mode: 0o600 })
    return {
      ...{ url, port, ca, certFile, token, kubeconfigFile, stop },
      keyFile: join(directory, 'certificates', 'apiserver.key'),
      serviceAccountKeyFile: join(directory, 'service-accounts.key'),
      get pid() {
        return server.pid
      },
      get output() {
        return server.output
      },
      // Killed, since its graceful end waits for watches and all its data is in etcd.
      kill: () => server.kill(),
      restart: () => server.start(),
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** A kubeconfig (JSON is YAML) of one cluster with one user. */
export function kubeconfigOf({ url, ca, token }: { url: string; ca: string; token: string }): object {
  const cluster = { server: url, 'certificate-authority-data': Buffer.from(ca).toString('base64') }
  return {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'test', cluster }],
    users: [{ name: 'admin', user: { token } }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
    'current-context': 'test',
  }
}

/** The token file and the keys of service accounts. */
async function writeKeys(directory: string, token: string): Promise<void> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', {
    namedCurve: 'P-256',
    privateKeyEncoding: { type: 'sec1', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  })
  await writeFile(join(directory, 'tokens.csv'), `${token},admin,admin,"system:masters"\n`, { mode: 0o600 })
  await writeFile(join(directory, 'service-accounts.key'), privateKey, { mode: 0o600 })
  await writeFile(join(directory, 'service-accounts.pub'), publicKey)
}

function flagsOf(options: KubeApiserverOptions, { directory, port }: { directory: string; port: number }): string[] {
  const { network } = options
  const values = {
    'etcd-servers': options.etcdEndpoints.join(','),
    'etcd-prefix': options.etcdPrefix ?? '/registry',
    'bind-address': network?.address ?? '127.0.0.1',
    'secure-port': String(port),
    'advertise-address': network?.address ?? defaultNetwork.advertiseAddress,
    // A reachable server publishes its address for pods.
    ...(network === undefined && { 'endpoint-reconciler-type': 'none' }),
    'service-cluster-ip-range': network?.serviceRange ?? defaultNetwork.serviceRange,
    'cert-dir': join(directory, 'certificates'),
    'token-auth-file': join(directory, 'tokens.csv'),
    'authorization-mode': 'RBAC',
    'service-account-issuer': options.serviceAccountIssuer ?? 'https://kubernetes.default.svc',
    'service-account-signing-key-file': join(directory, 'service-accounts.key'),
    'service-account-key-file': join(directory, 'service-accounts.pub'),
  }
  return [...Object.entries(values).map(([name, value]) => `--${name}=${value}`), ...(options.flags ?? [])]
}
