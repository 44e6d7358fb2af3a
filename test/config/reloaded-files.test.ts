import { X509Certificate } from 'node:crypto'
import { writeFile, rm } from 'node:fs/promises'
import { createServer, request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { connect, type TLSSocket } from 'node:tls'
import { hash } from 'bcryptjs'
import { Etcd3 } from 'etcd3'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createIssuerSource } from '../../src/auth/oidc/issuer-source.ts'
import { createSafeFetch } from '../../src/auth/safe-fetch.ts'
import { loadConfig } from '../../src/config/load-config.ts'
import { openIssuers } from '../../src/config/files/open-files.ts'
import { ReloadedFiles } from '../../src/config/files/reloaded-files.ts'
import { openUpstream } from '../../src/server/open-upstream.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import { silentLog, soon } from '../store/store-harness.ts'
import { freshName, startTestServer, type TestServer, type TestServerOptions } from '../support/test-server.ts'
import { createAuthority, type IssuedCertificate, type TestAuthority } from '../support/parts/sign-in/authority.ts'
import { startEtcd, type EtcdOptions } from '../support/parts/etcd.ts'
import { mountSecret, type MountedSecret } from '../support/parts/mounted-secret.ts'
import { startRegistry } from '../support/parts/registry.ts'
import { describeWithPart } from '../support/parts/require-part.ts'

const secretOf = ({ certificate, key }: IssuedCertificate, authority: TestAuthority): Record<string, string> => ({
  'tls.crt': certificate,
  'tls.key': key,
  'ca.crt': authority.certificate,
})

async function mounted(files: Readonly<Record<string, string>>): Promise<MountedSecret> {
  const secret = await mountSecret(files)
  onTestFinished(() => secret.remove())
  return secret
}

async function started(options: TestServerOptions): Promise<TestServer> {
  const server = await startTestServer({ filesEveryMs: 20, ...options })
  onTestFinished(() => server.stop())
  return server
}

/** Opens a TLS connection that accepts any certificate. */
async function connected(port: number): Promise<TLSSocket> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const socket = connect({ host: '127.0.0.1', port, servername: 'localhost', rejectUnauthorized: false }, resolve)
  socket.on('error', reject)
  onTestFinished(() => void socket.destroy())
  await promise
  return socket
}

/** The fingerprint of the certificate that a new connection gets. */
async function servedAt(port: number): Promise<string | undefined> {
  const socket = await connected(port)
  const { fingerprint256 } = socket.getPeerCertificate()
  socket.destroy()
  return fingerprint256
}

const fingerprintOf = ({ certificate }: IssuedCertificate): string => new X509Certificate(certificate).fingerprint256

/** The status of an answer to a client that trusts `ca` alone. */
function statusOver(ca: string, port: number, path: string): Promise<number | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<number | undefined>()
  request({ host: '127.0.0.1', port, servername: 'localhost', path, ca, agent: false }, (response) => {
    response.resume()
    resolve(response.statusCode)
  })
    .on('error', reject)
    .end()
  return promise
}

/** A metric of one file. */
async function metricOf({ config }: TestServer, name: string, file: string): Promise<number | undefined> {
  const text = await (await fetch(`http://127.0.0.1:${config.ops.port}/metrics`)).text()
  const line = text.split('\n').find((one) => one.startsWith(`${name}{`) && one.includes(`file="${file}"`))
  return line === undefined ? undefined : Number(line.split(' ').at(-1))
}

describe('the certificate of a port', () => {
  /** Both ports over TLS, each with a Secret of its own. */
  async function bothPorts() {
    const authority = createAuthority()
    const first = authority.issue()
    const secrets = { api: await mounted(secretOf(first, authority)), registry: await mounted(secretOf(first, authority)) }
    const env = Object.fromEntries(
      (['api', 'registry'] as const).flatMap((name) => [
        [`TAPROOT_${name.toUpperCase()}_TLS_CERT_FILE`, secrets[name].path('tls.crt')],
        [`TAPROOT_${name.toUpperCase()}_TLS_KEY_FILE`, secrets[name].path('tls.key')],
      ]),
    )
    const server = await started({ env })
    return { authority, first, secrets, server, ports: { api: server.config.api.port, registry: server.config.registry.port } }
  }

  test('the certificate of a port is replaced without a restart: new connections get the new one, open connections continue', async () => {
    const { first, secrets, server, ports } = await bothPorts()
    for (const [name, path] of [['api', '/ping/v2'] as const, ['registry', '/v2/'] as const]) {
      const open = await connected(ports[name])
      expect(await servedAt(ports[name])).toBe(fingerprintOf(first))
      const next = createAuthority()
      const second = next.issue({ lifeSeconds: 7_200 })
      await secrets[name].replace(secretOf(second, next))
      await expect.poll(() => servedAt(ports[name])).toBe(fingerprintOf(second))
      expect(await statusOver(next.certificate, ports[name], path)).toBeLessThan(500)
      expect(open.destroyed).toBe(false)
      open.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
      expect(await new Promise((resolve) => open.once('data', (bytes) => resolve(String(bytes).slice(0, 8))))).toBe('HTTP/1.1')
    }
    const left = await metricOf(server, 'taproot_certificate_expiry_seconds', secrets.api.path('tls.crt'))
    expect(left).toBeGreaterThan(3_700)
    expect(left).toBeLessThanOrEqual(7_200)
  })

  test('a certificate in an unusable file is ignored: the fault is logged once and shown in a metric until the file is usable', async () => {
    const { authority, first, secrets, server, ports } = await bothPorts()
    const file = secrets.api.path('tls.crt')
    const errors = (): unknown[] => server.logs.filter(({ message }) => message.includes('are invalid'))
    const broken = [
      { 'tls.crt': authority.issue().certificate, 'tls.key': authority.issue().key },
      { 'tls.crt': first.certificate.slice(0, 200), 'tls.key': first.key },
      { 'tls.crt': '', 'tls.key': '' },
    ]
    for (const [at, files] of broken.entries()) {
      await secrets.api.replace(files)
      await expect.poll(() => errors().length).toBe(at + 1)
      expect(await metricOf(server, 'taproot_file_unusable', file)).toBe(1)
      expect(await servedAt(ports.api)).toBe(fingerprintOf(first))
    }
    await rm(file)
    await expect.poll(() => errors().length).toBe(broken.length + 1)
    // By the time that the other port has its certificate, the file was read many more times.
    const other = authority.issue()
    await secrets.registry.replace(secretOf(other, authority))
    await expect.poll(() => servedAt(ports.registry)).toBe(fingerprintOf(other))
    expect(errors().length).toBe(broken.length + 1)
    expect(await metricOf(server, 'taproot_file_unusable', secrets.registry.path('tls.crt'))).toBe(0)
    const last = authority.issue()
    await secrets.api.replace(secretOf(last, authority))
    await expect.poll(() => servedAt(ports.api)).toBe(fingerprintOf(last))
    expect(await metricOf(server, 'taproot_file_unusable', file)).toBe(0)
  })
})

describeWithPart('etcd', 'etcd', () => {
  const isReady = async ({ config }: TestServer): Promise<boolean> => (await fetch(`http://127.0.0.1:${config.ops.port}/readyz`)).ok
  const groupMade = async (server: TestServer): Promise<number> =>
    (await server.rest.call('CreateGroup', { group: { name: freshName('group') } }, { token: await server.operatorToken() })).code

  async function etcdWith(options: EtcdOptions) {
    const etcd = await startEtcd(options)
    onTestFinished(() => etcd.stop())
    return etcd
  }

  test('etcd is reached again after its certificates come from another authority', async () => {
    const authority = createAuthority()
    const member = await mounted(secretOf(authority.issue(), authority))
    const client = await mounted(secretOf(authority.issue({ name: 'taproot' }), authority))
    const tls = { certFile: member.path('tls.crt'), keyFile: member.path('tls.key'), clientCaFile: member.path('ca.crt') }
    const etcd = await etcdWith({ tls })
    const server = await started({
      etcd: { ...etcd, endpoints: [`https://localhost:${etcd.port}`] },
      env: {
        TAPROOT_STORE_ETCD_TLS_CA_FILE: client.path('ca.crt'),
        TAPROOT_STORE_ETCD_TLS_CERT_FILE: client.path('tls.crt'),
        TAPROOT_STORE_ETCD_TLS_KEY_FILE: client.path('tls.key'),
      },
    })
    expect(await groupMade(server)).toBe(0)
    const next = createAuthority()
    await member.replace(secretOf(next.issue(), next))
    await etcd.members[0]?.kill()
    await etcd.members[0]?.restart()
    await expect.poll(() => isReady(server)).toBe(false)
    await client.replace(secretOf(next.issue({ name: 'taproot', lifeSeconds: 7_200 }), next))
    await expect.poll(() => isReady(server)).toBe(true)
    expect(await groupMade(server)).toBe(0)
    expect(await metricOf(server, 'taproot_certificate_expiry_seconds', client.path('tls.crt'))).toBeGreaterThan(3_700)
  })

  test('etcd accepts writes after the password of its user changed', async () => {
    const etcd = await etcdWith({ flags: ['--auth-token-ttl=1'] })
    const admin = new Etcd3({ hosts: [...etcd.endpoints] })
    onTestFinished(() => admin.close())
    await admin.role('root').create()
    await admin.user('root').create('first')
    await admin.user('root').addRole('root')
    await admin.auth.authEnable()
    const secret = await mounted({ password: 'first\n' })
    const server = await started({
      etcd,
      env: { TAPROOT_STORE_ETCD_USERNAME: 'root', TAPROOT_STORE_ETCD_PASSWORD_FILE: secret.path('password') },
    })
    expect(await groupMade(server)).toBe(0)
    const other = new Etcd3({ hosts: [...etcd.endpoints], auth: { username: 'root', password: 'first' } })
    onTestFinished(() => other.close())
    await other.user('root').setPassword('second')
    await secret.replace({ password: 'second\n' })
    await expect.poll(() => groupMade(server)).toBe(0)
    await expect.poll(() => isReady(server)).toBe(true)
  })
})

describeWithPart('registry', 'the upstream registry', () => {
  test('the upstream registry is reached again after its certificate authority and password changed', async () => {
    const authority = createAuthority()
    const htpasswd = async (password: string): Promise<string> => `taproot:${await hash(password, 4)}\n`
    const own = await mounted({ ...secretOf(authority.issue(), authority), htpasswd: await htpasswd('first') })
    const auth = { htpasswd: { realm: 'upstream', path: own.path('htpasswd') } }
    const registry = await startRegistry({ tls: { certFile: own.path('tls.crt'), keyFile: own.path('tls.key') }, configuration: { auth } })
    onTestFinished(() => registry.stop())
    const ours = await mounted({ 'ca.crt': authority.certificate, password: 'first\n' })
    const { config } = loadConfig({
      env: {
        TAPROOT_REGISTRY_UPSTREAM_URL: `https://localhost:${registry.port}`,
        TAPROOT_REGISTRY_UPSTREAM_USERNAME: 'taproot',
        TAPROOT_REGISTRY_UPSTREAM_PASSWORD_FILE: ours.path('password'),
        TAPROOT_REGISTRY_UPSTREAM_CA_FILE: ours.path('ca.crt'),
      },
      role: 'dev',
    })
    const files = new ReloadedFiles(silentLog)
    const upstream = await openUpstream(config, { clock: systemClock, random: systemRandom, log: silentLog, files })
    onTestFinished(() => upstream?.close())
    await upstream?.ready(soon())
    const next = createAuthority()
    await own.replace({ ...secretOf(next.issue(), next), htpasswd: await htpasswd('second') })
    await registry.kill()
    await registry.restart()
    await expect(upstream?.ready(soon())).rejects.toMatchObject({ kind: 'unavailable' })
    await ours.replace({ 'ca.crt': next.certificate, password: 'first\n' })
    await files.lookAgain()
    await expect(upstream?.ready(soon())).rejects.toMatchObject({ kind: 'refused' })
    await ours.replace({ 'ca.crt': next.certificate, password: 'second\n' })
    await files.lookAgain()
    await upstream?.ready(soon())
  })
})

test("an issuer's certificate authority and token are reread from their files; a broken file changes nothing", async () => {
  const first = createAuthority()
  const bearers: (string | undefined)[] = []
  const { certificate: cert, key } = first.issue()
  const issuer = createServer({ cert, key }, (asked, answer) => {
    bearers.push(asked.headers.authorization)
    answer.end('{"keys":[]}')
  })
  onTestFinished(() => void issuer.close())
  await new Promise<void>((resolve) => void issuer.listen(0, '127.0.0.1', resolve))
  const url = `https://localhost:${(issuer.address() as AddressInfo).port}` // a cast: it listens on TCP
  const secret = await mounted({ 'ca.crt': first.certificate, token: 'one\n' })
  const issuers = [{ issuer: url, jwksUri: `${url}/keys`, caFile: secret.path('ca.crt'), tokenFile: secret.path('token'), allowPrivate: true }]
  const files = new ReloadedFiles(silentLog)
  const [row = { issuer: '' }] = openIssuers({ issuers }, files)
  const fetch = createSafeFetch()
  onTestFinished(() => fetch.close())
  const keysOf = createIssuerSource(fetch)
  await keysOf(row, soon())
  const second = createAuthority()
  const { certificate, key: otherKey } = second.issue()
  issuer.setSecureContext({ cert: certificate, key: otherKey })
  await expect(keysOf(row, soon())).rejects.toThrow()
  await secret.replace({ 'ca.crt': second.certificate, token: 'two\n' })
  await files.lookAgain()
  await keysOf(row, soon())
  await secret.replace({ 'ca.crt': 'no certificate', token: '\n' })
  await files.lookAgain()
  await keysOf(row, soon())
  expect(bearers).toEqual(['Bearer one', 'Bearer two', 'Bearer two'])
})

test('an unreadable file at the start is reported with its setting', async () => {
  const secret = await mounted({ 'tls.crt': 'no certificate', 'tls.key': '' })
  await writeFile(secret.path('empty'), '')
  await expect(started({ env: { TAPROOT_API_TLS_CERT_FILE: secret.path('tls.crt'), TAPROOT_API_TLS_KEY_FILE: secret.path('tls.key') } })).rejects.toThrow(
    `api.tls.certFile (TAPROOT_API_TLS_CERT_FILE): ${secret.path('tls.crt')}: the file contains no certificate (PEM)`,
  )
})

test('a file that is no trusted root ends the start, and later the previous content stays in use', async () => {
  const root = '{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}'
  const secret = await mounted({ 'trusted_root.json': root })
  const path = secret.path('trusted_root.json')
  const files = new ReloadedFiles(silentLog)
  const read = (): { readonly current: { readonly root: Buffer } } => {
    return files.read({ root: { setting: 'registry.signatures.trustedRootFile', path, kind: 'trustedRoot' } })
  }
  const group = read()
  for (const content of ['', 'null', '[]', '{}', '{"mediaType": 7}', root.slice(1)]) {
    await writeFile(path, content)
    expect(read).toThrow('registry.signatures.trustedRootFile')
    await files.lookAgain()
    expect(group.current.root.toString()).toBe(root)
  }
  await writeFile(path, `${root}\n`)
  await files.lookAgain()
  expect(group.current.root.toString()).toBe(`${root}\n`)
})
