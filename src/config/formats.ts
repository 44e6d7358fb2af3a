import { isIP } from 'node:net'
import { isNetwork } from '../base/client-address.ts'
import { isUid } from '../base/uid.ts'

/** The format of a text value. */
export type ValueFormat =
  | 'http-url'
  | 'base-url'
  | 'host-port'
  | 'listen-address'
  | 'package-name'
  | 'key-prefix'
  | 'cluster-id'
  | 'pool-provider'
  | 'network'
  | 'origin'
  | 'sink-name'
  | 'identity'

/** For each format, a check, and a description for errors that start with "expected". */
export const valueFormats = {
  'http-url': { test: isHttpUrl, expected: 'an http:// or https:// URL' },
  'base-url': { test: isBaseUrl, expected: 'an http:// or https:// URL without user, query, fragment and slash at the end, e.g. https://platform.example.com' },
  'host-port': { test: isHostPort, expected: 'a host name with an optional port, e.g. registry.example.com' },
  'listen-address': { test: (value) => value === 'localhost' || isIP(value) !== 0, expected: 'an IP address to listen on, e.g. 0.0.0.0, ::, 127.0.0.1' },
  'package-name': { test: (value) => /^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$/.test(value), expected: 'the first part of a package name, e.g. example.platform' },
  'key-prefix': { test: (value) => /^\/[\x21-\x7e]*[^/\s]$/.test(value), expected: 'a key prefix that starts with / and does not end with it, e.g. /taproot' },
  'pool-provider': { test: (value) => /^[a-z0-9-]+\/[a-z0-9-]+$/.test(value), expected: 'a pool and a provider, e.g. taproot/taproot' },
  'sink-name': { test: (value) => /^[a-z][a-z0-9-]{0,62}$/.test(value), expected: 'lower-case letters, digits and dashes, e.g. siem' },
  identity: { test: (value) => isUid(value), expected: 'the uid of an identity' },
  origin: { test: (value) => value === '*' || isOrigin(value), expected: 'an origin such as https://portal.example.com, without a path, or *' },
  network: { test: isNetwork, expected: 'an IP address or a network, e.g. 10.0.0.0/8' },
  'cluster-id': {
    test: (value) => /^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$/.test(value),
    expected: 'lower-case letters, digits, dots and dashes, e.g. production-eu',
  },
} as const satisfies Record<ValueFormat, { readonly test: (value: string) => boolean; readonly expected: string }>

function isHttpUrl(value: string): boolean {
  const url = URL.parse(value)
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:') && url.hostname !== ''
}

function isOrigin(value: string): boolean {
  return isHttpUrl(value) && URL.parse(value)?.origin === value
}

function isBaseUrl(value: string): boolean {
  const url = URL.parse(value)
  return isHttpUrl(value) && url !== null && url.username === '' && url.password === '' && !/[?#]|\/$/.test(value)
}

function isHostPort(value: string): boolean {
  const url = URL.parse(`http://${value}`)
  return url !== null && url.username === '' && url.pathname === '/' && !/[/?#@\s]/.test(value) && url.hostname !== ''
}
