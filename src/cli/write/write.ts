import { randomUUID } from 'node:crypto'
import { isUid } from '../../base/uid.ts'
import type { ClientContext, Reported } from '../client/client-command.ts'
import { ClientError, isJson, textOf, type Json } from '../client/client-error.ts'
import { printable } from '../client/columns.ts'
import { kindNamed, type ClientKind } from '../client/kinds.ts'
import { findByPath, findPlace } from '../client/places.ts'
import type { PlatformClient, ClientQuery } from '../client/platform-client.ts'
import { withPaths } from '../client/record-paths.ts'
import { printRecord, type RecordFormat } from '../client/records.ts'
import { UsageError } from '../exit-codes.ts'
import { findRecord } from '../get.ts'
import { givenFlags, recordOf, type FieldFlag, type GivenFlags } from './field-flags.ts'
import type { OfferedChange, WritableKind } from './writable-kinds.ts'

/** What all changes have: the values of the options, and how the answer is printed. */
export interface WriteRequest {
  readonly flags: GivenFlags
  readonly dryRun: boolean
  /** Undefined: one line that says what was done. */
  readonly format: RecordFormat | undefined
}

/** Fields of answers that are shown once only. */
const secretFields = ['secret', 'code'] as const

/** Creates a record at a path, such as `demo/web`, or below a parent if the kind has no names. Rejects with UsageError or ClientError. */
export async function create(context: ClientContext, writable: WritableKind, { path, ...request }: WriteRequest & { readonly path: string }): Promise<void> {
  const change = offered(writable, 'create')
  const { parent, name } = writable.isNamedByPath ? splitPath(writable.kind, path) : { parent: path, name: undefined }
  const parentUid = parent === undefined ? '' : (await findPlace(context.client, parent, writable.kind.parents)).uid
  const record = await withReferences(context.client, change.flags, { given: request.flags, record: recordOf(change.flags, request.flags) })
  const answer = await context.client.call({
    method: 'POST',
    path: pathOf(change, parentUid),
    query: dryRunQuery(request),
    body: name === undefined ? record : { name, ...record },
    idempotencyKey: randomUUID(),
  })
  if (!request.dryRun && textOf(answer['uid']) === '') throw new ClientError('the answer has no uid, so it is not from a platform API: check the URL')
  await report(context, writable.kind, { ...request, answer, done: 'created', what: path })
  if (!request.dryRun) noteLostSecret(context, writable.kind, answer)
}

/** Changes the fields of a record that options name, and resets those in `clear`. Refused with code 10 if the record changes meanwhile. */
export async function update(
  context: ClientContext,
  writable: WritableKind,
  { record: wanted, clear, ...request }: WriteRequest & { readonly record: string; readonly clear: readonly string[] },
): Promise<void> {
  const change = offered(writable, 'update')
  const given = givenFlags(change.flags, request.flags)
  const cleared = clear.map((name) => change.flags.find((flag) => flag.name === name) ?? noFlag(writable.kind, name))
  const mask = [...given, ...cleared].map(({ maskPath }) => maskPath)
  if (mask.length === 0) throw new UsageError('nothing to change: name a field, or --clear one')
  const both = cleared.find((flag) => given.includes(flag))
  if (both !== undefined) throw new UsageError(`--clear ${both.name} cannot be combined with --${both.name}`)
  const found = await findRecord(context.client, writable.kind, { record: wanted, filter: [] })
  const record = await withReferences(context.client, change.flags, { given: request.flags, record: recordOf(change.flags, request.flags) })
  const answer = await context.client.call({
    method: 'PATCH',
    path: pathOf(change, textOf(found['uid'])),
    query: { ...dryRunQuery(request), updateMask: mask.join(',') },
    body: record,
    ifMatch: textOf(found['etag']),
  })
  await report(context, writable.kind, { ...request, answer, done: 'changed', what: wanted })
}

/** Deletes records. All are found before the first one is deleted. `confirm` resolves with false if the person decides against it. */
export async function remove(
  context: ClientContext,
  writable: WritableKind,
  { records, dryRun, confirm }: { readonly records: readonly string[]; readonly dryRun: boolean; readonly confirm: (question: string) => Promise<boolean> },
): Promise<void> {
  const { client, note, output } = context
  const change = offered(writable, 'delete')
  const word = writable.kind.kind.toLowerCase()
  const found: { uid: string; etag?: string; record: string }[] = []
  for (const record of records) found.push(await identified(client, writable.kind, record))
  const names = found.map(({ uid, record }) => (uid === record ? uid : `${record} (${uid})`)).join(', ')
  if (!dryRun && !(await confirm(`Delete ${found.length === 1 ? word : writable.kind.words} ${names}?`))) {
    note('nothing was deleted')
    return
  }
  for (const { uid, etag = '', record } of found) {
    await client.call({ method: 'DELETE', path: pathOf(change, uid), query: dryRunQuery({ dryRun }), ifMatch: etag })
    await output.write(`${word} ${record} ${dryRun ? 'would be ' : ''}deleted\n`)
  }
}

/** Finds a record. If it was found by its name, the result has its etag: another record may get the name meanwhile. */
async function identified(client: PlatformClient, kind: ClientKind, record: string): Promise<{ uid: string; etag?: string; record: string }> {
  if (isUid(record)) {
    if (kind.getPath !== undefined) await findRecord(client, kind, { record, filter: [] })
    return { uid: record, record }
  }
  const found = await findRecord(client, kind, { record, filter: [] })
  return { uid: textOf(found['uid']), etag: textOf(found['etag']), record }
}

function offered({ kind, ...changes }: WritableKind, verb: 'create' | 'update' | 'delete'): OfferedChange {
  const change = changes[verb]
  if (change === undefined) throw new UsageError(`the API cannot ${verb} ${kind.words}`)
  return change
}

function noFlag({ words }: ClientKind, name: string): never {
  throw new UsageError(`${words} have no field ${name} that can be cleared`)
}

/** Splits the path of a new record into its parent and its name. A tag follows a colon. Throws UsageError. */
export function splitPath({ kind, parents }: ClientKind, path: string): { readonly parent: string | undefined; readonly name: string } {
  if (isUid(path)) throw new UsageError(`the path of a new ${kind.toLowerCase()} has a name at its end: write ${path}/<name>`)
  const at = parents.includes('Repo') ? path.lastIndexOf(':') : path.lastIndexOf('/')
  const [parent, name] = [path.slice(0, Math.max(at, 0)), path.slice(at + 1)]
  if (name === '') throw new UsageError(`"${path}" has no name at its end`)
  if (parent !== '') return { parent, name }
  if (parents.includes('/')) return { parent: undefined, name }
  const example = parents.includes('Repo') ? `${name}:1.0` : `demo/${name}`
  throw new UsageError(`a ${kind.toLowerCase()} needs a parent: write its path, such as ${example}`)
}

/** Returns the path of the REST call for a change. `uid` is that of the record, or of the parent of a new one; empty for the root. */
export function pathOf({ route: { template } }: OfferedChange, uid: string): string {
  return template.replace(/\/\{[^}]*\}/, uid === '' ? '' : `/${uid}`)
}

function dryRunQuery({ dryRun }: { readonly dryRun: boolean }): ClientQuery {
  return dryRun ? { validateOnly: 'true' } : {}
}

/** Returns the record with the uids of the records that its fields name by path. */
async function withReferences(
  client: PlatformClient,
  flags: readonly FieldFlag[],
  { given, record }: { readonly given: GivenFlags; readonly record: Json },
): Promise<Json> {
  const found: Record<string, unknown> = { ...record }
  for (const {
    path: [name = ''],
    reference,
  } of givenFlags(flags, given)) {
    const value = textOf(record[name])
    if (reference === undefined || value === '' || isUid(value)) continue
    found[name] = textOf((await findByPath(client, kindNamed(reference), value))['uid'])
  }
  return found
}

async function report(
  { client, output, clock, note }: ClientContext,
  kind: ClientKind,
  { answer, format, dryRun, done, what }: Omit<WriteRequest, 'flags'> & { readonly answer: Json; readonly done: string; readonly what: string },
): Promise<void> {
  const [shown = answer] = format === 'table' || format === 'wide' ? await withPaths(client, kind, [answer]) : [answer]
  if (format !== undefined) await printRecord(shown, format, { output, kind, nowMs: clock.now() })
  // These formats have all fields.
  if (format === 'json' || format === 'yaml') return
  const uid = dryRun ? '' : ` (${textOf(answer['uid'])})`
  if (format === undefined) await output.write(`${kind.kind.toLowerCase()} ${what} ${dryRun ? 'would be ' : ''}${done}${uid}\n`)
  await reportSecrets({ output, note }, answer, format)
}

/** Prints the secrets of an answer that are shown once only. Does nothing in formats that have all fields. */
export async function reportSecrets({ output, note }: Reported, answer: Json, format: RecordFormat | undefined): Promise<void> {
  if (format === 'json' || format === 'yaml') return
  for (const name of secretFields) {
    const secret = textOf(answer[name])
    if (secret === '') continue
    if (format === undefined) await output.write(`${name}: ${printable(secret)}\n`)
    else note(`${name}: ${printable(secret)}`)
    note(`Keep the ${name}: it is shown only now.`)
  }
}

/** Tells that the secret of a new record is lost: the first answer did not arrive, and a repeated one never contains it. */
export function noteLostSecret({ note }: Pick<Reported, 'note'>, { kind }: ClientKind, answer: Json): void {
  if (kind === 'GroupInvite' && textOf(answer['code']) === '') note('The connection broke, and the code is lost: delete the invite and create another one.')
  if (kind === 'Subscription' && textOf(answer['signing']) === 'STANDARD_WEBHOOKS' && textOf(answer['secret']) === '')
    note('The connection broke, and the secret is lost: rotate it with POST /events/v2/subscriptions/<uid>:rotateSecret.')
}

/** Prints all fields of a record, one per line. */
export async function describe(context: ClientContext, kind: ClientKind, wanted: string): Promise<void> {
  const record = await findRecord(context.client, kind, { record: wanted, filter: [] })
  const rows = leaves(record, '').map(([name, value]) => [printable(name), printable(value)] as const)
  const width = Math.max(...rows.map(([name]) => name.length))
  await context.output.write(
    `${context.output.style('bold', `${kind.kind.toLowerCase()} ${wanted}`)}\n${rows.map(([name, value]) => `  ${name.padEnd(width)}  ${value}\n`).join('')}`,
  )
}

/** Returns the names and values of all fields within a JSON value. Empty ones are left out. */
export function leaves(value: unknown, name: string): readonly (readonly [name: string, value: string])[] {
  if (Array.isArray(value) && value.every((one) => !isJson(one))) return value.length === 0 ? [] : [[name, value.map(String).join(', ')]]
  if (Array.isArray(value)) return value.flatMap((one, at) => leaves(one, `${name}[${at}]`))
  if (isJson(value)) return Object.entries(value).flatMap(([key, one]) => leaves(one, name === '' ? key : `${name}.${key}`))
  return value === '' || value === null || value === undefined ? [] : [[name, String(value)]]
}
