import { Command, Option } from 'commander'
import { exitAfterParsing } from './exit-codes.ts'
import type { EncryptionKeyOptions } from './change-encryption-key.ts'

/**
 * Creates the command `taproot encryption-key add|retire`, which replaces the encryption key. `configOption` creates the option for the
 * configuration file.
 */
export function encryptionKeyCommand(configOption: () => Option): Command {
  const command = new Command('encryption-key')
    .description('replace the encryption key without downtime (docs/recovery.md, "The encryption key")')
    .exitOverride(exitAfterParsing)
  const add = (name: string, description: string): Command =>
    command
      .command(name)
      .description(description)
      .requiredOption('--key-file <file>', 'file with the key to add or remove: 32 bytes, raw or as hex or base64 text; - for standard input')
      .addOption(new Option('--role <role>', 'role whose settings apply').choices(['api', 'registry', 'controller', 'worker', 'dev']).default('dev'))
      .addOption(configOption())
  // Loaded only for this command, since the stores are large modules.
  add('add', 'add a key that can open the store, in addition to the one in encryption.keyFile').action(async (options: EncryptionKeyOptions) =>
    (await import('./change-encryption-key.ts')).addEncryptionKey(options),
  )
  add('retire', 'remove a key from the store, other than the one in encryption.keyFile').action(async (options: EncryptionKeyOptions) =>
    (await import('./change-encryption-key.ts')).retireEncryptionKey(options),
  )
  return command
}
