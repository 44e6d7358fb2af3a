import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { onTestFinished } from 'vitest'
import { createKubeClient, type KubeClient } from '../../../src/kubernetes/client/kube-client.ts'
import { KubeError, type ObjectType } from '../../../src/kubernetes/kube-api.ts'
import { selfSigned } from '../../auth/certificate.ts'
import { random } from '../kube-bench.ts'

const pods: ObjectType = { group: '', version: 'v1', kind: 'Pod', plural: 'pods', namespaced: true }
const signal = new AbortController().signal
export const own = selfSigned('kube.example')
export const person = selfSigned('person')
export const base64 = (text: string): string => Buffer.from(text).toString('base64')

/** What the API server saw of a request. */
export interface Caller {
  readonly authorization: string | undefined
  /** The values of each header that was sent, one for each line. */
  readonly headers: NodeJS.Dict<string[]>
  /** Subject of the client certificate. */
  readonly certificate: string | undefined
  readonly serverName: string
}

/** An API server that records its callers, and a folder for kubeconfigs and plugins. */
export interface KubeconfigBench {
  readonly url: string
  readonly folder: string
  readonly callers: Caller[]
  /** The tokens that the server refuses. */
  readonly refused: Set<string>
  stop(): Promise<void>
}

/** Starts the API server. */
export async function startBench(): Promise<KubeconfigBench> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-kubeconfig-'))
  const callers: Caller[] = []
  const refused = new Set<string>()
  const server = createServer({ key: own.key, cert: own.certificate, requestCert: true, rejectUnauthorized: false }, (request, response) => {
    // The server is TLS, so its sockets are.
    const socket = request.socket as TLSSocket
    const { raw } = socket.getPeerCertificate()
    const { authorization } = request.headers
    callers.push({
      authorization,
      headers: request.headersDistinct,
      certificate: raw === undefined ? undefined : new X509Certificate(raw).subject,
      serverName: String(socket.servername),
    })
    response.statusCode = refused.has(authorization?.slice('Bearer '.length) ?? '') ? 401 : 200
    response.end(JSON.stringify({ metadata: { resourceVersion: '1' }, items: [] }))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    folder,
    callers,
    refused,
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await rm(folder, { recursive: true })
    },
  }
}

const trusted = { 'certificate-authority-data': base64(own.certificate) }

/** Returns a kubeconfig with one user and one cluster. */
export function configOf({ url }: KubeconfigBench, user: object, cluster: object = trusted): object {
  return {
    'current-context': 'main',
    contexts: [{ name: 'main', context: { cluster: 'c', user: 'u' } }],
    clusters: [{ name: 'c', cluster: { server: `${url}/`, ...cluster } }],
    users: [{ name: 'u', user }],
  }
}

/** Writes a kubeconfig and opens a client with it. */
export async function clientWith(bench: KubeconfigBench, user: object, cluster?: object): Promise<KubeClient> {
  return await clientOf(bench, JSON.stringify(configOf(bench, user, cluster)))
}

/** Writes the text of a kubeconfig and opens a client with it. */
export async function clientOf({ folder }: KubeconfigBench, text: string): Promise<KubeClient> {
  const file = join(folder, 'config')
  await writeFile(file, text)
  const client = createKubeClient({ endpoint: { from: 'kubeconfig', file, environment: process.env }, userAgent: 'taproot-test', random })
  onTestFinished(() => client.close())
  return client
}

/** Sends a request. Returns what the server saw. */
export async function callerOf({ callers }: KubeconfigBench, client: KubeClient): Promise<Caller | undefined> {
  callers.length = 0
  await client.list(pods, { limit: 1 }, signal)
  return callers[0]
}

/** Sends a request that fails. Returns its error. */
export async function failureOf(client: KubeClient): Promise<KubeError> {
  const failed = await client.list(pods, { limit: 1 }, signal).catch((thrown: unknown) => thrown)
  if (!(failed instanceof KubeError)) throw new Error('the request did not fail as expected', { cause: failed })
  return failed
}

/** Writes a program that runs a shell script. Returns its file name. */
export async function plugin({ folder }: KubeconfigBench, name: string, script: string): Promise<string> {
  await writeFile(join(folder, name), `#!/bin/sh\n${script}\n`)
  await chmod(join(folder, name), 0o755)
  return `./${name}`
}

/** A line of a script that prints a credential. */
export const prints = (status: object): string =>
  `cat <<'END'\n${JSON.stringify({ apiVersion: 'client.authentication.k8s.io/v1', kind: 'ExecCredential', status })}\nEND`
