import type { Log } from '../base/log.ts'
import { retry } from '../base/timing.ts'
import { createEtcdStore, type EtcdStoreOptions } from '../store/etcd/etcd-store.ts'
import { createSqliteStore } from '../store/sqlite/sqlite-store.ts'
import { StoreError, type Store } from '../store/store.ts'
import type { Config } from '../config/config.ts'
import type { SettingFile } from '../config/files/file-group.ts'
import type { ReloadedFiles } from '../config/files/reloaded-files.ts'

/** How long to wait for another process to release the store, in milliseconds. */
const lockTimeoutMs = 3_000
const lockRetryMs = 100

/**
 * Opens the configured store. Rejects with StoreError if another process uses it, with SettingError if a certificate or password cannot be
 * read, or with the signal's reason.
 */
export async function openStore(config: Config, { log, files }: { log: Log; files: ReloadedFiles }, signal: AbortSignal): Promise<Store> {
  if (config.store.kind === 'etcd') return openEtcd(config, log, files)
  const deadline = performance.now() + lockTimeoutMs
  // Another server may be stopping and release the store soon.
  const waitMs = (error: unknown): number | undefined =>
    error instanceof StoreError && error.kind === 'unavailable' && performance.now() <= deadline ? lockRetryMs : undefined
  return retry(() => createSqliteStore({ path: config.store.sqlite.path, log }), { waitMs, signal })
}

function openEtcd(config: Config, log: Log, files: ReloadedFiles): Store {
  const { endpoints, prefix, tls, username, passwordFile } = config.store.etcd
  log.info('connecting', { endpoints })
  const password = passwordFile === undefined ? undefined : files.read({ text: { setting: 'store.etcd.passwordFile', path: passwordFile, kind: 'text' } })
  return createEtcdStore({
    endpoints,
    prefix: `${prefix}/`,
    log,
    ...(tls === undefined ? {} : openTls(tls, files)),
    ...(username === undefined || password === undefined ? {} : { username, password: () => password.current.text.toString('utf8').trimEnd() }),
  })
}

/** Reads the configured certificates of the etcd client. They are always replaced together. */
function openTls({ caFile, certFile, keyFile }: NonNullable<Config['store']['etcd']['tls']>, files: ReloadedFiles): Pick<EtcdStoreOptions, 'tls'> {
  const named: Record<string, SettingFile> = {}
  if (caFile !== undefined) named['ca'] = { setting: 'store.etcd.tls.caFile', path: caFile, kind: 'authorities' }
  if (certFile !== undefined) named['cert'] = { setting: 'store.etcd.tls.certFile', path: certFile, kind: 'certificate' }
  if (keyFile !== undefined) named['key'] = { setting: 'store.etcd.tls.keyFile', path: keyFile, kind: 'key' }
  const tls = files.read(named)
  return { tls: () => tls.current }
}
