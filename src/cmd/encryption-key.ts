import { readFileSync } from 'node:fs'
import { link, mkdir, open, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseKeyEncryptionKey } from '../authn/sealing.ts'
import type { Random } from '../core/runtime.ts'
import type { Config } from './config/config.ts'
import { withSetting } from './setting-error.ts'

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

/**
 * The key that encrypts the store's data key: `encryption.keyFile`, or on the embedded store a file in `dataDir` that is made on first start. Throws the
 * file's error, or SealingError `bad_key`.
 */
export async function readEncryptionKey(config: Config, random: Random): Promise<Uint8Array> {
  const { keyFile } = config.encryption
  if (keyFile !== undefined) return withSetting('encryption.keyFile', keyFile, () => parseKeyEncryptionKey(readFileSync(keyFile)))
  const path = join(config.dataDir, 'encryption.key')
  try {
    return parseKeyEncryptionKey(await readFile(path))
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
  }
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  await makeKeyFile(path, `${Buffer.from(random.bytes(32)).toString('hex')}\n`)
  return parseKeyEncryptionKey(await readFile(path))
}

/**
 * Makes the file whole or not at all, and durable: losing it loses every secret in the store, so it must be on disk before anything is encrypted with it. Of two
 * that make it at once, one wins.
 */
async function makeKeyFile(path: string, content: string): Promise<void> {
  const fresh = `${path}.${process.pid}`
  const file = await open(fresh, 'w', 0o600)
  try {
    await file.writeFile(content)
    await file.sync()
  } finally {
    await file.close()
  }
  try {
    await link(fresh, path)
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error
  } finally {
    await rm(fresh)
  }
  const directory = await open(dirname(path), 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}
