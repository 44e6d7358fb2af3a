import type { Command } from 'commander'
import { applyCommand } from './apply/command.ts'
import { auditCommand } from './audit.ts'
import { catalogueCommand } from './catalogue.ts'
import { eventsCommand } from './events.ts'
import { getCommand } from './get.ts'
import { accessCommand, explainCommand } from './inspect/access.ts'
import { canICommand } from './inspect/can-i.ts'
import { historyCommand, restoreCommand } from './inspect/tag-history.ts'
import { signInCommands } from './sign-in/commands.ts'
import { treeCommand } from './tree/command.ts'
import { whoamiCommand } from './whoami.ts'
import { writeCommands } from './write/commands.ts'

/** Returns the commands that are clients of the API. `program` is their name on the command line: `taproot` or `kubectl taproot`. */
export function clientCommands(program: string): Command[] {
  return [
    ...signInCommands(program),
    getCommand(program),
    ...writeCommands(program),
    applyCommand(program),
    treeCommand(program),
    canICommand(program),
    accessCommand(program),
    explainCommand(program),
    historyCommand(program),
    restoreCommand(program),
    eventsCommand(program),
    auditCommand(program),
    catalogueCommand(program),
    whoamiCommand(program),
  ]
}
