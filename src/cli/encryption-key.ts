import { Command, Option } from 'commander'
import { exitAfterParsing } from './exit-codes.ts'
import type { EncryptionKeyOptions } from './change-encryption-key.ts'

/** `taproot encryption-key add|retire`: how the encryption key is replaced. `configOption` is the option that names a configuration. */
export function encryptionKeyCommand(configOption: () => Option): Command {
  const command = new Command('encryption-key')
    .description('replace the encryption key without a stop (docs/recovery.md, "The encryption key")')
    .exitOverride(exitAfterParsing)
  const add = (name: string, description: string): Command =>
    command
      .command(name)
      .description(description)
      .requiredOption('--key-file <file>', 'the other key: 32 bytes, raw or as hex or base64 text; - for standard input')
      .addOption(new Option('--role <role>', 'whose settings').choices(['api', 'registry', 'controller', 'dev']).default('dev'))
      .addOption(configOption())
  // The stores are large: only who needs them loads them.
  add('add', 'let another key open the store too, beside that of encryption.keyFile').action(async (options: EncryptionKeyOptions) =>
    (await import('./change-encryption-key.ts')).addEncryptionKey(options),
  )
  add('retire', 'let a key open the store no more, which is not that of encryption.keyFile').action(async (options: EncryptionKeyOptions) =>
    (await import('./change-encryption-key.ts')).retireEncryptionKey(options),
  )
  return command
}
