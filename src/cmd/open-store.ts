import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../core/log.ts'
import { createEtcdStore } from '../store/etcd/etcd-store.ts'
import { createSqliteStore } from '../store/sqlite/sqlite-store.ts'
import { StoreError, type Store } from '../store/store.ts'
import type { Config } from './config/config.ts'
import { withSetting } from './setting-error.ts'

/** How long a store that another process is just letting go of is waited for, in milliseconds. */
const lockPatienceMs = 3_000
const lockRetryMs = 100

/**
 * Opens the configured store. Rejects with StoreError where another process has it and keeps it, with SettingError where a certificate or password can't be
 * read, or with the signal's reason.
 */
export async function openStore(config: Config, log: Log, signal: AbortSignal): Promise<Store> {
  if (config.store.kind === 'etcd') return openEtcd(config, log)
  const deadline = performance.now() + lockPatienceMs
  for (;;) {
    try {
      return createSqliteStore({ path: config.store.sqlite.path, log })
    } catch (error) {
      // A server that was told to stop, or lost its parent, needs a moment.
      if (!(error instanceof StoreError) || error.kind !== 'unavailable' || performance.now() > deadline) throw error
      await delay(lockRetryMs, undefined, { signal })
    }
  }
}

function openEtcd(config: Config, log: Log): Store {
  const { endpoints, prefix, tls, username, passwordFile } = config.store.etcd
  log.info('connecting', { endpoints })
  const password = passwordFile === undefined ? undefined : readSetting('store.etcd.passwordFile', passwordFile).toString('utf8').trimEnd()
  return createEtcdStore({
    endpoints,
    prefix: `${prefix}/`,
    log,
    ...(tls === undefined ? {} : { tls: readTls(tls) }),
    ...(username === undefined || password === undefined ? {} : { username, password }),
  })
}

function readSetting(key: string, path: string): Buffer {
  return withSetting(key, path, () => readFileSync(path))
}

function readTls(tls: NonNullable<Config['store']['etcd']['tls']>): { ca?: Buffer; cert?: Buffer; key?: Buffer } {
  return {
    ...(tls.caFile === undefined ? {} : { ca: readSetting('store.etcd.tls.caFile', tls.caFile) }),
    ...(tls.certFile === undefined ? {} : { cert: readSetting('store.etcd.tls.certFile', tls.certFile) }),
    ...(tls.keyFile === undefined ? {} : { key: readSetting('store.etcd.tls.keyFile', tls.keyFile) }),
  }
}
