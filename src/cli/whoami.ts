import type { Command } from 'commander'
import { isUid, rootOf } from '../base/uid.ts'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { ClientError, isJson, objectOf, textOf, textsOf, type Json } from './client/client-error.ts'
import { ageText, printable, alignedLine, columnWidths } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { groupPaths } from './client/group-paths.ts'
import { kindNamed } from './client/kinds.ts'
import type { PlatformClient } from './client/platform-client.ts'
import { formatOption, printRecord, type RecordFormat } from './client/records.ts'
import { claimsOf } from './sign-in/context-token.ts'

/** Uid of a record, and its name if the caller can see it. */
interface NamedRecord {
  readonly uid: string
  readonly name: string | undefined
}

/** The identity of a token, with its expiry and roles. */
export interface WhoAmICaller {
  readonly identity: NamedRecord
  /** Issuer and subject of the external sign-in for which the token was issued. */
  readonly signedInAs: { readonly issuer: string; readonly subject: string } | undefined
  /** Undefined for a person, since people belong to no organisation. */
  readonly organisation: NamedRecord | undefined
  readonly audience: readonly string[]
  readonly email: string
  readonly issueTime: string
  readonly expirationTime: string
  /** One entry per role binding, restricted like the token, and sorted by path and role. */
  readonly roles: readonly HeldRole[]
}

/** A role on a group and everything below it. */
interface HeldRole {
  readonly role: string
  /** Path of the group: names from the topmost group that the caller can see. */
  readonly group: string
  readonly groupUid: string
  readonly capabilities: readonly string[]
}

/** Reads the caller's data from the API, and what is missing there from the token. Rejects with ClientError. */
export async function readCaller(client: PlatformClient, token: string): Promise<WhoAmICaller> {
  const answer = await client.call({ method: 'GET', path: '/auth/v1/ok' })
  const claims = claimsOf(token)
  const uid = textOf(answer['subject'])
  const held = membersOf(answer['capabilities'])
  const organisation = isUid(uid) && uid.includes('/') ? rootOf(uid) : undefined
  const groupUids = held.map(({ group }) => textOf(objectOf(group)['id']))
  const [name, paths] = await Promise.all([nameOf(client, uid), groupPaths(client, [...groupUids, ...(organisation === undefined ? [] : [organisation])])])
  return {
    identity: { uid, name },
    signedInAs: signInOf(claims),
    organisation: organisation === undefined ? undefined : { uid: organisation, name: paths.get(organisation) },
    audience: textsOf([claims['aud'] ?? answer['audience']].flat()),
    email: textOf(answer['email']),
    issueTime: textOf(answer['issuedAt']),
    expirationTime: textOf(answer['expiry']),
    roles: held.map((one) => heldRole(one, paths)).toSorted(byPlace),
  }
}

function heldRole({ group, role, capabilities }: Json, paths: ReadonlyMap<string, string>): HeldRole {
  const { id: uid, name } = objectOf(group)
  return {
    role: textOf(objectOf(role)['name']),
    group: paths.get(textOf(uid)) ?? textOf(name),
    groupUid: textOf(uid),
    capabilities: textsOf(capabilities),
  }
}

function byPlace(one: HeldRole, other: HeldRole): number {
  const keys = [one, other].map(({ group, role, groupUid }) => [group, role, groupUid].join('\0'))
  return (keys[0] ?? '') < (keys[1] ?? '') ? -1 : 1
}

/** Returns the name of an identity; undefined if it may not read its own record. */
async function nameOf(client: PlatformClient, uid: string): Promise<string | undefined> {
  try {
    const identity = await client.call({ method: 'GET', path: `${kindNamed('Identity').listPath}/${uid}` })
    return textOf(identity['name'])
  } catch (error) {
    if (error instanceof ClientError && (error.code === 5 || error.code === 7)) return undefined
    throw error
  }
}

/** Returns the external sign-in of a token. Tokens of the platform have it in the claim `act`. */
function signInOf(claims: Json): WhoAmICaller['signedInAs'] {
  const { iss, sub } = isJson(claims['act']) ? claims['act'] : claims
  return typeof iss === 'string' && typeof sub === 'string' ? { issuer: iss, subject: sub } : undefined
}

function membersOf(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.filter(isJson) : []
}

/** Creates the command `whoami`. `program` is the name on the command line. */
export function whoamiCommand(program: string): Command {
  return clientCommand('whoami', 'print the identity, expiry and roles of the token')
    .addOption(formatOption('output format', ['table', 'json', 'yaml']).default('table'))
    .action((options: ConnectionOptions & { output: RecordFormat }) => runClient(program, options, (context) => whoami(context, options.output)))
}

/** Prints the caller's identity, expiry and roles. Rejects with ClientError. */
export async function whoami({ client, token, output, clock }: ClientContext, format: RecordFormat): Promise<void> {
  const caller = await readCaller(client, await token())
  if (format === 'table') await output.write(factsText(caller, clock.now()))
  else await printRecord({ ...caller }, format, { output, kind: { kind: 'Caller' }, nowMs: clock.now() })
}

/** Returns the lines for a terminal: the `first` facts, then those of the caller. */
export function factsText(caller: WhoAmICaller, nowMs: number, first: readonly [string, string][] = []): string {
  const { identity, signedInAs, organisation, audience, expirationTime, email, roles } = caller
  const leftMs = Date.parse(expirationTime) - nowMs
  const facts: [string, string][] = [
    ...first,
    ['identity', namedText(identity)],
    ['signed in as', signedInAs === undefined ? 'unknown' : `${signedInAs.subject} at ${signedInAs.issuer}`],
    ['e-mail', email],
    ['organisation', organisation === undefined ? 'none' : namedText(organisation)],
    ['audience', audience.join(', ')],
    ['expires', `${expirationTime}${leftMs > 0 ? `, in ${ageText(leftMs)}` : ''}`],
    ['roles', roles.length === 0 ? 'none' : ''],
  ]
  const lines = facts
    .filter(([name, value]) => value !== '' || (name === 'roles' && roles.length > 0))
    .map(([name, value]) => `${name.padEnd(14)}${printable(value)}`.trimEnd())
  return `${[...lines, ...roleLines(roles)].join('\n')}\n`
}

function roleLines(roles: WhoAmICaller['roles']): string[] {
  const rows = roles.map(({ role, group, groupUid }) => [role, group, groupUid].map(printable))
  const widths = columnWidths(rows)
  return rows.map((row) => `  ${alignedLine(row, widths)}`)
}

function namedText({ uid, name }: { readonly uid: string; readonly name: string | undefined }): string {
  return name === undefined ? uid : `${name} (${uid})`
}
