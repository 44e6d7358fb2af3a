import { readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { parseKeyEncryptionKey } from '../auth/keys/sealing.ts'
import { makeSecretFile, readSecretFile } from '../auth/keys/secret-file.ts'
import type { Random } from '../base/runtime.ts'
import type { Config } from '../config/config.ts'
import { withSetting } from '../config/setting-error.ts'

/** Returns the path of the embedded store's key file if `encryption.keyFile` is not set. */
export function ownKeyFile({ dataDir }: Pick<Config, 'dataDir'>): string {
  return join(dataDir, 'encryption.key')
}

/**
 * Returns the key that encrypts the store's data key, from `encryption.keyFile`, or for the embedded store from a file in `dataDir`.
 * Returns undefined if that file in `dataDir` does not exist. Throws the file's error, or SealingError `bad_key`.
 */
export async function findEncryptionKey(config: Config): Promise<Uint8Array | undefined> {
  const { keyFile } = config.encryption
  if (keyFile !== undefined) return withSetting('encryption.keyFile', keyFile, () => parseKeyEncryptionKey(readFileSync(keyFile)))
  const known = await readSecretFile(ownKeyFile(config))
  return known === undefined ? undefined : parseKeyEncryptionKey(known)
}

/** Like findEncryptionKey, but for the embedded store creates a missing file. */
export async function readEncryptionKey(config: Config, random: Random): Promise<Uint8Array> {
  const known = await findEncryptionKey(config)
  if (known !== undefined) return known
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  return parseKeyEncryptionKey(await makeSecretFile(ownKeyFile(config), `${Buffer.from(random.bytes(32)).toString('hex')}\n`))
}
