import type { Config } from './config.ts'

/**
 * Returns the configuration for printing, with user names and passwords in URLs masked. All other secrets are in files, and the configuration only contains
 * their paths.
 */
export function maskConfig(config: Config): Config {
  return mask(config) as Config // Only texts change, so the type stays the same.
}

/** Replaces the user name and password of a URL in a text by `***`. */
export function maskCredentials(value: string): string {
  return value.replaceAll(/([a-z][a-z0-9+.-]*:\/\/)[^/?#\s]*@/gi, '$1***@')
}

function mask(value: unknown): unknown {
  if (typeof value === 'string') return maskCredentials(value)
  if (Array.isArray(value)) return value.map(mask)
  if (typeof value === 'object' && value !== null) return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, mask(child)]))
  return value
}
