import type { Server } from 'node:http'
import { errorMessage } from '../base/error-text.ts'
import { settingOf } from '../config/setting.ts'
import { SettingError } from '../config/setting-error.ts'

/** The port in a setting is in use, or the process may not use it. */
class PortError extends Error {
  override readonly name = 'PortError'
  constructor(key: string, port: number, cause: unknown) {
    const code = codeOf(cause)
    const why = code === 'EADDRINUSE' ? 'is in use' : `cannot be used (${code ?? errorMessage(cause)})`
    super(`port ${port} ${why}: set ${key} (${settingOf(key).variable}) to another one`, { cause })
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
    throw new PortError(key, address.port, error)
  }
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
