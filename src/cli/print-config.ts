import { stringify } from 'yaml'
import type { Role } from '../config/config.ts'
import { loadConfig } from '../config/load-config.ts'
import { maskConfig } from '../config/mask-config.ts'

/** Prints the effective configuration of a role. Throws ConfigError. */
export function printConfig(options: { role: Role; config?: string }): void {
  const { config, warnings } = loadConfig({ file: options.config, env: process.env, role: options.role })
  for (const warning of warnings) process.stderr.write(`taproot: warning: ${warning}\n`)
  process.stdout.write(stringify(maskConfig(config)))
}
