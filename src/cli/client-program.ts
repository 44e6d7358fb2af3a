import type { Command } from 'commander'
import { eventsCommand } from './events.ts'
import { getCommand } from './get.ts'
import { treeCommand } from './tree/command.ts'
import { whoamiCommand } from './whoami.ts'

/** The commands that ask an API for what it holds. `program` is what they are called by: `taproot` or `kubectl taproot`. */
export function clientCommands(program: string): Command[] {
  return [getCommand(program), treeCommand(program), eventsCommand(program), whoamiCommand(program)]
}
