import type { Config } from './config.ts'

/** The configuration with secrets masked, for printing: credentials within URLs. All other secrets are in files, whose paths are shown. */
export function maskConfig(config: Config): Config {
  return mask(config) as Config // same shape: only text changes
}

/** A text in which the user and password of a URL read `***`. */
export function maskCredentials(value: string): string {
  return value.replaceAll(/([a-z][a-z0-9+.-]*:\/\/)[^/?#\s]*@/gi, '$1***@')
}

function mask(value: unknown): unknown {
  if (typeof value === 'string') return maskCredentials(value)
  if (Array.isArray(value)) return value.map(mask)
  if (typeof value === 'object' && value !== null) return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, mask(child)]))
  return value
}
