import { InvalidArgumentError, Option, type Command } from 'commander'
import { isUid } from '../../base/uid.ts'
import { parseAge } from '../audit.ts'
import { clientCommand, runChange, runClient, type ClientContext } from '../client/client-command.ts'
import { ClientError, textOf } from '../client/client-error.ts'
import { printable } from '../client/columns.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { findByPath } from '../client/places.ts'
import { kindNamed } from '../client/kinds.ts'
import { formatOption, printRecords, type RecordFormat } from '../client/records.ts'
import { UsageError } from '../exit-codes.ts'

/** Splits `acme/app:1.0` and returns the uid of the repo and the name of the tag. The repo may be given by its uid. Rejects with UsageError or ClientError. */
async function tagOf({ client }: ClientContext, path: string): Promise<{ repo: string; tag: string }> {
  const at = path.lastIndexOf(':')
  const [repo, tag] = [path.slice(0, Math.max(at, 0)), path.slice(at + 1)]
  if (repo === '' || tag === '' || tag.includes('/')) throw new UsageError(`"${path}" is not a tag: write its path, such as acme/app:1.0`)
  return { repo: isUid(repo) ? repo : textOf((await findByPath(client, kindNamed('Repo'), repo))['uid']), tag }
}

/** Prints the digests that a tag pointed to, oldest first. The tag may be deleted. Rejects with UsageError or ClientError. */
export async function printHistory(context: ClientContext, path: string, format: RecordFormat): Promise<void> {
  const { client, output, clock } = context
  const { repo, tag } = await tagOf(context, path)
  const pages = client.pages(`/registry/v2/repos/${repo}/history`, 'history', { tag })
  const records = async function* () {
    for await (const page of pages) yield page.records
  }
  try {
    await printRecords(records(), format, { output, kind: { kind: 'TagHistoryRecord' }, nowMs: clock.now() })
  } catch (error) {
    if (error instanceof ClientError && error.code === 5) throw new ClientError(`there is no tag ${path} that you may see`, { code: 5 })
    throw error
  }
}

/** What a tag is restored to: a digest of its history, or what it was at a time. */
export type RestoreTarget = { readonly digest: string } | { readonly timeMs: number }

/** Moves a tag back, and prints the digest. Rejects with UsageError or ClientError. */
export async function restore(context: ClientContext, path: string, { to, dryRun }: { readonly to: RestoreTarget; readonly dryRun: boolean }): Promise<void> {
  const { client, output } = context
  const { repo, tag } = await tagOf(context, path)
  const answer = await client.call({
    method: 'POST',
    path: `/registry/v2/repos/${repo}:restoreTag`,
    query: dryRun ? { validateOnly: 'true' } : {},
    body: { tag, ...('digest' in to ? to : { time: new Date(to.timeMs).toISOString() }) },
  })
  await output.write(`tag ${path} ${dryRun ? 'would be ' : ''}restored to ${printable(textOf(answer['digest']))}\n`)
}

/** Parses an age such as `2h`, or a time of RFC 3339, to milliseconds since 1970. */
export function parseMoment(text: string, nowMs: number): number {
  if (/^\d+[mhd]$/.test(text)) return nowMs - parseAge(text)
  const timeMs = /^\d{4}-\d\d-\d\dT.*(?:Z|[+-]\d\d:\d\d)$/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(timeMs)) throw new InvalidArgumentError('Use an age such as 30m, 24h or 7d, or a time such as 2026-01-31T12:00:00Z.')
  return timeMs
}

function parseDigest(text: string): string {
  if (!/^sha256:[0-9a-f]{64}$/.test(text)) throw new InvalidArgumentError('Use a digest as "taproot history" prints it.')
  return text
}

const tagWords = 'the path of a tag, such as acme/app:1.0; also of a deleted one'

/** Creates the command `history`. `program` is the name on the command line. */
export function historyCommand(program: string): Command {
  return clientCommand('history', 'print what a tag pointed to, oldest first')
    .argument('<tag>', tagWords)
    .addOption(formatOption('output format', ['table', 'json', 'yaml']).default('table'))
    .action((tag: string, { output, ...options }: ConnectionOptions & { readonly output: RecordFormat }) =>
      runClient(program, options, (context) => printHistory(context, tag, output)),
    )
}

/** Creates the command `restore`. `program` is the name on the command line. */
export function restoreCommand(program: string): Command {
  return clientCommand('restore', 'move a tag back to what it pointed to before')
    .argument('<tag>', tagWords)
    .addOption(new Option('--digest <digest>', 'a digest of its history').argParser(parseDigest).conflicts('at'))
    .addOption(
      new Option('--at <time>', 'what it was at this time: an age such as 2h, or 2026-01-31T12:00:00Z').argParser((text) => parseMoment(text, Date.now())),
    )
    .option('--dry-run', 'check everything, and change nothing')
    .action((tag: string, { digest, at, dryRun, ...options }: ConnectionOptions & { readonly digest?: string; readonly at?: number; readonly dryRun?: true }) =>
      runChange(program, options, (context) => restore(context, tag, { to: targetOf(digest, at), dryRun: dryRun === true })),
    )
}

function targetOf(digest: string | undefined, timeMs: number | undefined): RestoreTarget {
  if (digest !== undefined) return { digest }
  if (timeMs !== undefined) return { timeMs }
  throw new UsageError('restore needs --digest or --at: see "taproot history"')
}
