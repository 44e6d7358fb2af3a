import { spawn, type ChildProcess } from 'node:child_process'
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { freePorts } from './free-port.ts'
import { requirePart } from './require-part.ts'

const startPatienceMs = 60_000
/** A network set aside for benchmarks (RFC 2544): nothing listens there, but the server wants addresses that are not loopback. */
const advertiseAddress = '198.18.0.1'
const serviceRange = '198.19.0.0/24'

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
  /** What it wrote to standard error, the last of it. */
  readonly output: string
  /** Kills the process and removes its files; what it wrote to etcd stays. */
  stop(): Promise<void>
}

/** How it is started. */
export interface KubeApiserverOptions {
  readonly etcdEndpoints: readonly string[]
  /** Starts its keys; `/registry` by default. */
  readonly etcdPrefix?: string
  /** More flags, e.g. `--feature-gates=...`. */
  readonly flags?: readonly string[]
}

/** Starts a real kube-apiserver on a free loopback port over a running etcd; resolves when `/readyz` says so. It makes its own certificate. */
export async function startKubeApiserver(options: KubeApiserverOptions): Promise<KubeApiserver> {
  const program = requirePart('kube-apiserver')
  const directory = await mkdtemp(join(tmpdir(), 'taproot-kube-apiserver-'))
  const [port = 0] = await freePorts(1)
  const token = randomBytes(16).toString('hex')
  await writeFiles(directory, token)
  const child = spawn(program, flagsOf(options, { directory, port }), { stdio: ['ignore', 'ignore', 'pipe'] })
  let output = ''
  child.stderr.on('data', (chunk) => (output = (output + String(chunk)).slice(-8000)))
  const killChild = (): void => void child.kill('SIGKILL')
  process.once('exit', killChild)
  child.once('exit', () => process.off('exit', killChild))
  const stop = async (): Promise<void> => {
    await end(child)
    await rm(directory, { recursive: true, force: true, maxRetries: 3 })
  }
  const certFile = join(directory, 'certificates', 'apiserver.crt')
  try {
    const deadline = performance.now() + startPatienceMs
    while (!(await isReady(port, token))) {
      if (child.exitCode !== null || performance.now() > deadline) throw new Error(`kube-apiserver did not start:\n${output}`)
      await delay(50)
    }
    const ca = await readFile(certFile, 'utf8')
    return {
      url: `https://127.0.0.1:${port}`,
      port,
      pid: child.pid ?? 0,
      ca,
      certFile,
      keyFile: join(directory, 'certificates', 'apiserver.key'),
      token,
      get output() {
        return output
      },
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** The token file and the keys of service accounts. */
async function writeFiles(directory: string, token: string): Promise<void> {
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
  const values = {
    'etcd-servers': options.etcdEndpoints.join(','),
    'etcd-prefix': options.etcdPrefix ?? '/registry',
    'bind-address': '127.0.0.1',
    'secure-port': String(port),
    'advertise-address': advertiseAddress,
    'endpoint-reconciler-type': 'none',
    'service-cluster-ip-range': serviceRange,
    'cert-dir': join(directory, 'certificates'),
    'token-auth-file': join(directory, 'tokens.csv'),
    'authorization-mode': 'RBAC',
    'service-account-issuer': 'https://kubernetes.default.svc',
    'service-account-signing-key-file': join(directory, 'service-accounts.key'),
    'service-account-key-file': join(directory, 'service-accounts.pub'),
  }
  return [...Object.entries(values).map(([name, value]) => `--${name}=${value}`), ...(options.flags ?? [])]
}

/** Its own certificate is not there before it is ready: not checked here. */
async function isReady(port: number, token: string): Promise<boolean> {
  const sent = request({ host: '127.0.0.1', port, path: '/readyz', rejectUnauthorized: false, headers: { authorization: `Bearer ${token}` }, timeout: 2000 })
  sent.on('timeout', () => sent.destroy())
  sent.end()
  try {
    const [response] = await once(sent, 'response')
    response.resume()
    return response.statusCode === 200
  } catch {
    // Nothing listens yet.
    return false
  }
}

/** Its graceful end waits for watches: killed, as it has nothing that etcd has not. */
async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}
