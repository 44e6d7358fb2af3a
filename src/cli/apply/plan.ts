import { isDeepStrictEqual } from 'node:util'
import { DomainError } from '../../base/errors.ts'
import { isUid } from '../../base/uid.ts'
import { violationsOf } from '../../engine/validate.ts'
import { desiredOf, messageOf, type Desired } from '../../kubernetes/reconcile/desired.ts'
import { ClientError, isJson, textOf, type Json } from '../client/client-error.ts'
import { kindNamed } from '../client/kinds.ts'
import { childNamed, findByPath, findPlace } from '../client/places.ts'
import type { PlatformClient } from '../client/platform-client.ts'
import type { OfferedChange } from '../write/writable-kinds.ts'
import { pathOf } from '../write/write.ts'
import { comparedFields, comparedJson, messageJson, secretIn } from './fields.ts'
import type { LinkedRecord, Target } from './link.ts'

/** What to do for a document. */
export interface Step {
  readonly record: LinkedRecord
  readonly action: 'create' | 'update' | 'keep'
  /** The record as it is; undefined if it does not exist. */
  readonly current: Json | undefined
  /** The record as it will be, without what only a write can tell. */
  readonly planned: Json
  /** The fields that callers can set and see, as they are and as they will be. */
  readonly fields: { readonly before: Json; readonly after: Json }
  /** The fields to change (proto names). */
  readonly mask: readonly string[]
  /** Starts or ends the pause of a subscription. */
  readonly verb: 'pause' | 'resume' | undefined
}

/** `state_reason` of a subscription that a caller paused. Pauses for other reasons stay. */
const pausedByCall = 'paused by :pause'

/** Finds out what to do for documents, each after those that it refers to. Changes nothing. */
export class Planner {
  readonly #client: PlatformClient
  readonly #issuer: string
  /** The uid of the record of each document; undefined if it does not exist yet. */
  readonly #uids = new Map<LinkedRecord, string | undefined>()
  /** The uids of other records, by kind and path. */
  readonly #others = new Map<string, string>()
  /** The groups and kinds whose records the caller can list. */
  readonly #listed = new Set<string>()
  readonly #claims = new Map<string, LinkedRecord>()

  constructor(client: PlatformClient, issuer: string) {
    this.#client = client
    this.#issuer = issuer
  }

  /** Returns the step for a document. The API has checked it, unless it refers to a record that does not exist yet. Rejects with ClientError. */
  async plan(record: LinkedRecord): Promise<Step> {
    const { wanted } = record
    for (const target of targetsOf(record)) await this.#find(target, record)
    const isMissing = (target: Target): boolean => this.#uidOf(target) === undefined
    const isPending = targetsOf(record).some(isMissing)
    const isBelowPending = record.parent !== undefined && isMissing(record.parent)
    const desired = this.#desired(record)
    const secret = secretIn(messageOf(wanted.row), messageJson(messageOf(wanted.row), desired.record))
    if (secret !== undefined) throw new ClientError(`${secret}: answers never contain it, so it cannot be compared: set it with "taproot update"`)
    if (isBelowPending && wanted.uid !== undefined) throw new ClientError(`there is no record ${wanted.uid} in a group that does not exist`)
    // A record without a name is recognised by what it refers to.
    const isNew = isBelowPending || (isPending && wanted.name === undefined && wanted.uid === undefined)
    const current = isNew ? undefined : await this.#current(record)
    this.#claim(record, current)
    this.#uids.set(record, current && textOf(current['uid']))
    return current === undefined ? await this.#creation(record, { desired, isPending }) : await this.#change(record, { desired, current, isPending })
  }

  /** Notes that the record of a document was created. */
  created(record: LinkedRecord, uid: string): void {
    this.#uids.set(record, uid)
  }

  /** Returns path and body of the request that creates the record. All records that it refers to must exist. */
  creationOf(record: LinkedRecord): { readonly path: string; readonly body: Json } {
    const { wanted, parent } = record
    return { path: pathOf(offered(wanted.writable.create), this.#uidOf(parent) ?? ''), body: messageJson(messageOf(wanted.row), this.#desired(record).record) }
  }

  /** Returns path, query, body and etag of the request that changes the record. */
  changeOf({ record, mask, current = {} }: Pick<Step, 'record' | 'mask' | 'current'>): {
    readonly path: string
    readonly query: { readonly updateMask: string }
    readonly body: Json
    readonly ifMatch: string
  } {
    const { wanted } = record
    return {
      path: pathOf(offered(wanted.writable.update), textOf(current['uid'])),
      query: { updateMask: mask.join(',') },
      body: messageJson(messageOf(wanted.row), this.#desired(record).record),
      ifMatch: textOf(current['etag']),
    }
  }

  /** Returns the uid of a record that a document refers to; undefined if it does not exist yet. The root is empty. */
  #uidOf(target: Target | undefined): string | undefined {
    if (target === undefined) return ''
    const { reference, document } = target
    return document === undefined ? (reference.uid ?? this.#others.get(keyOf(target))) : this.#uids.get(document)
  }

  #heldBy({ references }: LinkedRecord): Record<string, string> {
    return Object.fromEntries(Object.entries(references).map(([field, target]) => [field, this.#uidOf(target) ?? '']))
  }

  /** Finds a record of the server that a document names by path. */
  async #find(target: Target, { parent, wanted }: LinkedRecord): Promise<void> {
    const { document, reference } = target
    const { path, kind } = reference
    if (document !== undefined || path === undefined || this.#others.has(keyOf(target))) return
    const found =
      target === parent
        ? (await findPlace(this.#client, path, wanted.writable.kind.parents)).uid
        : textOf((await findByPath(this.#client, kindNamed(kind), path))['uid'])
    this.#others.set(keyOf(target), found)
  }

  #desired(record: LinkedRecord): Desired {
    const { row, spec } = record.wanted
    try {
      return desiredOf(row, spec, { issuer: this.#issuer, held: this.#heldBy(record) })
    } catch (error) {
      if (!(error instanceof DomainError)) throw error
      // The parser names a field with its package.
      throw new ClientError(error.message.replace(/^.*?taproot\.\w+\.v\d+\.(?:\w+\.)?/, ''), {}, error)
    }
  }

  /** Refuses two documents about the same record. */
  #claim(record: LinkedRecord, current: Json | undefined): void {
    const { wanted } = record
    const { kind } = wanted.writable.kind
    const id = (target: Target): string => this.#uidOf(target) ?? target.document?.path ?? ''
    const others = Object.values(record.references).map(id)
    const own = [wanted.name ?? '', ...(wanted.name === undefined ? others : []), textOf(wanted.spec.spec['sink'])]
    const key = current === undefined ? [kind, record.parent && id(record.parent), ...own].join(' ') : textOf(current['uid'])
    const other = this.#claims.get(key)
    if (other !== undefined) throw new ClientError(`describes the same ${kind.toLowerCase()} as ${other.wanted.place}`)
    this.#claims.set(key, record)
  }

  /** Returns the record of a document as it is. Rejects with ClientError if the document means a record that does not exist, or one of several. */
  async #current(record: LinkedRecord): Promise<Json | undefined> {
    const { wanted, parent } = record
    const { kind } = wanted.writable
    const parentUid = this.#uidOf(parent) ?? ''
    if (wanted.uid !== undefined) return await this.#byUid(record, wanted.uid, parentUid)
    if (wanted.name !== undefined) return await childNamed(this.#client, kind, { parent: parentUid === '' ? '/' : parentUid, name: wanted.name })
    const held = this.#heldBy(record)
    const { identity_uid: identity = '', role_uid: role = '' } = held
    const query = kind.kind === 'RoleBinding' ? { identity, role } : {}
    const found: Json[] = []
    for await (const one of this.#client.list(kind.listPath, kind.member, { ...query, 'uidp.children_of': parentUid }))
      if (isSame(record, one, held)) found.push(one)
    if (found.length > 1) throw new ClientError(`${found.length} ${kind.words} of the group match: add the uid of one of them`)
    return found[0]
  }

  async #byUid(record: LinkedRecord, uid: string, parentUid: string): Promise<Json> {
    const { getPath = '', words, kind } = record.wanted.writable.kind
    if (!isUid(uid)) throw new ClientError(`${uid} is not a uid`)
    const found = await this.#client.call({ method: 'GET', path: getPath.replace(/\{[^}]*\}/, uid) })
    if (uid.slice(0, Math.max(uid.lastIndexOf('/'), 0)) !== parentUid) throw new ClientError(`${uid} is not one of the ${words} of this group`)
    if (kind === 'RoleBinding' && !isSame(record, found, this.#heldBy(record))) throw new ClientError(`the role binding ${uid} has another identity or role`)
    return found
  }

  async #creation(record: LinkedRecord, { desired, isPending }: { readonly desired: Desired; readonly isPending: boolean }): Promise<Step> {
    const { wanted } = record
    if (!isPending) await this.#assertListed(record)
    const desc = messageOf(wanted.row)
    const pending = Object.keys(record.references)
    const [violation] = violationsOf(desc, desired.record).filter(({ field }) => !pending.includes(field))
    if (violation !== undefined) throw new ClientError(`${violation.field}: ${violation.description}`)
    if (!isPending) await this.#client.call({ method: 'POST', ...this.creationOf(record), query: { validateOnly: 'true' } })
    const after = comparedJson(desc, messageJson(desc, desired.record))
    return {
      record,
      action: 'create',
      current: undefined,
      planned: after,
      fields: { before: {}, after },
      mask: [],
      verb: wanted.suspend === true ? 'pause' : undefined,
    }
  }

  /** Rejects with ClientError if the caller cannot list such records of the group: one that it cannot see would be made again. */
  async #assertListed({ wanted, parent }: LinkedRecord): Promise<void> {
    const { words, list } = wanted.writable.kind
    const group = this.#uidOf(parent) ?? ''
    const key = `${words} ${group}`
    if (group === '' || this.#listed.has(key)) return
    const query = { resource: group, capabilities: list.capabilities }
    const { capabilities: held } = await this.#client.call({ method: 'GET', path: '/iam/v2/testCapabilities', query })
    const missing = list.capabilities.filter((name) => !(Array.isArray(held) && held.includes(name)))
    if (missing.length > 0) throw new ClientError(`you cannot list the ${words} of this group, so it may exist already: needs ${missing.join(', ')}`)
    this.#listed.add(key)
  }

  async #change(
    record: LinkedRecord,
    { desired, current, isPending }: { readonly desired: Desired; readonly current: Json; readonly isPending: boolean },
  ): Promise<Step> {
    const { wanted } = record
    const desc = messageOf(wanted.row)
    const before = comparedJson(desc, current)
    const asked = comparedJson(desc, messageJson(desc, desired.record))
    const mask = comparedFields(desc).flatMap(({ name, jsonName }) =>
      desired.paths.includes(name) && !isDeepStrictEqual(asked[jsonName], before[jsonName]) ? [name] : [],
    )
    // The API may store a value in another form, for example a list in another order.
    // The API cannot check a reference to a record that does not exist yet.
    const planned = mask.length === 0 ? current : isPending ? this.#foreseen(record, { current, asked, mask }) : await this.#preview({ record, mask, current })
    const after = comparedJson(desc, planned)
    const verb = verbOf(wanted.suspend, current)
    const isChanged = !isDeepStrictEqual(after, before)
    return {
      record,
      action: isChanged || verb !== undefined ? 'update' : 'keep',
      current,
      planned,
      fields: { before, after },
      mask: isChanged ? mask : [],
      verb,
    }
  }

  /** Returns the record as it will be, with paths of the records that do not exist yet. */
  #foreseen(
    { wanted, references }: LinkedRecord,
    { current, asked, mask }: { readonly current: Json; readonly asked: Json; readonly mask: readonly string[] },
  ): Json {
    const changed = comparedFields(messageOf(wanted.row)).filter(({ name }) => mask.includes(name))
    return { ...current, ...Object.fromEntries(changed.map(({ name, jsonName }) => [jsonName, asked[jsonName] ?? references[name]?.document?.path ?? null])) }
  }

  #preview(step: Pick<Step, 'record' | 'mask' | 'current'>): Promise<Json> {
    const { query, ...change } = this.changeOf(step)
    return this.#client.call({ method: 'PATCH', ...change, query: { ...query, validateOnly: 'true' } })
  }
}

/** Returns all records that a document refers to. */
export function targetsOf({ parent, references }: LinkedRecord): readonly Target[] {
  return [...(parent === undefined ? [] : [parent]), ...Object.values(references)]
}

function offered(change: OfferedChange | undefined): OfferedChange {
  if (change === undefined) throw new TypeError('only kinds with both changes are read')
  return change
}

function keyOf({ reference: { kind, path = '' } }: Target): string {
  return `${kind} ${path}`
}

/** Returns true for the role binding or subscription that a document means. */
function isSame({ wanted }: LinkedRecord, found: Json, held: Readonly<Record<string, string>>): boolean {
  if (wanted.writable.kind.kind === 'Subscription') return found['sink'] === wanted.spec.spec['sink']
  const uid = (value: unknown): string => (isJson(value) ? textOf(value['uid']) : '')
  return uid(found['identity']) === held['identity_uid'] && uid(found['role']) === held['role_uid']
}

function verbOf(suspend: boolean | undefined, { state, stateReason }: Json): Step['verb'] {
  if (suspend === true && state !== 'PAUSED') return 'pause'
  return suspend === false && state === 'PAUSED' && stateReason === pausedByCall ? 'resume' : undefined
}
