import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { restClient, type ApiClient } from '../../../support/api-clients.ts'
import { freePorts } from '../../../support/parts/free-port.ts'
import { freshDirectory, startProcess, type TaprootProcess } from './taproot-process.ts'

/** The folder and ports of a development server that is started repeatedly. */
export interface DevHome {
  readonly cwd: string
  readonly env: Record<string, string>
  readonly apiPort: number
  readonly opsPort: number
  readonly rest: ApiClient
}

/** Creates a new home. `env` overrides its settings. */
export async function makeDevHome(env: Readonly<Record<string, string>> = {}): Promise<DevHome> {
  const [apiPort = 0, opsPort = 0, registryPort = 0] = await freePorts(3)
  const ports = { TAPROOT_API_PORT: String(apiPort), TAPROOT_OPS_PORT: String(opsPort), TAPROOT_REGISTRY_PORT: String(registryPort) }
  return { cwd: await freshDirectory(), env: { ...ports, ...env }, apiPort, opsPort, rest: restClient(`http://127.0.0.1:${apiPort}`) }
}

/** Starts `taproot dev` and waits for all output of its start. */
export async function startDev(home: DevHome): Promise<TaprootProcess> {
  const started = startProcess({ args: ['dev'], env: home.env, cwd: home.cwd })
  await started.until(() => /^ +curl .*\n/m.test(started.stdout))
  return started
}

/** Returns the content of the token file. */
export async function readToken(home: DevHome): Promise<string> {
  return (await readFile(join(home.cwd, '.taproot', 'token'), 'utf8')).trim()
}
