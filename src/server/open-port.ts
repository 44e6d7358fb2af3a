import { createServer, type Server } from 'node:http'
import { errorMessage } from '../base/error-text.ts'
import { settingOf } from '../config/setting.ts'
import { SettingError } from '../config/setting-error.ts'

/** A port, and the setting that names it. */
export interface NamedPort {
  readonly key: string
  readonly port: number
}

interface PortFault extends NamedPort {
  readonly cause: unknown
}

function sentence({ key, port, cause }: PortFault): string {
  const code = codeOf(cause)
  const why = code === 'EADDRINUSE' ? 'is in use' : `cannot be used (${code ?? errorMessage(cause)})`
  return `port ${port} ${why}: set ${key} (${settingOf(key).variable}) to another one`
}

/** Ports in settings are in use, or the process may not use them. */
class PortError extends Error {
  override readonly name = 'PortError'
  readonly faults: readonly PortFault[]
  constructor(faults: readonly PortFault[]) {
    // Without the system's errors as its cause: the sentences say all that they do.
    super(faults.map(sentence).join('; '))
    this.faults = faults
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined
}

/** System error codes for an address that does not belong to this machine. */
const addressErrors: ReadonlySet<string | undefined> = new Set(['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'])

/** Opens a port. If that fails, rejects with PortError or SettingError, which name the setting. */
export async function openPort(key: string, address: { host: string; port: number }, open: () => Promise<unknown>): Promise<void> {
  try {
    await open()
  } catch (error) {
    if (addressErrors.has(codeOf(error))) throw new SettingError('listen', address.host, new Error('is not an address of this machine', { cause: error }))
    throw new PortError([{ key, port: address.port, cause: error }])
  }
}

/** Returns a PortError with those of `others` that cannot be opened either, and any other error unchanged. None of the ports may be open in this process. */
export async function withOtherPorts(error: unknown, host: string, others: readonly NamedPort[]): Promise<unknown> {
  if (!(error instanceof PortError)) return error
  const faults = [...error.faults]
  for (const other of others) {
    if (faults.some(({ key }) => key === other.key)) continue
    const server = createServer()
    try {
      await listenHttp(server, host, other.port)
      await closeHttp(server)
    } catch (cause) {
      faults.push({ ...other, cause })
    }
  }
  return new PortError(faults)
}

/** Resolves once the server listens. Rejects with the system's error. */
export function listenHttp(server: Server, host: string, port: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', reject)
  server.listen(port, host, () => {
    server.off('error', reject)
    resolve()
  })
  return promise
}

/** Stops accepting connections, and closes those that are still open after `graceMs` milliseconds. Never rejects. */
export async function closeHttp(server: Server, graceMs = 0): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  server.close(() => resolve())
  server.closeIdleConnections()
  const timer = setTimeout(() => server.closeAllConnections(), graceMs)
  await promise
  clearTimeout(timer)
}
