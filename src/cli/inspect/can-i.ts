import type { Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from '../client/client-command.ts'
import { ClientError } from '../client/client-error.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { exitCodes } from '../exit-codes.ts'
import { resourceUid, resourceWords } from './access.ts'

/** Prints `yes` or `no`: whether the caller holds a capability at a resource. Resolves with the answer. Rejects with UsageError or ClientError. */
export async function printWhetherAllowed(context: ClientContext, capability: string, resource: string): Promise<boolean> {
  const { client, output } = context
  const uid = await resourceUid(context, resource).catch((error: unknown) => {
    // A record that the caller cannot see.
    if (error instanceof ClientError && error.code === 5) return undefined
    throw error
  })
  const query = { resource: uid ?? unknown, capabilities: [capability] }
  const { capabilities } = await client.call({ method: 'GET', path: '/iam/v2/testCapabilities', query })
  const isAllowed = uid !== undefined && Array.isArray(capabilities) && capabilities.includes(capability)
  await output.write(isAllowed ? 'yes\n' : 'no\n')
  return isAllowed
}

/** A uid that no record has. It is asked about so that a misspelt capability is an error also where the resource cannot be seen. */
const unknown = '0'.repeat(40)

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
