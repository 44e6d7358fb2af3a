import { randomInt } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import type { ApiClient, Options, Reply } from '../../../support/api-clients.ts'
import { freshName, ok, roleUid } from '../../../support/test-server.ts'

/** The known state of one resource: two fields that every write sets together, so that a partial write is detected. */
interface Known {
  readonly name: string
  readonly description: string
}

/** A resource's state; undefined if it does not exist. */
type State = Known | undefined

/** One of a writer's groups or identities. */
export interface Entry {
  readonly kind: 'Group' | 'Identity'
  /** Absent until a create was acknowledged. */
  uid: string | undefined
  acknowledged: State
  /** The possible effect of a write without an answer. */
  pending: { readonly state: State; readonly key: string } | undefined
  /** True if its binding was acknowledged. */
  bound: boolean
}

/** The server, token and group for a writer. */
export interface WriterTarget {
  readonly apiClient: ApiClient
  readonly token: string
  /** The parent group of all created records. */
  readonly group: string
}

/** Error codes after which it is unknown whether the write happened. */
const unanswered = new Set([1, 4, 14])

/**
 * Writes to its own resources and remembers acknowledged states. Identities are created together with a binding, so that their deletion removes another
 * record. One writer has at most one write under way.
 */
export class Writer {
  acknowledgedWrites = 0
  readonly #entries = new Set<Entry>()

  /** Writes until a write gets no answer or `signal` aborts. Throws if an answer is neither a success nor an unavailability. */
  async write(target: WriterTarget, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const entry = this.#choose()
      if (!(await this.#step(target, entry))) return
      this.acknowledgedWrites += 1
    }
  }

  /** Compares the known states with those of the server, and takes these over. Returns one line for each difference that no write explains. */
  async check(target: WriterTarget): Promise<string[]> {
    const errors: string[] = []
    for (const entry of this.#entries) {
      const error = await this.#checkOne(target, entry)
      if (error !== undefined) errors.push(error)
      if (entry.acknowledged === undefined) this.#entries.delete(entry)
    }
    return errors
  }

  /** Returns the resources that must exist, right after `check`. */
  entries(): readonly Readonly<Entry>[] {
    return [...this.#entries]
  }

  #choose(): Entry {
    const entries = [...this.#entries]
    const known = entries[randomInt(Math.max(1, entries.length))]
    if (known !== undefined && randomInt(100) < 60) return known
    const fresh: Entry = { kind: randomInt(2) === 0 ? 'Group' : 'Identity', uid: undefined, acknowledged: undefined, pending: undefined, bound: false }
    this.#entries.add(fresh)
    return fresh
  }

  /** Makes one write. Returns false if it got no answer. */
  async #step(target: WriterTarget, entry: Entry): Promise<boolean> {
    const name = freshName('entry')
    const next: State = entry.acknowledged !== undefined && randomInt(3) === 0 ? undefined : { name, description: `of ${name}` }
    entry.pending = { state: next, key: name }
    const reply = await this.#send(target, entry, next)
    if (reply === undefined) return false
    const body = ok(reply)
    entry.uid ??= String(body['uid'])
    if (next !== undefined) sameOrThrow(body, next)
    entry.acknowledged = next
    entry.pending = undefined
    if (next === undefined) this.#entries.delete(entry)
    return true
  }

  async #send({ apiClient, token, group }: WriterTarget, entry: Entry, next: State): Promise<Reply | undefined> {
    const { kind, uid } = entry
    const resource = kind === 'Group' ? 'group' : 'identity'
    if (uid === undefined) {
      const claimMatch = { issuer: 'https://issuer.example', subject: 'unknown' }
      const fields = kind === 'Group' ? { ...next } : { ...next, claimMatch }
      const options = { token, idempotencyKey: entry.pending?.key ?? '' }
      const made = await answerOf(apiClient.call(`Create${kind}`, { parent: group, [resource]: fields }, options))
      if (made === undefined || kind === 'Group') return made
      const roleBinding = { identityUid: String(ok(made)['uid']), roleUid: roleUid('viewer') }
      // The identity is acknowledged, whatever happened to its binding.
      entry.uid = roleBinding.identityUid
      entry.acknowledged = next
      entry.pending = undefined
      const binding = await answerOf(apiClient.call('CreateRoleBinding', { parent: group, roleBinding }, { token }))
      if (binding === undefined) return undefined
      ok(binding)
      entry.bound = true
      return made
    }
    if (next === undefined) return await answerOf(apiClient.call(`Delete${kind}`, { uid }, { token }))
    return await answerOf(apiClient.call(`Update${kind}`, { [resource]: { uid, ...next } }, { token }))
  }

  async #checkOne(target: WriterTarget, entry: Entry): Promise<string | undefined> {
    const { apiClient, token } = target
    const before = entry.pending
    entry.pending = undefined
    if (entry.uid === undefined) {
      // The create had no answer: sent again with its key it creates the record or returns the existing one.
      const state = before?.state
      if (state === undefined || before === undefined) return 'an entry without uid has no creation'
      entry.pending = before
      const again = await this.#send(target, entry, state)
      if (again === undefined) return 'no answer while checking'
      entry.pending = undefined
      entry.uid = String(ok(again)['uid'])
      entry.acknowledged = state
      return undefined
    }
    const reply = await apiClient.call(`Get${entry.kind}`, { uid: entry.uid }, { token })
    const found: State = reply.code === 5 ? undefined : { name: String(ok(reply)['name']), description: String(ok(reply)['description']) }
    const allowed = [entry.acknowledged, ...(before === undefined ? [] : [before.state])]
    const wanted = JSON.stringify(allowed.map((state) => state ?? null))
    entry.acknowledged = found
    if (allowed.some((state) => JSON.stringify(state) === JSON.stringify(found))) return undefined
    return `${entry.kind} ${entry.uid}: acknowledged or sent ${wanted}, found ${JSON.stringify(found ?? null)}`
  }
}

function sameOrThrow(body: JsonObject, { name, description }: Known): void {
  if (body['name'] !== name || body['description'] !== description) throw new Error(`answered ${JSON.stringify(body)} to ${name}`)
}

/** Returns the answer; undefined if the connection broke or the answer leaves the outcome open. */
async function answerOf(call: Promise<Reply>): Promise<Reply | undefined> {
  try {
    const reply = await call
    return unanswered.has(reply.code) ? undefined : reply
  } catch (error) {
    // fetch: the connection or the answer was interrupted.
    if (error instanceof TypeError || error instanceof SyntaxError) return undefined
    throw error
  }
}

const lists = {
  Group: { rpc: 'ListGroups', member: 'groups' },
  Identity: { rpc: 'ListIdentities', member: 'identities' },
  RoleBinding: { rpc: 'ListRoleBindings', member: 'roleBindings' },
} as const

/** Returns all records of a kind below a group, from all pages. */
async function listAll({ apiClient, token, group }: WriterTarget, kind: keyof typeof lists): Promise<JsonObject[]> {
  const { rpc, member } = lists[kind]
  const all: JsonObject[] = []
  const options: Options = { token }
  for (let pageToken = ''; ;) {
    const body = ok(await apiClient.call(rpc, { uidp: { descendantsOf: group }, pageSize: 200, ...(pageToken === '' ? {} : { pageToken }) }, options))
    all.push(...((body[member] as JsonObject[] | undefined) ?? []))
    pageToken = String(body['nextPageToken'] ?? '')
    if (pageToken === '') return all
  }
}

/**
 * Compares all records of the writers with those of the server, and expects no other records. Returns one line for each difference. Other clients may have
 * created only `others` below the group.
 */
export async function differences(target: WriterTarget, writers: readonly Writer[], others: readonly string[] = []): Promise<string[]> {
  const errors = (await Promise.all(writers.map((writer) => writer.check(target)))).flat()
  const entries = writers.flatMap((writer) => writer.entries())
  for (const kind of ['Group', 'Identity'] as const) {
    const wanted = new Set([...others, ...entries.flatMap((entry) => (entry.kind === kind && entry.uid !== undefined ? [entry.uid] : []))])
    const found = new Set((await listAll(target, kind)).map((record) => String(record['uid'])))
    errors.push(...[...found].filter((uid) => !wanted.has(uid)).map((uid) => `${kind} ${uid} is listed, but no kind has it`))
    errors.push(...[...wanted].filter((uid) => !found.has(uid) && !others.includes(uid)).map((uid) => `${kind} ${uid} is not listed`))
  }
  const bound = new Set(
    (await listAll(target, 'RoleBinding')).map((record) => String((record['identity'] as JsonObject | undefined)?.['uid'] ?? record['identityUid'])),
  )
  const identities = entries.filter((entry) => entry.kind === 'Identity')
  errors.push(...identities.filter((entry) => entry.bound && !bound.has(entry.uid ?? '')).map((entry) => `the binding of ${String(entry.uid)} is gone`))
  const known = new Set([...others, ...identities.map((entry) => entry.uid ?? '')])
  errors.push(...[...bound].filter((uid) => !known.has(uid)).map((uid) => `a binding is left of ${uid}`))
  return errors
}
