import type { Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from '../client/client-command.ts'
import { isJson, objectOf, textOf, textsOf, type Json } from '../client/client-error.ts'
import { printable } from '../client/columns.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { kindNamed } from '../client/kinds.ts'
import { findPlace } from '../client/places.ts'
import { withPaths } from '../client/record-paths.ts'
import { formatOption, printRecord, printRecords, type RecordFormat } from '../client/records.ts'
import { findRecord } from '../get.ts'

/** Returns the uid of a group, a repo or a tag that is given by its path, or of any record by its uid. Rejects with ClientError. */
export async function resourceUid({ client }: ClientContext, resource: string): Promise<string> {
  if (/:[^/:]*$/.test(resource)) return textOf((await findRecord(client, kindNamed('Tag'), { record: resource, filter: [] }))['uid'])
  return (await findPlace(client, resource, ['Group', 'Repo'])).uid
}

/** Access is shown as role bindings are. */
const accessKind = { kind: 'Access', parents: ['Group'] }

/** The access to print. */
export interface AccessRequest {
  readonly resource: string
  /** Only access that grants this capability. */
  readonly capability: string | undefined
  readonly format: RecordFormat
}

/** Prints which identities have access to a resource, and through which role on which group. Rejects with ClientError. */
export async function printAccess(context: ClientContext, { resource, capability, format }: AccessRequest): Promise<void> {
  const { client, output, clock, note } = context
  const query = { resource: await resourceUid(context, resource), ...(capability !== undefined && { capability }) }
  let withheld: readonly string[] = []
  const pages = async function* (): AsyncGenerator<readonly Json[]> {
    for await (const { records, answer } of client.pages('/iam/v2/access', 'access', query)) {
      withheld = textsOf(answer['withheldGroups'])
      yield format === 'table' ? await withPaths(client, accessKind, records) : records
    }
  }
  const count = await printRecords(pages(), format, { output, kind: accessKind, nowMs: clock.now() })
  if (count === 0 && format === 'table') note('no access that you may see')
  noteWithheld(context, withheld)
}

function noteWithheld({ note }: ClientContext, groups: readonly string[]): void {
  if (groups.length > 0) note(`role bindings on ${groups.join(', ')} are not shown: you may not list them there`)
}

/** The question of `explain`. */
export interface ExplainRequest {
  /** Name, path or uid of the identity. */
  readonly identity: string
  readonly capability: string
  readonly resource: string
  readonly format: RecordFormat
}

/** Why an identity does not hold a capability, in words. */
const obstacles: Readonly<Record<string, string>> = {
  OBSTACLE_NO_REACH: 'no role of the identity applies there',
  OBSTACLE_MISSING_CAPABILITY: 'no role of the identity there has the capability',
  OBSTACLE_ORGANIZATION_SUSPENDED: 'the organisation is suspended',
  OBSTACLE_NOT_REGISTERED: 'no person has signed in with this uid',
}

/** What a role binding does, in words. */
const effects: Readonly<Record<string, string>> = {
  BINDING_EFFECT_GRANTS: 'grants it',
  BINDING_EFFECT_LACKS_CAPABILITY: 'has other capabilities',
  BINDING_EFFECT_ROLE_MISSING: 'has a role that was deleted',
  BINDING_EFFECT_CONFINED: 'has no effect: the identity belongs to another group',
}

/** Prints whether an identity holds a capability at a resource, and why. Rejects with ClientError. */
export async function printExplanation(context: ClientContext, { identity, capability, resource, format }: ExplainRequest): Promise<void> {
  const { client, output, clock } = context
  const found = await findRecord(client, kindNamed('Identity'), { record: identity, filter: [] })
  const query = { identity: textOf(found['uid']), capability, resource: await resourceUid(context, resource) }
  const answer = await client.call({ method: 'GET', path: '/iam/v2/explain', query })
  if (format !== 'table') return await printRecord(answer, format, { output, kind: accessKind, nowMs: clock.now() })
  await output.write((await explanationLines(context, { answer, identity, resource })).map((line) => `${printable(line)}\n`).join(''))
  noteWithheld(context, textsOf(answer['withheldGroups']))
}

async function explanationLines(
  { client }: ClientContext,
  { answer, identity, resource }: { readonly answer: Json; readonly identity: string; readonly resource: string },
): Promise<readonly string[]> {
  const bindings = Array.isArray(answer['bindings']) ? answer['bindings'].filter(isJson) : []
  const verdict = answer['allowed'] === true ? 'yes' : `no: ${obstacles[textOf(answer['obstacle'])] ?? 'the API does not say why'}`
  return [
    `${identity} has ${textOf(answer['capability'])} at ${resource}: ${verdict}`,
    ...(await withPaths(client, accessKind, bindings)).map(
      ({ uid, path, role, effect }) => `  ${textOf(objectOf(role)['name'])} on ${textOf(path)} ${effects[textOf(effect)] ?? textOf(effect)} (${textOf(uid)})`,
    ),
    ...(answer['inherited'] === true ? ['  a role binding on a group above, which you may not see, grants it'] : []),
  ]
}

/** Describes the argument for a resource. */
export const resourceWords = 'a path of a group, repo or tag, or the uid of any record'

/** Creates the command `access`. `program` is the name on the command line. */
export function accessCommand(program: string): Command {
  return clientCommand('access', 'print who has access to a record, and through which role')
    .argument('<resource>', resourceWords)
    .option('--capability <name>', 'only access that grants this capability, such as registry.push')
    .addOption(formatOption('output format', ['table', 'json', 'yaml', 'name']).default('table'))
    .action((resource: string, { capability, output, ...options }: ConnectionOptions & { readonly capability?: string; readonly output: RecordFormat }) =>
      runClient(program, options, (context) => printAccess(context, { resource, capability, format: output })),
    )
}

type ExplainArguments = [identity: string, capability: string, resource: string, options: ConnectionOptions & { readonly output: RecordFormat }]

/** Creates the command `explain`. `program` is the name on the command line. */
export function explainCommand(program: string): Command {
  return clientCommand('explain', 'print whether an identity has a capability, and which role bindings are the reason')
    .argument('<identity>', 'a name, a path such as acme/ci, or a uid')
    .argument('<capability>', 'such as groups.list')
    .argument('<resource>', resourceWords)
    .addOption(formatOption('output format', ['table', 'json', 'yaml']).default('table'))
    .action((...[identity, capability, resource, { output, ...options }]: ExplainArguments) =>
      runClient(program, options, (context) => printExplanation(context, { identity, capability, resource, format: output })),
    )
}
