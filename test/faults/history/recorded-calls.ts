import type { JsonObject } from '@bufbuild/protobuf'
import type { Options, Reply } from '../../support/api-clients.ts'
import { reasonOf, type ApiCall, type CallResult } from './api-calls.ts'
import { isExplained, missingOf, type Asked } from './explained-answers.ts'
import type { History, HistoryKind, Operation, Outcome, Seen } from './history.ts'
import { kindFacts, type Versions } from './known-records.ts'
import { pageError } from './list-page.ts'

/** Sends a call of one client: to an endpoint of its choice, or to a fixed one. */
export type Send = (call: ApiCall) => Promise<CallResult>

/** What recorded calls are made with. */
export interface RecordedCallsOptions {
  readonly client: number
  readonly history: History
  readonly versions: Versions
  readonly send: Send
  /** Waits before the next attempt. Returns false if there is to be none. */
  readonly pause: () => Promise<boolean>
  /** Called with every completed operation. */
  readonly ended: (operation: Operation) => void
  /** Called with answers that are wrong by themselves. */
  readonly wrong: (text: string) => void
}

/** A record to create. */
export interface Creation {
  readonly kind: HistoryKind
  /** `/` for a root group. */
  readonly parent: string
  readonly fields: JsonObject
  readonly value: string
  readonly tag?: string
  readonly identity?: string
  /** The unique name of the record. */
  readonly name?: string
  /** If set, the create is repeated until there is an answer. */
  readonly idempotencyKey?: string
}

/** A create without an answer, and its operation in the history. */
export interface Unsettled {
  readonly creation: Creation
  readonly operation: Operation
}

/** A change of a record. */
export interface Change {
  readonly kind: HistoryKind
  readonly parent: string
  readonly uid: string
  readonly fields: JsonObject
  readonly value: string
  readonly name?: string
  /** The state in If-Match. */
  readonly guard?: Seen
}

/** Number of attempts of a create with a key before it is left for later. */
const maxAttempts = 6
/** The maximum number of records on a page (docs/spec/conventions.md#page-size). */
const pageSize = 200
/** Error codes after which it is unknown whether a write happened. Those that the server may not return are also reported as wrong. */
const indeterminate: ReadonlySet<number> = new Set([1, 2, 4, 13, 14])

interface Attempt {
  readonly call: number
  readonly ended: number
  readonly reply: Reply
}

/** Calls that are recorded in a history, one at a time. */
export class RecordedCalls {
  readonly #options: RecordedCallsOptions

  constructor(options: RecordedCallsOptions) {
    this.#options = options
  }

  /** Creates a record. Returns its current state; undefined if it may be missing. Calls `unsettled` with a creation that may be repeated later. */
  async create(creation: Creation, unsettled: (left: Unsettled) => void): Promise<Seen | undefined> {
    const { history, pause } = this.#options
    const call = history.now()
    let doubt: { readonly code?: number } | undefined
    for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
      const attemptCall = history.now()
      const result = await this.#send(createCall(creation), { ...base(creation), isDoubted: doubt !== undefined })
      const ended = history.now()
      if (result.kind === 'answered' && !indeterminate.has(result.reply.code)) {
        const made = this.#concludeCreation(creation, { call, doubted: doubt !== undefined }, { call: attemptCall, ended, reply: result.reply })
        return made
      }
      if (result.kind !== 'unsent') doubt = result.kind === 'answered' ? { code: result.reply.code } : {}
      if (creation.idempotencyKey === undefined || !(await pause())) break
    }
    if (doubt === undefined) return undefined
    const operation = this.#record({ ...base(creation), call, return: null, outcome: 'unknown', ...doubt })
    if (creation.idempotencyKey !== undefined) unsettled({ creation, operation })
    return undefined
  }

  /** Repeats a create without an answer. Returns true if there is one now. Replaces its operation in the history. */
  async settle({ creation, operation }: Unsettled): Promise<boolean> {
    const { history } = this.#options
    const call = history.now()
    const result = await this.#send(createCall(creation), { ...base(creation), isDoubted: true })
    if (result.kind !== 'answered' || indeterminate.has(result.reply.code)) return false
    history.operations.splice(history.operations.indexOf(operation), 1)
    this.#concludeCreation(creation, { call: operation.call, doubted: true }, { call, ended: history.now(), reply: result.reply })
    return true
  }

  /** Changes a record. */
  async update(change: Change): Promise<{ readonly outcome: Outcome; readonly seen?: Seen } | undefined> {
    const { kind, parent, uid, fields, value, name, guard } = change
    const { field } = kindFacts[kind]
    const written = { action: 'update', kind, parent, uid, value, ...(name === undefined ? {} : { name }), ...guardOf(guard) } as const
    const done = await this.#write(written, { rpc: `Update${kind}`, request: { [field]: { uid, ...fields } }, options: ifMatch(guard) })
    if (done?.outcome !== 'ok') return done === undefined ? undefined : { outcome: done.outcome }
    const seen = this.#options.versions.seenOf(kind, done.reply.body)
    this.#record({ ...written, call: done.call, return: done.ended, outcome: 'ok', ...marksOf(seen), etag: seen.etag })
    if (seen.value !== value) this.#recordRead(kind, parent, { seen, call: done.call, ended: done.ended })
    return { outcome: 'ok', seen }
  }

  /** Removes a record. */
  async remove(target: { kind: HistoryKind; parent: string; uid: string; guard?: Seen }): Promise<Outcome | undefined> {
    const { kind, parent, uid, guard } = target
    const written = { action: 'delete', kind, parent, uid, ...guardOf(guard) } as const
    const done = await this.#write(written, { rpc: `Delete${kind}`, request: { uid }, options: ifMatch(guard) })
    if (done?.outcome === 'ok') this.#record({ ...written, call: done.call, return: done.ended, outcome: 'ok' })
    return done?.outcome
  }

  /** Reads a record. Returns it, or `absent`, or undefined without such an answer. */
  async read(target: { kind: HistoryKind; parent: string; uid: string }): Promise<Seen | 'absent' | undefined> {
    const { kind, parent, uid } = target
    const call = this.#options.history.now()
    const result = await this.#send({ rpc: `Get${kind}`, request: { uid } }, { action: 'read', kind, parent, uid })
    const ended = this.#options.history.now()
    if (result.kind !== 'answered') return undefined
    if (isAbout(result.reply, uid)) {
      this.#record({ action: 'read', kind, parent, uid, call, return: ended, outcome: 'absent' })
      return 'absent'
    }
    if (result.reply.code !== 0) return undefined
    const seen = this.#options.versions.seenOf(kind, result.reply.body)
    if (seen.uid !== uid) this.#options.wrong(`asked for ${kind} ${uid}, got ${seen.uid}`)
    this.#recordRead(kind, parent, { seen, call, ended })
    return seen
  }

  /** Reads a group as `identity`, which has no rights except by its bindings there. Returns whether it was allowed, or undefined without an answer. */
  async use({ parent, identity }: { parent: string; identity: string }): Promise<'ok' | 'absent' | undefined> {
    const used = { action: 'use', kind: 'RoleBinding', parent, identity } as const
    const call = this.#options.history.now()
    const result = await this.#send({ rpc: 'GetGroup', request: { uid: parent } }, used)
    const ended = this.#options.history.now()
    if (result.kind !== 'answered') return undefined
    const { reply } = result
    if (reply.code !== 0 && reply.code !== 7 && !isAbout(reply, parent)) return undefined
    const outcome = reply.code === 0 ? 'ok' : 'absent'
    this.#record({ ...used, call, return: ended, outcome, ...(reply.code === 0 ? {} : { code: reply.code }) })
    return outcome
  }

  /** Lists the records of a kind in a group; undefined without an answer. Leaves out records for which `isForeign` is true. */
  async list(target: { kind: HistoryKind; parent: string; query: JsonObject; isForeign: (seen: Seen) => boolean }): Promise<readonly Seen[] | undefined> {
    const { kind, parent, query, isForeign } = target
    const { list, plural } = kindFacts[kind]
    const call = this.#options.history.now()
    const result = await this.#send({ rpc: list, request: { pageSize, ...query } }, { action: 'list', kind, parent })
    const ended = this.#options.history.now()
    if (result.kind !== 'answered' || result.reply.code !== 0) return undefined
    const { body } = result.reply
    // Every list answer has one array, with the name of its kind.
    const records = body[plural] as JsonObject[]
    const [total, hasNext] = [Number(body['totalCount']), (body['nextPageToken'] ?? '') !== '']
    const fault = pageError({ records, total, hasNext, pageSize, orderBy: orderOf(query) })
    if (fault !== undefined) this.#options.wrong(`${list} of ${parent} ${fault}`)
    // Several pages do not show the state of one moment.
    if (fault !== undefined || hasNext) return undefined
    const members = records.map((record) => this.#options.versions.seenOf(kind, record)).filter((seen) => !isForeign(seen))
    this.#record({ action: 'list', kind, parent, call, return: ended, outcome: 'ok', members })
    return members
  }

  /** Sends the call. Reports an answer that the server may never give as wrong. */
  async #send(call: ApiCall, asked: Asked): Promise<CallResult> {
    const result = await this.#options.send(call)
    if (result.kind === 'answered' && !isExplained(asked, result.reply)) {
      const { code, message } = result.reply
      this.#options.wrong(`${call.rpc} of ${asked.uid ?? `one in ${asked.parent}`} was answered by code ${code} ${reasonOf(result.reply)}: ${message}`)
    }
    return result
  }

  #record(fields: Omit<Operation, 'client'>): Operation {
    const operation = { client: this.#options.client, ...fields }
    this.#options.history.record(operation)
    this.#options.ended(operation)
    return operation
  }

  #recordRead(kind: HistoryKind, parent: string, what: { seen: Seen; call: number; ended: number }): void {
    this.#record({ action: 'read', kind, parent, call: what.call, return: what.ended, outcome: 'ok', ...what.seen })
  }

  /** Sends a change or removal, and records it unless it succeeded: then the caller records it with the answer. Returns undefined if it was never sent. */
  async #write(
    written: Pick<Operation, 'action' | 'kind' | 'parent' | 'value' | 'name' | 'guard'> & { readonly uid: string },
    apiCall: ApiCall,
  ): Promise<(Attempt & { readonly outcome: Outcome }) | { readonly outcome: Exclude<Outcome, 'ok'> } | undefined> {
    const call = this.#options.history.now()
    const result = await this.#send(apiCall, written)
    const ended = this.#options.history.now()
    if (result.kind === 'unsent') return undefined
    if (result.kind === 'unanswered' || indeterminate.has(result.reply.code)) {
      const code = result.kind === 'answered' ? { code: result.reply.code } : {}
      this.#record({ ...written, call, return: null, outcome: 'unknown', ...code })
      return { outcome: 'unknown' }
    }
    const { reply } = result
    const outcome = outcomeOf(reply, written)
    if (outcome !== 'ok') this.#record({ ...written, call, return: ended, outcome, code: reply.code })
    return { outcome, call, ended, reply }
  }

  #concludeCreation(creation: Creation, since: { call: number; doubted: boolean }, attempt: Attempt): Seen | undefined {
    const { kind, parent } = creation
    const { reply, ended } = attempt
    const made = { ...base(creation), call: since.call, return: ended }
    if (reply.code === 0) {
      const seen = this.#options.versions.seenOf(kind, reply.body)
      // The answer to a repetition is the current record: another client may have changed it, and back.
      const isAsMade = !since.doubted && seen.value === creation.value
      this.#record({ ...made, outcome: 'ok', uid: seen.uid, ...(isAsMade ? { etag: seen.etag } : {}) })
      if (!isAsMade) this.#recordRead(kind, parent, { seen, call: attempt.call, ended })
      return seen
    }
    const missing = missingOf(reply)
    if (since.doubted && reply.code === 5 && missing.startsWith(`${parent}/`)) {
      // An earlier attempt created it, and another client removed it since.
      this.#record({ ...made, outcome: 'ok', uid: missing })
      this.#record({ action: 'read', kind, parent, uid: missing, call: attempt.call, return: ended, outcome: 'absent' })
    } else if (since.doubted) {
      // An earlier attempt may still be under way.
      this.#record({ ...made, return: null, outcome: 'unknown' })
    } else {
      const outcome = isAbout(reply, parent) ? 'absent' : reply.code === 6 ? 'taken' : 'refused'
      this.#record({ ...made, outcome, code: reply.code })
    }
    return undefined
  }
}

function createCall({ kind, parent, fields, idempotencyKey }: Creation): ApiCall {
  const request = { ...(parent === '/' ? {} : { parent }), [kindFacts[kind].field]: fields }
  return { rpc: `Create${kind}`, request, ...(idempotencyKey === undefined ? {} : { options: { idempotencyKey } }) }
}

function base({ kind, parent, value, tag, identity, name }: Creation): Pick<Operation, 'action' | 'kind' | 'parent' | 'value' | 'tag' | 'identity' | 'name'> {
  const marks = { ...(tag === undefined ? {} : { tag }), ...(identity === undefined ? {} : { identity }), ...(name === undefined ? {} : { name }) }
  return { action: 'create', kind, parent, value, ...marks }
}

function orderOf({ orderBy }: JsonObject): string | undefined {
  return typeof orderBy === 'string' ? orderBy : undefined
}

function marksOf({ tag, identity }: Seen): Pick<Operation, 'tag' | 'identity'> {
  return { ...(tag === undefined ? {} : { tag }), ...(identity === undefined ? {} : { identity }) }
}

function guardOf(guard: Seen | undefined): Pick<Operation, 'guard' | 'guardValue'> {
  return guard === undefined ? {} : { guard: guard.etag, guardValue: guard.value }
}

function ifMatch(guard: Seen | undefined): Options {
  return guard === undefined ? {} : { ifMatch: guard.etag }
}

/** Returns whether the answer says that exactly this record is missing. */
function isAbout(reply: Reply, uid: string): boolean {
  return reply.code === 5 && missingOf(reply) === uid
}

function outcomeOf(reply: Reply, written: { readonly uid: string; readonly guard?: string | undefined; readonly name?: string | undefined }): Outcome {
  if (reply.code === 0) return 'ok'
  if (isAbout(reply, written.uid)) return 'absent'
  if (reply.code === 10 && reasonOf(reply) === 'ETAG_MISMATCH' && written.guard !== undefined) return 'stale'
  if (reply.code === 6 && written.name !== undefined) return 'taken'
  return 'refused'
}
