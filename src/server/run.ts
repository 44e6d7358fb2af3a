import { mkdirSync } from 'node:fs'
import { join, relative } from 'node:path'
import type { Tracing } from '../base/tracing.ts'
import type { Config, Role } from '../config/config.ts'
import { otherIssuer } from '../config/cluster-issuer.ts'
import { loadConfig } from '../config/load-config.ts'
import { startDemo, type RunningDemo } from './dev-mode.ts'
import { createLogs, type Logs } from './logs/logger.ts'
import { devIssuerOf } from './print-dev-token.ts'
import { systemRandom } from './runtime.ts'
import { startServer, type RunningServer } from './server.ts'
import { openTracing } from './telemetry/tracing.ts'
import { withSetting } from '../config/setting-error.ts'

/** Interval at which the process checks whether the npm that started it still runs, in milliseconds. */
const parentCheckMs = 500
/** Time after which a slow start prints what it is waiting for, in milliseconds. */
const timeoutMs = 5_000
/** Interval at which the process checks the token from which the cluster's issuer was read, in milliseconds. */
const issuerCheckMs = 2_000

/**
 * Returns a signal that aborts at the first SIGINT or SIGTERM. It also aborts if npm started this process and has ended, since signals to
 * npm do not reach its children. A second signal ends the process at once.
 */
function stopSignal(): AbortSignal {
  const controller = new AbortController()
  const stop = (): void => {
    if (controller.signal.aborted) process.exit(130)
    controller.abort(new Error('stopped'))
  }
  process.on('SIGINT', stop)
  process.on('SIGTERM', stop)
  if (process.env['npm_lifecycle_event'] !== undefined) {
    const parent = process.ppid
    const timer = setInterval(() => {
      if (process.ppid !== parent) stop()
    }, parentCheckMs)
    timer.unref()
    controller.signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  }
  return controller.signal
}

/** Resolves when `signal` aborts. */
function aborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  if (signal.aborted) resolve()
  else signal.addEventListener('abort', () => resolve(), { once: true })
  return promise
}

/** Loads the configuration of a role and runs the role until a stop signal. Also stops if the issuer changes that was read from a token. */
async function run(
  role: Role,
  file: string | undefined,
  serve: (found: { config: Config; logs: Logs; tracing: Tracing | undefined; signal: AbortSignal }) => Promise<() => Promise<void>>,
): Promise<void> {
  const { config, warnings, clusterIssuer } = loadConfig({ file, env: process.env, role })
  if (role === 'dev') withSetting('dataDir', config.dataDir, () => mkdirSync(config.dataDir, { recursive: true, mode: 0o700 }))
  const logs = createLogs(config.log, role === 'dev' ? join(config.dataDir, 'taproot.log') : undefined)
  for (const warning of warnings) logs.log.warn(warning)
  const signal = stopSignal()
  const tracing = await openTracing({ env: process.env, log: logs.log, random: systemRandom, role })
  let stop: () => Promise<void>
  try {
    stop = await serve({ config, logs, tracing, signal })
  } catch (error) {
    // A stop signal during the start is not an error.
    if (signal.aborted) process.exit(0)
    throw error
  }
  const ends = [aborted(signal)]
  if (clusterIssuer !== undefined) ends.push(otherIssuer(clusterIssuer, { log: logs.log, everyMs: issuerCheckMs }, signal))
  await Promise.race(ends)
  await stop()
  await tracing?.close()
  await logs.close()
  process.exit(0)
}

/** Runs role `api` until SIGINT or SIGTERM. Throws ConfigError, PortError, StoreError. */
export function runApi(options: { config?: string }): Promise<void> {
  return run('api', options.config, async ({ config, logs, tracing, signal }) => {
    const server = await startServer({ config, ...logs, tracing, devIssuer: undefined, serves: ['api'] }, signal)
    logs.log.info('ready', { baseUrl: config.baseUrl, port: config.api.port, ops: config.ops.port, store: config.store.kind })
    return server.stop
  })
}

/** Runs role `registry` until SIGINT or SIGTERM. Throws ConfigError, PortError, StoreError. */
export function runRegistry(options: { config?: string }): Promise<void> {
  return run('registry', options.config, async ({ config, logs, tracing, signal }) => {
    const server = await startServer({ config, ...logs, tracing, devIssuer: undefined, serves: ['registry'] }, signal)
    logs.log.info('ready', { registry: config.registry.host, port: config.registry.port, ops: config.ops.port, store: config.store.kind })
    return server.stop
  })
}

/** Runs role `controller` until SIGINT or SIGTERM. Throws ConfigError, PortError, StoreError, SettingError. */
export function runController(options: { config?: string }): Promise<void> {
  return run('controller', options.config, async ({ config, logs, tracing, signal }) => {
    const server = await startServer({ config, ...logs, tracing, devIssuer: undefined, serves: ['controller'] }, signal)
    logs.log.info('ready', { ops: config.ops.port, store: config.store.kind })
    return server.stop
  })
}

/** Runs role `worker` until SIGINT or SIGTERM. Throws ConfigError, PortError, StoreError. */
export function runWorker(options: { config?: string }): Promise<void> {
  return run('worker', options.config, async ({ config, logs, tracing, signal }) => {
    const server = await startServer({ config, ...logs, tracing, devIssuer: undefined, serves: ['worker'] }, signal)
    logs.log.info('ready', { ops: config.ops.port, store: config.store.kind })
    return server.stop
  })
}

/** Returns the location of the store, and the setting that defines it. */
function storeName({ store }: Config): string {
  return store.kind === 'etcd' ? `${store.etcd.endpoints.join(', ')} (store.etcd.endpoints)` : `${store.sqlite.path} (store.sqlite.path)`
}

/** Returns the text that role `dev` prints after its start. */
function greeting(config: Config, demo: RunningDemo): string {
  const file = (name: string): string => relative(process.cwd(), join(config.dataDir, name))
  const token = file('token')
  return [
    `Taproot is running. Data: ${config.dataDir}  (Ctrl-C stops it)`,
    `  API (REST and gRPC)  ${config.baseUrl}`,
    `  registry host        ${config.registry.scheme}://${config.registry.host}`,
    `  health, metrics      http://localhost:${config.ops.port}/readyz  /metrics`,
    `  development issuer   ${config.baseUrl}/dev/issuer`,
    `  root group demo      ${demo.group}`,
    `  its owner            ${demo.owner ?? 'deleted: there is no token; start with a new dataDir to get one'}`,
    `  tokens, log          ${token}  ${file('registry-token')}  ${file('taproot.log')}`,
    'Try it:',
    `  curl -H "Authorization: Bearer $(cat ${token})" ${config.baseUrl}/iam/v2/groups`,
    '',
  ].join('\n')
}

/** Sets up the demo group. If that fails, stops the server. */
async function startDemoOrStop(server: RunningServer, options: Parameters<typeof startDemo>[1]): Promise<RunningDemo> {
  try {
    return await startDemo(server, options)
  } catch (error) {
    await server.stop()
    throw error
  }
}

/** Runs role `dev` until SIGINT or SIGTERM: the API and the registry host with a development issuer and a demo group. Log lines go to a file in `dataDir`. */
export function runDev(options: { config?: string }): Promise<void> {
  return run('dev', options.config, async ({ config, logs, tracing, signal }) => {
    const devIssuer = await devIssuerOf(config)
    const waiting = setTimeout(() => process.stderr.write(`taproot: waiting for the store: ${storeName(config)}\n`), timeoutMs)
    const server = await startServer({ config, ...logs, tracing, devIssuer }, signal).finally(() => clearTimeout(waiting))
    const demo = await startDemoOrStop(server, { config, devIssuer })
    process.stdout.write(greeting(config, demo))
    return async () => {
      demo.stop()
      await server.stop()
    }
  })
}
