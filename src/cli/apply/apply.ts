import { randomUUID } from 'node:crypto'
import { DomainError } from '../../base/errors.ts'
import type { ClientContext } from '../client/client-command.ts'
import { ClientError, textOf, type Json } from '../client/client-error.ts'
import { printable } from '../client/columns.ts'
import type { ClientCall } from '../client/platform-client.ts'
import { jsonText, yamlText } from '../client/output.ts'
import { UsageError } from '../exit-codes.ts'
import { noteLostSecret, pathOf, reportSecrets } from '../write/write.ts'
import { readDocuments, type DocumentSources, type InputDocument } from './documents.ts'
import { differences } from './fields.ts'
import { linkRecords, type LinkedRecord, type Target } from './link.ts'
import { Planner, targetsOf, type Step } from './plan.ts'
import { wantedOf, type WantedRecord } from './wanted.ts'

/** What to apply, and how. */
export interface ApplyRequest extends DocumentSources {
  readonly dryRun: boolean
  /** True if changed fields are printed. */
  readonly diff: boolean
  /** Undefined: one line for each record. */
  readonly format: 'json' | 'yaml' | 'name' | undefined
  /** The issuer of the tokens of service accounts in the cluster of the objects. */
  readonly clusterIssuer: string | undefined
}

/** A step that is done, and the record after it. */
interface Done {
  readonly step: Step
  record: Json
}

/** What is wrong with documents, in the order in which it was found. */
class Refusals {
  readonly #note: (text: string) => void
  count = 0

  constructor(note: (text: string) => void) {
    this.#note = note
  }

  readonly add = (place: string, why: string): void => {
    this.count += 1
    this.#note(printable(`${place}: ${why}`))
  }

  /** Throws ClientError if there are any. */
  assertNone(): void {
    if (this.count > 0) throw new ClientError(`${this.count === 1 ? 'one document has an error' : `${this.count} documents have errors`}: nothing was changed`)
  }
}

/**
 * Creates the records that documents describe, and changes those that differ. Checks all documents before the first change. Resolves with false if a
 * change failed after another one was made. Rejects with UsageError or ClientError if nothing was changed.
 */
export async function apply(context: ClientContext, request: ApplyRequest): Promise<boolean> {
  const refusals = new Refusals(context.note)
  const documents = await readDocuments(request, refusals.add)
  const wanted = documents.flatMap((document) => wantedIn(document, { request, context, refusals }))
  const records = linkRecords(wanted, refusals.add)
  // Found without a request.
  refusals.assertNone()
  if (records.length === 0) throw new UsageError('there are no records in the input')
  const planner = new Planner(context.client, request.clusterIssuer ?? '')
  const steps = await planAll(planner, records, refusals)
  refusals.assertNone()
  const done: Done[] = []
  const writer = new Writer(context, planner)
  for (const [at, step] of steps.entries()) {
    try {
      const entry = { step, record: request.dryRun ? step.planned : await writer.write(step) }
      done.push(entry)
      // A secret is shown before anything else can fail.
      await report(context, request, entry)
      if (!request.dryRun) entry.record = await writer.finish(entry)
    } catch (error) {
      if (!(error instanceof ClientError)) throw error
      await printAll(context, request, done)
      reportFailure(context, { error, step, left: steps.slice(at + 1) })
      if (writer.writes === 0) throw new ClientError('nothing was changed', {}, error)
      return false
    }
  }
  await printAll(context, request, done)
  return true
}

/** Returns what a document describes. Documents that describe no record are noted and left out. */
function wantedIn(
  document: InputDocument,
  { request, context, refusals }: { readonly request: ApplyRequest; readonly context: ClientContext; readonly refusals: Refusals },
): readonly WantedRecord[] {
  try {
    const wanted = wantedOf(document, request.clusterIssuer)
    if (wanted !== undefined) return [wanted]
    context.note(printable(`${document.place}: ${textOf(document.value['kind'])} is left out, because only a cluster has it`))
  } catch (error) {
    if (!(error instanceof ClientError || error instanceof UsageError)) throw error
    refusals.add(document.place, error.message)
  }
  return []
}

/** Returns the steps for all documents. Those that refer to a document with an error are left out. Rejects with ClientError if the API does not answer. */
async function planAll(planner: Planner, records: readonly LinkedRecord[], refusals: Refusals): Promise<Step[]> {
  const steps: Step[] = []
  const refused = new Set<LinkedRecord | undefined>()
  let isReached = false
  for (const record of records) {
    try {
      if (targetsOf(record).some(({ document }) => document !== undefined && refused.has(document))) refused.add(record)
      else {
        steps.push(await planner.plan(record))
        isReached = true
      }
    } catch (error) {
      if (!(error instanceof ClientError || error instanceof UsageError)) throw error
      // Right after an answer, the reason may be this document. Two in a row are about the connection.
      if (error instanceof ClientError && isOfConnection(error)) {
        if (!isReached) throw error
        isReached = false
      }
      refused.add(record)
      refusals.add(record.wanted.place, `${labelOf(record)}: ${error instanceof ClientError ? error.line : error.message}`)
    }
  }
  return steps
}

/** True if the API did not answer a read, is not available, or does not know the caller. Then no document can be checked. */
function isOfConnection({ code, cause }: ClientError): boolean {
  return code === 14 || code === 16 || (code === undefined && cause !== undefined && !(cause instanceof DomainError))
}

/** Makes the changes of steps, and counts those that happened or may have happened. */
class Writer {
  readonly #context: ClientContext
  readonly #planner: Planner
  writes = 0

  constructor(context: ClientContext, planner: Planner) {
    this.#context = context
    this.#planner = planner
  }

  /** Makes the changes of a step. Resolves with the record. Rejects with ClientError. */
  async write({ record, action, current = {}, mask }: Step): Promise<Json> {
    if (action !== 'create') return mask.length > 0 ? await this.#call({ method: 'PATCH', ...this.#planner.changeOf({ record, mask, current }) }) : current
    const answer = await this.#call({ method: 'POST', ...this.#planner.creationOf(record), idempotencyKey: randomUUID() })
    if (textOf(answer['uid']) === '') throw new ClientError('the answer has no uid, so it is not from a platform API: check the URL')
    this.#planner.created(record, textOf(answer['uid']))
    return answer
  }

  /** Pauses or resumes the subscription of a step, if it says so. Resolves with the record. Rejects with ClientError. */
  async finish({ step, record: before }: Done): Promise<Json> {
    const { create } = step.record.wanted.writable
    if (step.verb === undefined || create === undefined) return before
    const { secret } = before
    const after = await this.#call({ method: 'POST', path: `${pathOf(create, textOf(before['uid']))}:${step.verb}`, body: {} })
    return secret === undefined ? after : { ...after, secret }
  }

  async #call(call: ClientCall): Promise<Json> {
    try {
      const answer = await this.#context.client.call(call)
      this.writes += 1
      return answer
    } catch (error) {
      // Without an answer, the change may have happened.
      if (error instanceof ClientError && error.code === undefined) this.writes += 1
      throw error
    }
  }
}

const results = { create: 'created', update: 'configured', keep: 'unchanged' } as const

/** Returns what is printed of a record: its kind and path, and what identifies it if its kind has no names. */
function labelOf({ wanted, path, references }: LinkedRecord): string {
  const label = `${wanted.writable.kind.kind.toLowerCase()}/${path}`
  if (wanted.name !== undefined) return label
  const { identity_uid: identity, role_uid: role } = references
  const text = identity === undefined || role === undefined ? textOf(wanted.spec.spec['sink']) : `${textOfTarget(role)} -> ${textOfTarget(identity)}`
  return `${label} (${text})`
}

function textOfTarget({ document, reference }: Target): string {
  return document?.path ?? reference.text
}

async function report(context: ClientContext, { format, dryRun, diff }: ApplyRequest, { step, record }: Done): Promise<void> {
  const { output } = context
  if (format === undefined) {
    const would = dryRun && step.action !== 'keep' ? 'would be ' : ''
    await output.write(`${printable(labelOf(step.record))} ${would}${results[step.action]}\n`)
    if (diff) for (const line of linesOf(step)) await output.write(`${printable(line)}\n`)
  }
  const uid = textOf(record['uid'])
  if (format === 'name' && uid !== '') await output.write(`${uid}\n`)
  if (!dryRun && step.action === 'create') {
    await reportSecrets(context, record, format)
    noteLostSecret(context, step.record.wanted.writable.kind, record)
  }
}

function linesOf({ fields: { before, after }, verb }: Step): readonly string[] {
  const lines = differences(before, after)
  return verb === undefined ? lines : [...lines, `  + suspend: ${String(verb === 'pause')}`]
}

async function printAll({ output }: ClientContext, { format }: ApplyRequest, done: readonly Done[]): Promise<void> {
  if (format !== 'json' && format !== 'yaml') return
  const shown = done.map(({ step, record }) => ({
    kind: step.record.wanted.writable.kind.kind,
    path: step.record.path,
    result: results[step.action],
    record,
  }))
  await output.write(format === 'json' ? `${jsonText(shown)}\n` : await yamlText(shown))
}

function reportFailure(
  { note }: ClientContext,
  { error, step, left }: { readonly error: ClientError; readonly step: Step; readonly left: readonly Step[] },
): void {
  note(printable(`${step.record.wanted.place}: ${labelOf(step.record)}: ${error.line}`))
  const names = left.filter(({ action }) => action !== 'keep').map(({ record }) => labelOf(record))
  if (names.length > 0) note(printable(`not applied: ${names.join(', ')}`))
  note('Fix the cause and run the command again: it leaves alone what is done.')
}
