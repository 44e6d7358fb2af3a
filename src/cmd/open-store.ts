import { readFileSync } from 'node:fs'
import type { Log } from '../core/log.ts'
import { createEtcdStore } from '../store/etcd/etcd-store.ts'
import { createSqliteStore } from '../store/sqlite/sqlite-store.ts'
import type { Store } from '../store/store.ts'
import type { Config } from './config/config.ts'

/** Opens the configured store. Throws StoreError where another process has it, or the file's error where a certificate or password can't be read. */
export function openStore(config: Config, log: Log): Store {
  if (config.store.kind === 'sqlite') return createSqliteStore({ path: config.store.sqlite.path, log })
  const { endpoints, prefix, tls, username, passwordFile } = config.store.etcd
  const password = passwordFile === undefined ? undefined : readFileSync(passwordFile, 'utf8').trimEnd()
  return createEtcdStore({
    endpoints,
    prefix: `${prefix}/`,
    log,
    ...(tls === undefined ? {} : { tls: readTls(tls) }),
    ...(username === undefined || password === undefined ? {} : { username, password }),
  })
}

function readTls(tls: NonNullable<Config['store']['etcd']['tls']>): { ca?: Buffer; cert?: Buffer; key?: Buffer } {
  return {
    ...(tls.caFile === undefined ? {} : { ca: readFileSync(tls.caFile) }),
    ...(tls.certFile === undefined ? {} : { cert: readFileSync(tls.certFile) }),
    ...(tls.keyFile === undefined ? {} : { key: readFileSync(tls.keyFile) }),
  }
}
