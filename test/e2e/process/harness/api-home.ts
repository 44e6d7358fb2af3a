import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { localIssuer, sign, testKey } from '../../../auth/parts.ts'
import { restClient, type ApiClient } from '../../../support/api-clients.ts'
import { etcdSettings, shareEtcd, type EtcdSpace } from '../../../support/parts/etcd.ts'
import { freePorts } from '../../../support/parts/free-port.ts'
import { startRegistry } from '../../../support/parts/registry.ts'
import { ok } from '../../../support/test-server.ts'
import { freshDirectory, isReady, startProcess, type TaprootProcess } from './taproot-process.ts'

/** The folder, ports and settings of an `api` process that is started repeatedly. */
export interface ApiHome {
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly apiPort: number
  readonly opsPort: number
  readonly rest: ApiClient
}

/** The shared settings of the processes of one installation. */
export interface Installation {
  readonly etcd: Pick<EtcdSpace, 'endpoints' | 'prefix'>
  /** Settings for every process. */
  readonly env?: Readonly<Record<string, string>>
}

/** Creates the homes of `count` processes of one installation, under the base URL of the first and with one encryption key. */
export async function makeApiHomes(count: number, { etcd, env = {} }: Installation): Promise<{ homes: readonly ApiHome[]; baseUrl: string }> {
  const cwd = await freshDirectory()
  const keyFile = join(cwd, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  const ports = await freePorts(3 * count)
  const baseUrl = `http://localhost:${ports[0]}`
  const homes = Array.from({ length: count }, (_, index): ApiHome => {
    const [apiPort = 0, opsPort = 0, registryPort = 0] = ports.slice(3 * index)
    const settings = {
      TAPROOT_BASE_URL: baseUrl,
      TAPROOT_DATA_DIR: join(cwd, String(index)),
      TAPROOT_LISTEN: '127.0.0.1',
      TAPROOT_API_PORT: String(apiPort),
      TAPROOT_OPS_PORT: String(opsPort),
      TAPROOT_REGISTRY_PORT: String(registryPort),
      TAPROOT_REGISTRY_HOST: 'registry.example',
      ...etcdSettings(etcd),
      TAPROOT_ENCRYPTION_KEY_FILE: keyFile,
      TAPROOT_RATE_LIMIT_ENABLED: 'false',
      ...env,
    }
    return { cwd, env: settings, apiPort, opsPort, rest: restClient(`http://127.0.0.1:${apiPort}`) }
  })
  return { homes, baseUrl }
}

/** An installation with an upstream registry and an operator. The registry stops after the test. */
export interface OperatedInstallation {
  readonly homes: readonly ApiHome[]
  /** Resolves with an access token of the operator, for the API or another audience. An API server must run. */
  operatorToken(audience?: string): Promise<string>
}

/** Creates homes like `makeApiHomes` on the etcd of the worker. */
export async function makeOperatedHomes(count: number, env: Readonly<Record<string, string>> = {}): Promise<OperatedInstallation> {
  const [etcd, upstream, key] = [await shareEtcd(), await startRegistry(), await testKey()]
  onTestFinished(() => upstream.stop())
  const { issuer } = await localIssuer([key])
  const own = {
    TAPROOT_ISSUERS: JSON.stringify([{ issuer, allowPrivate: true }]),
    TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ issuer, subject: 'admin' }]),
    TAPROOT_LOG_LEVEL: 'error',
    TAPROOT_REGISTRY_UPSTREAM_URL: upstream.url,
  }
  const { homes, baseUrl } = await makeApiHomes(count, { etcd, env: { ...own, ...env } })
  return {
    homes,
    async operatorToken(audience) {
      const nowSeconds = Math.floor(Date.now() / 1000)
      const external = await sign(key, { iss: issuer, sub: 'admin', aud: baseUrl, iat: nowSeconds, exp: nowSeconds + 3600 })
      const reply = await homes[0]?.rest.call('SecurityTokenService/Exchange', audience === undefined ? {} : { aud: [audience] }, { token: external })
      if (reply === undefined) throw new Error('an installation has a home')
      return String(ok(reply)['token'])
    },
  }
}

/** Starts `taproot api` and waits until it is ready. */
export async function startApi(home: ApiHome): Promise<TaprootProcess> {
  const started = startProcess({ args: ['api'], env: home.env, cwd: home.cwd })
  await started.until(() => isReady(home.opsPort))
  return started
}
