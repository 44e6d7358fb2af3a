import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { Agent, request, type IncomingMessage } from 'node:http'
import { connect, createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client, credentials } from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import { tokenWithClaims } from '../../auth/unsigned-token.ts'
import { grpcClient } from '../../support/api-clients.ts'
import { mountSecret } from '../../support/parts/mounted-secret.ts'
import { shareEtcd, startEtcd, type EtcdSpace } from '../../support/parts/etcd.ts'
import { makeApiHomes, startApi, type ApiHome } from './harness/api-home.ts'
import { isReady, runProcess, startProcess } from './harness/taproot-process.ts'

async function oneHome(etcd?: EtcdSpace): Promise<ApiHome> {
  const [home] = (await makeApiHomes(1, { etcd: etcd ?? (await shareEtcd()) })).homes
  if (home === undefined) throw new Error('one home')
  return home
}

async function ops(home: ApiHome, path: string): Promise<{ status: number; text: string }> {
  const response = await fetch(`http://127.0.0.1:${home.opsPort}${path}`)
  return { status: response.status, text: await response.text() }
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 20_000
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error('waited too long')
    await delay(20)
  }
}

test('taproot api is ready only while it serves, and on SIGTERM finishes running calls and exits with code 0', async () => {
  const home = await oneHome()
  const api = await startApi(home)
  // Ready, so the API answers: here with the error for a missing token.
  expect((await home.rest.call('ListGroups', {})).code).toBe(16)
  expect((await home.rest.call('PingService/Ping', {})).code).toBe(0)
  const half = connect(home.apiPort, '127.0.0.1').on('error', () => undefined)
  await once(half, 'connect')
  half.write('POST /iam/v2/groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"na')
  expect((await home.rest.call('ListGroups', {})).code).toBe(16)
  const startedAt = performance.now()
  const ending = api.end('SIGTERM')
  await until(async () => !(await isReady(home.opsPort)))
  const { code, stdout } = await ending
  expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
  expect(performance.now() - startedAt).toBeLessThan(5_000)
  half.destroy()
})

/** Resolves with the status in the answer of gRPC health: 1 is SERVING, 2 is NOT_SERVING. */
async function grpcHealth(client: Client): Promise<number | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer | undefined>()
  const same = (bytes: Buffer): Buffer => bytes
  client.makeUnaryRequest('/grpc.health.v1.Health/Check', same, same, Buffer.alloc(0), (error, answer) => (error === null ? resolve(answer) : reject(error)))
  return (await promise)?.at(1)
}

test('taproot api that drains still answers, reports not ready, and closes each connection after its answer', async () => {
  const home = await oneHome()
  const api = await startApi({ ...home, env: { ...home.env, TAPROOT_STOP_DRAIN_SECONDS: '5' } })
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const ask = async (): Promise<IncomingMessage> => {
    const sent = request({ port: home.apiPort, path: '/.well-known/jwks.json', agent }).end()
    const [response] = (await once(sent, 'response')) as [IncomingMessage] // a cast of the event's arguments
    response.resume()
    await once(response, 'end')
    return response
  }
  const grpc = grpcClient(`127.0.0.1:${home.apiPort}`)
  expect((await ask()).headers.connection).toBe('keep-alive')
  expect((await grpc.call('PingService/Ping', {})).code).toBe(0)
  const health = new Client(`127.0.0.1:${home.apiPort}`, credentials.createInsecure())
  expect(await grpcHealth(health)).toBe(1)
  const ending = api.end('SIGTERM')
  await until(async () => !(await isReady(home.opsPort)))
  expect(await grpcHealth(health)).toBe(2)
  // Over the existing connection, and over a new one.
  for (const answer of [await ask(), await ask()])
    expect({ status: answer.statusCode, connection: answer.headers.connection }).toEqual({ status: 200, connection: 'close' })
  expect((await home.rest.call('PingService/Ping', {})).code).toBe(0)
  // The client was asked to reconnect, and did.
  expect((await grpc.call('PingService/Ping', {})).code).toBe(0)
  expect((await ending).code).toBe(0)
  agent.destroy()
  grpc.close()
  health.close()
})

test('taproot api without its etcd stays alive, reports not ready, and becomes ready by itself', async () => {
  const etcd = await startEtcd()
  onTestFinished(() => etcd.stop())
  await etcd.members[0]?.kill()
  const home = await oneHome(etcd)
  const api = startProcess({ args: ['api'], env: home.env, cwd: home.cwd })
  await api.until(async () => (await ops(home, '/healthz').catch(() => undefined))?.status === 200)
  const notReady = await ops(home, '/readyz')
  expect(notReady.status).toBe(503)
  expect(notReady.text).toContain('snapshot')
  await etcd.members[0]?.restart()
  await api.until(() => isReady(home.opsPort))
  expect((await home.rest.call('ListGroups', {})).code).toBe(16)
})

test('taproot api that never reached its etcd stops on SIGTERM within 5 s with code 0', async () => {
  const [home] = (await makeApiHomes(1, { etcd: { endpoints: ['http://127.0.0.1:1'], prefix: '/taproot' } })).homes
  if (home === undefined) throw new Error('one home')
  const api = startProcess({ args: ['api'], env: home.env, cwd: home.cwd })
  await api.until(async () => (await ops(home, '/healthz').catch(() => undefined))?.status === 200)
  const startedAt = performance.now()
  expect((await api.end('SIGTERM')).code).toBe(0)
  expect(performance.now() - startedAt).toBeLessThan(5_000)
})

test.each(['api.port', 'ops.port'])('a busy %s ends in one line that names the setting, and code 1', async (setting) => {
  const home = await oneHome()
  const busy = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void busy.close())
  await once(busy, 'listening')
  const variable = `TAPROOT_${setting.replace('.', '_').toUpperCase()}`
  // A listening TCP server has an AddressInfo.
  const port = String((busy.address() as AddressInfo).port)
  const { code, stderr } = await runProcess({ args: ['api'], env: { ...home.env, TAPROOT_LOG_LEVEL: 'error', [variable]: port }, cwd: home.cwd })
  expect(code).toBe(1)
  expect(stderr.trimEnd().split('\n')).toEqual([expect.stringContaining(variable)])
  expect(stderr).toContain(port)
})

test.each([
  ['that does not exist', undefined],
  ['that is too short', 'short'],
])('an encryption key file %s ends in one line, and code 1', async (_, content) => {
  const home = await oneHome()
  const keyFile = join(home.cwd, 'other.key')
  if (content !== undefined) await writeFile(keyFile, content)
  const env = { ...home.env, TAPROOT_LOG_LEVEL: 'error', TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
  const { code, stderr } = await runProcess({ args: ['api'], env, cwd: home.cwd })
  expect(code).toBe(1)
  expect(stderr.trimEnd().split('\n')).toEqual([expect.stringMatching(/^taproot: .*key/)])
})

test('an encryption key other than that of the store is refused', async () => {
  const home = await oneHome()
  await (await startApi(home)).end('SIGTERM')
  const keyFile = join(home.cwd, 'other.key')
  await writeFile(keyFile, 'ab'.repeat(32))
  const env = { ...home.env, TAPROOT_LOG_LEVEL: 'error', TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
  const { code, stderr } = await runProcess({ args: ['api'], env, cwd: home.cwd })
  expect(code).toBe(1)
  expect(stderr.trimEnd().split('\n')).toEqual([expect.stringMatching(/^taproot: .*key/)])
  await startApi(home)
})

test('taproot api stops in an orderly way to restart with a new issuer in its token; a new token of the same issuer changes nothing', async () => {
  const [first, next] = ['https://kubernetes.default.svc.cluster.local', 'https://oidc.cloud.example/id/4711']
  const mount = await mountSecret({ token: tokenWithClaims({ iss: first, jti: '1' }) })
  onTestFinished(() => mount.remove())
  const env = { TAPROOT_KUBERNETES_TOKEN_FILE: mount.path('token'), TAPROOT_BOOTSTRAP_OPERATORS: '[{"subject":"system:serviceaccount:platform:admin"}]' }
  const [home] = (await makeApiHomes(1, { etcd: await shareEtcd(), env })).homes
  if (home === undefined) throw new Error('one home')
  const api = await startApi(home)
  await mount.replace({ token: tokenWithClaims({ iss: first, jti: '2' }) })
  await mount.replace({ token: tokenWithClaims({ iss: next, jti: '3' }) })
  const { code, stdout, stderr } = await api.ending()
  expect(code).toBe(0)
  const [line = ''] = `${stdout}${stderr}`.split('\n').filter((one) => one.includes('another issuer of service account tokens'))
  expect(JSON.parse(line)).toMatchObject({ level: 40, issuer: first, next })
  await startApi(home)
})
