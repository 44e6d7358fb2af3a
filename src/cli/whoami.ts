import { Option, type Command } from 'commander'
import { isUid, rootOf } from '../base/uid.ts'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { ClientError, isJson, textOf, type Json } from './client/client-error.ts'
import { ageText, printable, alignedLine, columnWidths } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { groupPaths } from './client/group-paths.ts'
import { kindNamed } from './client/kinds.ts'
import { jsonText, yamlText } from './client/output.ts'
import type { PlatformClient } from './client/platform-client.ts'

/** A record by uid and, where the caller may see it, name. */
interface NamedRecord {
  readonly uid: string
  readonly name: string | undefined
}

/** Who a token is, and what they may do. */
export interface WhoAmICaller {
  readonly identity: NamedRecord
  /** Whose sign-in the token stands for, as its issuer said it. */
  readonly signedInAs: { readonly issuer: string; readonly subject: string } | undefined
  /** Undefined for a person, who belongs to none. */
  readonly organisation: NamedRecord | undefined
  readonly audience: readonly string[]
  readonly email: string
  readonly issueTime: string
  readonly expirationTime: string
  /** One entry per role binding, cut like the token; by path and role. */
  readonly roles: readonly HeldRole[]
}

/** A role that is held on a group and below it. */
interface HeldRole {
  readonly role: string
  /** The names from the topmost group that the caller may see. */
  readonly group: string
  readonly groupUid: string
  readonly capabilities: readonly string[]
}

/** Asks the API who the caller is; what it does not tell is taken from the token. Rejects with ClientError. */
async function readCaller(client: PlatformClient, token: string): Promise<WhoAmICaller> {
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
    audience: textsOf(claims['aud'] ?? answer['audience']),
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

/** Identities may lack the right to see themselves. */
async function nameOf(client: PlatformClient, uid: string): Promise<string | undefined> {
  try {
    const identity = await client.call({ method: 'GET', path: `${kindNamed('Identity').listPath}/${uid}` })
    return textOf(identity['name'])
  } catch (error) {
    if (error instanceof ClientError && (error.code === 5 || error.code === 7)) return undefined
    throw error
  }
}

/** Whom the token's issuer signed it for; our own tokens say who signed in for them in `act`. */
function signInOf(claims: Json): WhoAmICaller['signedInAs'] {
  const { iss, sub } = isJson(claims['act']) ? claims['act'] : claims
  return typeof iss === 'string' && typeof sub === 'string' ? { issuer: iss, subject: sub } : undefined
}

/** What a JWT says, unverified: that it is good, the server has said. Empty where it is none. */
function claimsOf(token: string): Json {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())
    return isJson(claims) ? claims : {}
  } catch {
    // No JWT: told by what is missing.
    return {}
  }
}

function objectOf(value: unknown): Json {
  return isJson(value) ? value : {}
}

function membersOf(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.filter(isJson) : []
}

function textsOf(value: unknown): readonly string[] {
  return [value].flat().filter((text) => typeof text === 'string')
}

const formats = ['table', 'json', 'yaml'] as const

/** `taproot whoami`. `program` is what it is called by. */
export function whoamiCommand(program: string): Command {
  return clientCommand('whoami', 'print who the token is, until when, and which roles it has where')
    .addOption(new Option('-o, --output <format>', 'how it is printed').choices(formats).default('table'))
    .action((options: ConnectionOptions & { output: (typeof formats)[number] }) => runClient(program, options, (context) => whoami(context, options.output)))
}

/** Prints who the caller is. Rejects with ClientError. */
export async function whoami({ client, token, output, clock }: ClientContext, format: (typeof formats)[number]): Promise<void> {
  const caller = await readCaller(client, token)
  const text = { table: () => factsText(caller, clock.now()), json: () => `${jsonText(caller)}\n`, yaml: () => yamlText(caller) }[format]()
  await output.write(text)
}

function factsText(caller: WhoAmICaller, nowMs: number): string {
  const { identity, signedInAs, organisation, audience, expirationTime, email, roles } = caller
  const leftMs = Date.parse(expirationTime) - nowMs
  const facts: [string, string][] = [
    ['identity', namedText(identity)],
    ['signed in as', signedInAs === undefined ? 'not told' : `${signedInAs.subject} at ${signedInAs.issuer}`],
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
