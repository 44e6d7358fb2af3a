import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:https'
import { connect, type AddressInfo } from 'node:net'
import { createServer as createProxy } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createKubeClient, type KubeClient } from '../../../src/kubernetes/client/kube-client.ts'
import type { ObjectType } from '../../../src/kubernetes/kube-api.ts'
import { selfSigned } from '../../auth/certificate.ts'
import { random } from '../kube-bench.ts'

const pods: ObjectType = { group: '', version: 'v1', kind: 'Pod', plural: 'pods', namespaced: true }
const signal = new AbortController().signal
const own = selfSigned('kube.example')
const person = selfSigned('person')
const base64 = (text: string): string => Buffer.from(text).toString('base64')

/** What the API server saw of a request. */
interface Caller {
  readonly authorization: string | undefined
  readonly actsAs: string | undefined
  /** Subject of the client certificate. */
  readonly certificate: string | undefined
  readonly serverName: string
}

let server: Server
let folder: string
let url: string
const callers: Caller[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'taproot-kubeconfig-'))
  server = createServer({ key: own.key, cert: own.certificate, requestCert: true, rejectUnauthorized: false }, (request, response) => {
    // The server is TLS, so its sockets are.
    const socket = request.socket as TLSSocket
    const { raw } = socket.getPeerCertificate()
    callers.push({
      authorization: request.headers.authorization,
      actsAs: request.headers['impersonate-user']?.toString(),
      certificate: raw === undefined ? undefined : new X509Certificate(raw).subject,
      serverName: String(socket.servername),
    })
    response.end(JSON.stringify({ metadata: { resourceVersion: '1' }, items: [] }))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server?.closeAllConnections()
  server?.close()
  await rm(folder, { recursive: true })
})

/** Writes a kubeconfig and opens a client with it. */
async function clientWith(user: object, cluster: object = { 'certificate-authority-data': base64(own.certificate) }): Promise<KubeClient> {
  const file = join(folder, 'config')
  const config = {
    'current-context': 'main',
    contexts: [{ name: 'main', context: { cluster: 'c', user: 'u' } }],
    clusters: [{ name: 'c', cluster: { server: `${url}/`, ...cluster } }],
    users: [{ name: 'u', user }],
  }
  await writeFile(file, JSON.stringify(config))
  const client = createKubeClient({ endpoint: { from: 'kubeconfig', file, environment: process.env }, userAgent: 'taproot-test', random })
  onTestFinished(() => client.close())
  return client
}

/** Sends a request. Returns what the server saw. */
async function callerOf(client: KubeClient): Promise<Caller | undefined> {
  callers.length = 0
  await client.list(pods, { limit: 1 }, signal)
  return callers[0]
}

/** Writes a program that runs a shell script. Returns its file name. */
async function plugin(name: string, script: string): Promise<string> {
  await writeFile(join(folder, name), `#!/bin/sh\n${script}\n`)
  await chmod(join(folder, name), 0o755)
  return `./${name}`
}

/** A line of a script that prints a credential. */
const prints = (status: object): string =>
  `cat <<'END'\n${JSON.stringify({ apiVersion: 'client.authentication.k8s.io/v1', kind: 'ExecCredential', status })}\nEND`

describe('a user of a kubeconfig', () => {
  test.each<[string, object, Partial<Caller>]>([
    ['a token', { token: 'T' }, { authorization: 'Bearer T' }],
    ['a name and password', { username: 'u', password: 'p:w' }, { authorization: `Basic ${base64('u:p:w')}` }],
    ['a certificate', { 'client-certificate-data': base64(person.certificate), 'client-key-data': base64(person.key) }, { certificate: 'CN=person' }],
    ['another user to act as', { token: 'T', as: 'someone' }, { authorization: 'Bearer T', actsAs: 'someone' }],
    ['no credential', {}, { authorization: undefined, certificate: undefined }],
  ])('%s reaches the API server', async (_title, user, seen) => {
    expect(await callerOf(await clientWith(user))).toMatchObject(seen)
  })

  test('files are named relative to the kubeconfig, and read again for each request', async () => {
    for (const [name, text] of Object.entries({ ca: own.certificate, cert: person.certificate, key: person.key, token: 'one\n' })) {
      await writeFile(join(folder, `${name}.pem`), text)
    }
    const user = { 'client-certificate': 'cert.pem', 'client-key': 'key.pem', tokenFile: 'token.pem', token: 'not this one' }
    const client = await clientWith(user, { 'certificate-authority': 'ca.pem' })
    expect(await callerOf(client)).toMatchObject({ authorization: 'Bearer one', certificate: 'CN=person' })
    await writeFile(join(folder, 'token.pem'), 'two\n')
    const other = selfSigned('other')
    await writeFile(join(folder, 'cert.pem'), other.certificate)
    await writeFile(join(folder, 'key.pem'), other.key)
    expect(await callerOf(client)).toMatchObject({ authorization: 'Bearer two', certificate: 'CN=other' })
  })

  test('an auth-provider is refused, with what to use', async () => {
    await expect(clientWith({ 'auth-provider': { name: 'gcp' } })).rejects.toThrow('use exec')
  })
})

describe('an exec plugin of a kubeconfig', () => {
  test('it runs again only after its token expired', async () => {
    const later = new Date(Date.now() + 3_600_000).toISOString()
    const counting = (name: string, expirationTimestamp: string): Promise<string> =>
      plugin(name, `echo run >> "$LOG"; ${prints({ token: 'from plugin', expirationTimestamp })}`)
    for (const [name, expiry, runs] of [['fresh', later, 1] as const, ['expired', '2020-01-01T00:00:00Z', 3] as const]) {
      const log = join(folder, `${name}.log`)
      const client = await clientWith({ exec: { command: await counting(name, expiry), env: [{ name: 'LOG', value: log }] } })
      for (let i = 0; i < 3; i += 1) expect(await callerOf(client)).toMatchObject({ authorization: 'Bearer from plugin' })
      expect(readFileSync(log, 'utf8').split('\n').length - 1).toBe(runs)
    }
  })

  test('requests at the same time wait for one run', async () => {
    const log = join(folder, 'once.log')
    const command = await plugin('once', `echo run >> "$LOG"; sleep 0.3; ${prints({ token: 'shared' })}`)
    const client = await clientWith({ exec: { command, env: [{ name: 'LOG', value: log }] } })
    await Promise.all([callerOf(client), callerOf(client), callerOf(client)])
    expect(readFileSync(log, 'utf8')).toBe('run\n')
  })

  test('its certificate is that of the client', async () => {
    const command = await plugin('certificate', prints({ clientCertificateData: person.certificate, clientKeyData: person.key }))
    expect(await callerOf(await clientWith({ exec: { command } }))).toMatchObject({ certificate: 'CN=person', authorization: undefined })
  })

  test('it gets its arguments, and what it asks for about the cluster', async () => {
    const out = join(folder, 'info.json')
    const command = await plugin('info', `printf '%s' "$KUBERNETES_EXEC_INFO" > "$OUT"; [ "$1 $2" = "get token" ] || exit 1; ${prints({ token: 'T' })}`)
    const exec = {
      apiVersion: 'client.authentication.k8s.io/v1beta1',
      command,
      args: ['get', 'token'],
      env: [{ name: 'OUT', value: out }],
      provideClusterInfo: true,
    }
    expect(await callerOf(await clientWith({ exec }))).toMatchObject({ authorization: 'Bearer T' })
    expect(JSON.parse(readFileSync(out, 'utf8'))).toEqual({
      apiVersion: 'client.authentication.k8s.io/v1beta1',
      kind: 'ExecCredential',
      spec: { interactive: false, cluster: { server: url, 'certificate-authority-data': base64(own.certificate) } },
    })
  })

  test.each([
    ['that fails', 'echo "sign in first" >&2; exit 1', /sign in first/],
    ['that prints no credential', 'echo "{}"', /printed no credential/],
    ['with an empty credential', prints({}), /neither a token nor a certificate/],
    ['that prints no JSON', 'echo hello', /JSON/],
  ])('a plugin %s is an error with its reason, and runs again for the next request', async (title, script, reason) => {
    const name = title.replaceAll(' ', '-')
    const client = await clientWith({ exec: { command: await plugin(name, script) } })
    const error: unknown = await client.list(pods, { limit: 1 }, signal).then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    expect(error).toMatchObject({ name: 'KubeError', reason: 'unauthorized', cause: { message: expect.stringMatching(reason) as unknown } })
    await plugin(name, prints({ token: 'now' }))
    expect(await callerOf(client)).toMatchObject({ authorization: 'Bearer now' })
  })
})

describe('a cluster of a kubeconfig', () => {
  const unknown = base64(person.certificate)

  test.each<[string, object, Partial<Caller>]>([
    [
      'another name in its certificate',
      { 'certificate-authority-data': base64(own.certificate), 'tls-server-name': 'kube.example' },
      { serverName: 'kube.example' },
    ],
    ['a certificate that is not verified', { 'insecure-skip-tls-verify': true }, {}],
  ])('with %s is reached', async (_title, cluster, seen) => {
    expect(await callerOf(await clientWith({ token: 'T' }, cluster))).toMatchObject({ authorization: 'Bearer T', ...seen })
  })

  test.each<[string, object]>([
    ['another authority', { 'certificate-authority-data': unknown }],
    ['no authority', {}],
    ['another name', { 'certificate-authority-data': base64(own.certificate), 'tls-server-name': 'other.example' }],
  ])('with %s gets no credential', async (_title, cluster) => {
    callers.length = 0
    const client = await clientWith({ token: 'T' }, cluster)
    await expect(client.list(pods, { limit: 1 }, signal)).rejects.toMatchObject({ name: 'KubeError', reason: 'unavailable' })
    expect(callers).toEqual([])
  })

  test('a proxy is used for the connection', async () => {
    const targets: string[] = []
    const proxy = createProxy().on('connect', (request, socket) => {
      targets.push(request.url ?? '')
      const inner = connect(Number(request.url?.split(':')[1]), '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n')
        inner.pipe(socket).pipe(inner)
      })
      inner.on('error', () => socket.destroy())
      socket.on('error', () => inner.destroy())
    })
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    onTestFinished(() => void proxy.close())
    const cluster = { 'certificate-authority-data': base64(own.certificate), 'proxy-url': `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` }
    expect(await callerOf(await clientWith({ token: 'T' }, cluster))).toMatchObject({ authorization: 'Bearer T' })
    expect(targets).toEqual([url.slice('https://'.length)])
  })

  test('a proxy of another kind is refused', async () => {
    await expect(clientWith({}, { 'proxy-url': 'socks5://127.0.0.1:1' })).rejects.toThrow('not an HTTP proxy')
  })
})
