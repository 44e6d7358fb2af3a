import { Command, Option } from 'commander'
import { exitAfterParsing } from './exit-codes.ts'
import type { EncryptionKeyOptions } from './change-encryption-key.ts'

/** `taproot encryption-key add|retire`: how the encryption key is replaced. `configOption` is the option that names a configuration. */
export function encryptionKeyCommand(configOption: () => Option): Command {
  const command = new Command('encryption-key')
    .description('replace the encryption key without downtime (docs/recovery.md, "The encryption key")')
    .exitOverride(exitAfterParsing)
  const add = (name: string, description: string): Command =>
    command
      .command(name)
      .description(description)
      .requiredOption('--key-file <file>', 'the other key: 32 bytes, raw or as hex or base64 text; - for standard input')
      .addOption(new Option('--role <role>', 'role whose settings apply').choices(['api', 'registry', 'controller', 'dev']).default('dev'))
      .addOption(configOption())
  // The stores are large: only who needs them loads them.
  add('add', 'let another key open the store, in addition to the one in encryption.keyFile').action(async (options: EncryptionKeyOptions) =>
    (await import('./change-encryption-key.ts')).addEncryptionKey(options),
  )
  add('retire', 'remove a key from the store, other than the one in encryption.keyFile').action(async (options: EncryptionKeyOptions) =>
    (await import('./change-encryption-key.ts')).retireEncryptionKey(options),
  )
  return command
}
