import { existsSync, readFileSync } from 'node:fs'
import { buffer } from 'node:stream/consumers'
import { changeKeyEncryption, parseKeyEncryptionKey } from '../auth/keys/sealing.ts'
import type { Role } from '../config/config.ts'
import { loadConfig } from '../config/load-config.ts'
import { ReloadedFiles } from '../config/files/reloaded-files.ts'
import { createLogs } from '../server/logs/logger.ts'
import { openStore } from '../server/open-store.ts'
import { findEncryptionKey, ownKeyFile } from '../server/read-encryption-key.ts'
import { systemRandom } from '../server/runtime.ts'
import { auditedCommand } from '../server/audit/audited-command.ts'
import { UsageError } from './exit-codes.ts'

/** Options of both commands. */
export interface EncryptionKeyOptions {
  /** File with the key to add or retire, which is not the configured one; `-` for standard input. */
  readonly keyFile: string
  readonly config?: string
  readonly role: Role
}

const likeTheServer = 'run this command with the --config, the --role and the TAPROOT_ variables of the server'

/** Timeout for a store that does not answer, in milliseconds. */
const timeoutMs = 30_000

/**
 * Adds the key in `keyFile` to the keys that open the store, and prints the result. Throws UsageError, ConfigError, SealingError,
 * StoreError.
 */
export async function addEncryptionKey(options: EncryptionKeyOptions): Promise<void> {
  printResult('added', await change(options, { method: 'encryption-key-add', what: { add: await readKey(options) } }))
}

/**
 * Removes the key in `keyFile` from the keys that open the store, and prints the result. Throws UsageError, ConfigError, SealingError,
 * StoreError.
 */
export async function retireEncryptionKey(options: EncryptionKeyOptions): Promise<void> {
  printResult('retired', await change(options, { method: 'encryption-key-retire', what: { retire: await readKey(options) } }))
}

function printResult(done: string, count: number): void {
  process.stdout.write(`${done}: ${count === 1 ? '1 key opens' : `${count} keys open`} the store\n`)
}

interface KeyChange {
  readonly method: string
  readonly what: Parameters<typeof changeKeyEncryption>[1]
}

async function change({ config: file, role }: EncryptionKeyOptions, { method, what }: KeyChange): Promise<number> {
  const { config, warnings } = loadConfig({ file, env: process.env, role })
  for (const warning of warnings) process.stderr.write(`taproot: warning: ${warning}\n`)
  // Opening a missing store would create it.
  if (config.store.kind === 'sqlite' && !existsSync(config.store.sqlite.path))
    throw new Error(`there is no store at ${config.store.sqlite.path} (store.sqlite.path): ${likeTheServer}`)
  const keyEncryptionKey = await findEncryptionKey(config)
  if (keyEncryptionKey === undefined) throw new Error(`there is no key at ${ownKeyFile(config)}: ${likeTheServer}`)
  const signal = AbortSignal.timeout(timeoutMs)
  const { log } = createLogs({ ...config.log, level: 'error' }, undefined)
  const store = await openStore(config, { log, files: new ReloadedFiles(log) }, signal)
  try {
    return await auditedCommand({ config, role, log, method }, () => changeKeyEncryption({ store, keyEncryptionKey, random: systemRandom }, what, signal))
  } finally {
    await store.close()
  }
}

async function readKey({ keyFile: file }: EncryptionKeyOptions): Promise<Uint8Array> {
  const content = file === '-' ? await buffer(process.stdin) : readKeyFile(file)
  try {
    return parseKeyEncryptionKey(content)
  } catch (cause) {
    throw new UsageError(`--key-file ${file} is not a key: it must have 32 bytes, raw or as hex or base64 text`, { cause })
  }
}

function readKeyFile(file: string): Uint8Array {
  try {
    return readFileSync(file)
  } catch (cause) {
    throw new UsageError(`--key-file ${file} cannot be read`, { cause })
  }
}
