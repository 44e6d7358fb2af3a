import { readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { parseKeyEncryptionKey } from '../authn/sealing.ts'
import { makeSecretFile, readSecretFile } from '../authn/secret-file.ts'
import type { Random } from '../core/runtime.ts'
import type { Config } from './config/config.ts'
import { withSetting } from './setting-error.ts'

/**
 * The key that encrypts the store's data key: `encryption.keyFile`, or on the embedded store a file in `dataDir` that is made on first start. Throws the
 * file's error, or SealingError `bad_key`.
 */
export async function readEncryptionKey(config: Config, random: Random): Promise<Uint8Array> {
  const { keyFile } = config.encryption
  if (keyFile !== undefined) return withSetting('encryption.keyFile', keyFile, () => parseKeyEncryptionKey(readFileSync(keyFile)))
  const path = join(config.dataDir, 'encryption.key')
  const known = await readSecretFile(path)
  if (known !== undefined) return parseKeyEncryptionKey(known)
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  return parseKeyEncryptionKey(await makeSecretFile(path, `${Buffer.from(random.bytes(32)).toString('hex')}\n`))
}
