import type { ConfiguredIssuer } from '../../auth/oidc/issuer-source.ts'
import type { Config, ScannerConfig, ServerTlsConfig } from '../config.ts'
import type { Reloaded } from './file-group.ts'
import type { ReloadedFiles } from './reloaded-files.ts'

/** The certificate and the private key of a server. */
export type ServerTls = Reloaded<'cert' | 'key'>

/** Reads the certificate and the private key for the server that `section` configures. Undefined if it does not use TLS. Throws SettingError. */
export function openServerTls(files: ReloadedFiles, section: 'api' | 'registry', tls: ServerTlsConfig | undefined): ServerTls | undefined {
  if (tls === undefined) return undefined
  return files.read({
    cert: { setting: `${section}.tls.certFile`, path: tls.certFile, kind: 'certificate' },
    key: { setting: `${section}.tls.keyFile`, path: tls.keyFile, kind: 'key' },
  })
}

/** Returns the configured issuers, with the contents of their CA and token files. Throws SettingError. */
export function openIssuers({ issuers }: Pick<Config, 'issuers'>, files: ReloadedFiles): ConfiguredIssuer[] {
  return issuers.map(({ caFile, tokenFile, ...row }) => {
    const ca = caFile === undefined ? undefined : files.read({ pem: { setting: 'issuers', path: caFile, kind: 'authorities' } })
    const token = tokenFile === undefined ? undefined : files.read({ text: { setting: 'issuers', path: tokenFile, kind: 'text' } })
    return {
      ...row,
      ...(ca === undefined ? {} : { ca: () => ca.current.pem.toString('utf8') }),
      ...(token === undefined ? {} : { token: () => token.current.text.toString('utf8').trim() }),
    }
  })
}

/** Reads the trusted root for signatures; undefined if none is configured. The returned function returns its content now. Throws SettingError. */
export function openTrustedRoot({ registry }: Pick<Config, 'registry'>, files: ReloadedFiles): (() => Buffer) | undefined {
  const path = registry.signatures?.trustedRootFile
  if (path === undefined) return undefined
  const group = files.read({ root: { setting: 'registry.signatures.trustedRootFile', path, kind: 'trustedRoot' } })
  return () => group.current.root
}

/** A scanner with the contents of its files, as they are now. */
export interface OpenScanner {
  readonly row: ScannerConfig
  /** The headers of requests to it. */
  readonly headers: () => Readonly<Record<string, string>>
  readonly ca: () => string | undefined
}

/** For each kind of authorization, a function that returns the headers for a credential. */
const credentialHeaders = {
  bearer: (credential: string) => ({ Authorization: `Bearer ${credential}` }),
  basic: (credential: string) => ({ Authorization: `Basic ${Buffer.from(credential).toString('base64')}` }),
  apiKey: (credential: string) => ({ 'X-ScannerAdapter-API-Key': credential }),
} as const

/** Returns the configured scanners, with the contents of their CA and token files. Throws SettingError. */
export function openScanners({ scanners }: Pick<Config, 'scanners'>, files: ReloadedFiles): OpenScanner[] {
  return scanners.map((row) => {
    const { caFile, tokenFile, authorization = 'bearer' } = row
    const ca = caFile === undefined ? undefined : files.read({ pem: { setting: 'scanners', path: caFile, kind: 'authorities' } })
    const token = tokenFile === undefined ? undefined : files.read({ text: { setting: 'scanners', path: tokenFile, kind: 'text' } })
    return {
      row,
      headers: () => (token === undefined ? {} : credentialHeaders[authorization](token.current.text.toString('utf8').trim())),
      ca: () => ca?.current.pem.toString('utf8'),
    }
  })
}
