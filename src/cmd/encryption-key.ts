import { mkdir, open, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseKeyEncryptionKey } from '../authn/sealing.ts'
import type { Random } from '../core/runtime.ts'
import type { Config } from './config/config.ts'

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

/**
 * The key that encrypts the store's data key: `encryption.keyFile`, or on the embedded store a file in `dataDir` that is made on first start. Throws the
 * file's error, or SealingError `bad_key`.
 */
export async function readEncryptionKey(config: Config, random: Random): Promise<Uint8Array> {
  const { keyFile } = config.encryption
  if (keyFile !== undefined) return parseKeyEncryptionKey(await readFile(keyFile))
  const path = join(config.dataDir, 'encryption.key')
  try {
    return parseKeyEncryptionKey(await readFile(path))
  } catch (error) {
    if (!isMissing(error)) throw error
  }
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(`${Buffer.from(random.bytes(32)).toString('hex')}\n`)
    // Losing it loses every secret in the store: it must be on disk before anything is encrypted with it.
    await file.sync()
  } finally {
    await file.close()
  }
  return parseKeyEncryptionKey(await readFile(path))
}
