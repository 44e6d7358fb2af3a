import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freshDirectory } from '../../e2e/process/harness/taproot-process.ts'

/** The settings that all processes of one installation share: a key for secrets at rest. Removed after the test. */
export async function sharedKey(): Promise<Readonly<Record<string, string>>> {
  const keyFile = join(await freshDirectory(), 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  return { TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
}
