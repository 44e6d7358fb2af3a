import type { ConfiguredIssuer } from '../../auth/oidc/issuer-source.ts'
import type { Config, ServerTlsConfig } from '../config.ts'
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
