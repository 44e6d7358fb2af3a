import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createDevIssuer, type DevIssuer } from '../auth/oidc/dev-issuer.ts'
import type { Config } from '../config/config.ts'
import { loadConfig } from '../config/load-config.ts'
import { systemClock } from './runtime.ts'

/** Returns the development issuer of a configuration. Its key is in `dataDir`, so the command and the server use the same one. */
export async function devIssuerOf(config: Config): Promise<DevIssuer> {
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  return await createDevIssuer({ keyFile: join(config.dataDir, 'dev-issuer.json'), issuer: `${config.baseUrl}/dev/issuer`, clock: systemClock })
}

/** Prints a token of the development issuer as one line on standard output. Throws ConfigError, or the error of the key file. */
export async function printDevToken(options: { subject: string; audience?: string; claim: Record<string, string>; config?: string }): Promise<void> {
  const { config } = loadConfig({ file: options.config, env: process.env, role: 'dev' })
  const issuer = await devIssuerOf(config)
  const token = await issuer.mintDevToken({ subject: options.subject, audience: options.audience ?? config.baseUrl, claims: options.claim })
  process.stdout.write(`${token}\n`)
}
