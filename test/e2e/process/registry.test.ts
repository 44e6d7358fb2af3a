import { randomBytes } from 'node:crypto'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import { describe, expect, onTestFinished, test } from 'vitest'
import { selfSigned } from '../../auth/certificate.ts'
import { ok } from '../../support/test-server.ts'
import { crane, type CraneResult } from '../../support/parts/crane.ts'
import { etcdSettings, shareEtcd } from '../../support/parts/etcd.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { makeDevHome, readToken, startDev, type DevHome } from './harness/dev-home.ts'
import { freshDirectory, isReady, runProcess, startProcess } from './harness/taproot-process.ts'

async function registryToken(home: DevHome): Promise<string> {
  return (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim()
}

/** Runs crane as the demo owner. */
async function craneAt(home: DevHome, host: string, ...args: string[]): Promise<CraneResult> {
  const auth = Buffer.from(`_token:${await registryToken(home)}`).toString('base64')
  await writeFile(join(home.cwd, 'config.json'), JSON.stringify({ auths: { [host]: { auth } } }))
  return await crane(args, { env: { DOCKER_CONFIG: home.cwd }, cwd: home.cwd })
}

/** An empty tar file: a layer. */
async function layer(home: DevHome): Promise<string> {
  await writeFile(join(home.cwd, 'layer.tar'), Buffer.alloc(10_240))
  return 'layer.tar'
}

describe('taproot dev', () => {
  test('taproot dev serves the registry host, and writes a registry token for the owner', async () => {
    const home = await makeDevHome()
    const dev = await startDev(home)
    const host = `localhost:${home.env['TAPROOT_REGISTRY_PORT']}`
    expect(dev.stdout).toContain(`http://${host}`)
    expect(dev.stdout).toContain('.taproot/registry-token')
    const file = join(home.cwd, '.taproot', 'registry-token')
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(decodeJwt(await registryToken(home))).toMatchObject({ aud: host, sub: decodeJwt(await readToken(home)).sub })
    const pushed = await craneAt(home, host, 'append', '--oci-empty-base', '-f', await layer(home), '-t', `${host}/demo/app:v1`)
    expect(pushed, pushed.stderr).toMatchObject({ code: 0 })
    const { repos } = ok(await home.rest.call('ListRepos', {}, { token: await readToken(home) })) as unknown as { repos: { name: string }[] }
    expect(repos.map(({ name }) => name)).toEqual(['app'])
    for (let time = 0; time < 3; time++) expect(await craneAt(home, host, 'export', `${host}/demo/app:v1`, '-')).toMatchObject({ code: 0 })
    const metrics = await (await fetch(`http://127.0.0.1:${home.env['TAPROOT_OPS_PORT']}/metrics`)).text()
    for (const source of ['memory', 'upstream']) expect(metrics).toMatch(new RegExp(`^taproot_registry_blobs_total\\{source="${source}"\\} [1-9]`, 'm'))
    expect((await dev.end('SIGTERM')).code).toBe(0)
    const again = await startDev(home)
    expect(await craneAt(home, host, 'ls', `${host}/demo/app`)).toMatchObject({ code: 0, stdout: 'v1\n' })
    await again.end('SIGTERM')
  })

  test('taproot dev serves the registry host over TLS', async () => {
    const { certificate, key } = selfSigned('localhost')
    const cwd = await freshDirectory()
    await writeFile(join(cwd, 'cert.pem'), certificate)
    await writeFile(join(cwd, 'key.pem'), key)
    const home = await makeDevHome({ TAPROOT_REGISTRY_TLS_CERT_FILE: join(cwd, 'cert.pem'), TAPROOT_REGISTRY_TLS_KEY_FILE: join(cwd, 'key.pem') })
    await startDev(home)
    const port = home.env['TAPROOT_REGISTRY_PORT']
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    request({ host: '127.0.0.1', port, servername: 'localhost', path: '/v2/', ca: certificate }, (response) => {
      response.resume()
      resolve(`${response.statusCode} ${response.headers['www-authenticate']}`)
    })
      .on('error', reject)
      .end()
    expect(await promise).toBe(`401 Bearer realm="https://localhost:${port}/token",service="localhost:${port}"`)
  })
})

describe('taproot registry', () => {
  test('taproot registry serves the registry host on the store and an upstream registry, and continues without the API process', async () => {
    const upstream = await startRegistry()
    onTestFinished(() => upstream.stop())
    const [port = 0, opsPort = 0, apiPort = 0] = await freePorts(3)
    const host = `localhost:${port}`
    const keyFile = join(await freshDirectory(), 'key')
    await writeFile(keyFile, randomBytes(32).toString('hex'))
    const shared = {
      ...etcdSettings(await shareEtcd()),
      TAPROOT_ENCRYPTION_KEY_FILE: keyFile,
      TAPROOT_REGISTRY_HOST: host,
      TAPROOT_REGISTRY_UPSTREAM_URL: upstream.url,
    }
    const home = await makeDevHome(shared)
    const dev = await startDev(home)
    const env = {
      ...shared,
      TAPROOT_BASE_URL: `http://localhost:${home.apiPort}`,
      TAPROOT_LISTEN: '127.0.0.1',
      TAPROOT_REGISTRY_PORT: String(port),
      TAPROOT_OPS_PORT: String(opsPort),
      TAPROOT_API_PORT: String(apiPort),
      TAPROOT_STOP_DRAIN_SECONDS: '3',
    }
    const registry = startProcess({ args: ['registry'], env, cwd: await freshDirectory() })
    await registry.until(() => isReady(opsPort))
    await expect(fetch(`http://127.0.0.1:${apiPort}/`)).rejects.toThrow()

    const pushed = await craneAt(home, host, 'append', '--oci-empty-base', '-f', await layer(home), '-t', `${host}/demo/app:v1`)
    expect(pushed, pushed.stderr).toMatchObject({ code: 0 })
    const { tags } = ok(await home.rest.call('ListTags', {}, { token: await readToken(home) })) as unknown as { tags: { name: string }[] }
    expect(tags.map(({ name }) => name)).toEqual(['v1'])
    // A token that one process issued is good at the other.
    const authorization = `Bearer ${await registryToken(home)}`
    const answer = await fetch(`http://127.0.0.1:${home.env['TAPROOT_REGISTRY_PORT']}/token?scope=repository:demo/app:pull`, { headers: { authorization } })
    const { token } = (await answer.json()) as { token: string } // a cast of the answer: as documented
    const history = (): Promise<Response> => fetch(`http://${host}/v2/demo/app/_service/history/v1`, { headers: { authorization: `Bearer ${token}` } })
    expect((await history()).status).toBe(200)

    await dev.end('SIGKILL')
    expect((await history()).status).toBe(200)
    expect(await craneAt(home, host, 'ls', `${host}/demo/app`)).toMatchObject({ code: 0, stdout: 'v1\n' })
    expect(await craneAt(home, host, 'manifest', `${host}/demo/app:v1`)).toMatchObject({ code: 0 })
    await upstream.stop()
    expect((await history()).status).toBe(200)
    expect(await craneAt(home, host, 'ls', `${host}/demo/app`)).toMatchObject({ code: 0, stdout: 'v1\n' })
    expect(await isReady(opsPort)).toBe(true)
    const ending = registry.end('SIGTERM')
    await expect.poll(() => isReady(opsPort), { interval: 20 }).toBe(false)
    // It still serves while requests arrive.
    const last = await history()
    expect({ status: last.status, connection: last.headers.get('connection') }).toEqual({ status: 200, connection: 'close' })
    expect((await ending).code).toBe(0)
  })

  test.each([
    ['without an upstream', {}, 'registry.upstream.url (TAPROOT_REGISTRY_UPSTREAM_URL) is missing'],
    ['with an invalid address', { TAPROOT_REGISTRY_UPSTREAM_URL: 'https://registry.example/path' }, 'registry.upstream.url'],
  ])('taproot registry fails %s with one line that names the setting, and code 1', async (_, env, named) => {
    const cwd = await freshDirectory()
    const [port = 0, opsPort = 0, apiPort = 0] = await freePorts(3)
    const ports = { TAPROOT_REGISTRY_PORT: String(port), TAPROOT_OPS_PORT: String(opsPort), TAPROOT_API_PORT: String(apiPort), TAPROOT_DATA_DIR: cwd }
    const { code, stderr } = await runProcess({ args: ['registry'], env: { ...ports, ...env }, cwd })
    expect(code).toBe(1)
    expect(stderr.trimEnd().split('\n')).toEqual([expect.stringContaining(named)])
  })
})
