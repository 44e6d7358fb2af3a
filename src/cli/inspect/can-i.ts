import type { Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from '../client/client-command.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { exitCodes } from '../exit-codes.ts'
import { resourceUid, resourceWords } from './access.ts'

/**
 * Prints `yes` or `no`: whether the caller holds a capability at a resource. Resolves with the answer. Rejects with UsageError, or with ClientError: also for
 * the path of a record that the caller cannot see, where it may have other capabilities.
 */
export async function printWhetherAllowed(context: ClientContext, capability: string, resource: string): Promise<boolean> {
  const { client, output } = context
  const query = { resource: await resourceUid(context, resource), capabilities: [capability] }
  const { capabilities } = await client.call({ method: 'GET', path: '/iam/v2/testCapabilities', query })
  const isAllowed = Array.isArray(capabilities) && capabilities.includes(capability)
  await output.write(isAllowed ? 'yes\n' : 'no\n')
  return isAllowed
}

/** Creates the command `can-i`. `program` is the name on the command line. */
export function canICommand(program: string): Command {
  return clientCommand('can-i', 'print whether you have a capability at a record: yes, or no with exit code 1')
    .argument('<capability>', 'such as registry.push')
    .argument('<resource>', resourceWords)
    .action((capability: string, resource: string, options: ConnectionOptions) =>
      runClient(program, options, async (context) => {
        if (!(await printWhetherAllowed(context, capability, resource))) process.exitCode = exitCodes.refused
      }),
    )
}
