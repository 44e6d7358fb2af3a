import { isUid, trustedUid, type Uid } from '../base/uid.ts'
import { DomainError } from '../base/errors.ts'
import { randomHex } from '../base/runtime.ts'
import { nameOf, type Resource, type CachedRecord } from '../cache/records/cached-record.ts'
import { countedFor } from '../cache/usage.ts'
import { managedKey, nameKey, recordKey, cascadeKey, usedByKey } from '../store/keys.ts'
import type { Guard, Write } from '../store/store.ts'
import { alreadyExists, ownedAlready } from './errors.ts'
import type { AnyKind, Claim, Extra, Reference } from './kind.ts'
import type { Growth } from './quota/limits.ts'
import { sealedSecrets } from './secrets.ts'
import { envelopeBytes, envelopeOf, stamped, type EnvelopeFacts } from './record-codec.ts'

/** Returns the unique keys of a record: for its name among its siblings, for its Kubernetes owner, and those that its kind adds. */
function claimsOf(kind: AnyKind, { uid, record, managedBy }: { uid: Uid; record: Resource; managedBy: string }): Claim[] {
  const parent = uid.includes('/') ? uid.slice(0, uid.lastIndexOf('/')) : '/'
  const name = nameOf(kind.index, record)
  const own = kind.uniqueName ? [{ key: nameKey(kind.index.kind, parent, name), taken: () => alreadyExists(kind.index.kind, `name "${name}" is taken`) }] : []
  const owner = managedBy === '' ? [] : [{ key: managedKey(kind.index.kind, managedBy), taken: () => ownedAlready(kind.index.kind, managedBy) }]
  return [...own, ...owner, ...(kind.claims?.(uid, record) ?? [])]
}

function usedKey(kind: AnyKind, reference: Reference, by: Uid): string {
  return usedByKey(relationOf(kind, reference.relation), reference.uid, by)
}

/** Returns the name that a kind's relation to another kind has in the store's reverse keys. */
export function relationOf(kind: AnyKind, relation: string): string {
  return `${kind.index.kind}.${relation}`
}

/** Returns all index keys of a record: unique keys and reverse keys. Its own record key is not among them. */
export function indexKeysOf(kind: AnyKind, uid: Uid, record: Resource): string[] {
  return [
    ...claimsOf(kind, { uid, record, managedBy: record.managedBy }).map((claim) => claim.key),
    ...(kind.references?.(record) ?? []).map((reference) => usedKey(kind, reference, uid)),
  ]
}

/** Returns the records whose removal also removes this one. If one of them has a deletion mark, this record counts as absent and must not be changed. */
export function ownersOf(kind: AnyKind, record: CachedRecord): { kind: string; uid: Uid }[] {
  const filters = Object.keys(kind.index.filters)
  return kind.index.removedWith.flatMap((rule) => {
    const uid = rule.filter === 'parent' ? record.parent : (record.filterValues[filters.indexOf(rule.filter)] ?? '')
    return isUid(uid) ? [{ kind: rule.kind, uid }] : []
  })
}

/** Returns all facts of a record: those that a replacement does not give stay as they are. */
function wholeFacts(kind: AnyKind, cached: CachedRecord, facts: EnvelopeFacts): Required<EnvelopeFacts> {
  // Facts may be a record, whose members a spread would leave out.
  const { etag, createMs, updateMs, managedBy, pushedDigest = cached.pushedDigest, lifeCycleDigest = cached.lifeCycleDigest } = facts
  const { ownedFields = managedBy === cached.managedBy ? cached.ownedFields : [], sealed = sealedSecrets(kind, cached) } = facts
  return { etag, createMs, updateMs, managedBy, ownedFields, pushedDigest, lifeCycleDigest, sealed }
}

/** Maximum size of a stored record in bytes (docs/spec/storage.md#record-size). */
const maxRecordBytes = 600 * 1024

/** A transaction under construction: records with their unique and reverse keys, and all other entries of the same mutation. */
export class ChangeSet {
  readonly #guards = new Map<string, Guard>()
  readonly #writes = new Map<string, Write>()
  /** The unique keys that the transaction takes, each with the uid of its record. */
  readonly claims: (Claim & { readonly uid: Uid })[] = []
  /** False if the organisation's limits do not apply, for example to records that operators set. */
  isMetered = true
  /** The usage that the transaction adds to organisations. */
  readonly growth: Growth[] = []
  /** True if a conflict on a unique key should lead to a new plan instead of an error. */
  isUpsert = false
  /** A key that only this change set writes. If it exists later, this change set was committed. */
  proofKey: string | undefined

  get guards(): Guard[] {
    return [...this.#guards.values()]
  }

  get writes(): Write[] {
    return [...this.#writes.values()]
  }

  guard(guard: Guard): void {
    // What is unchanged exists. Each guard counts towards the limit of a transaction.
    if (guard.kind === 'unchanged') this.#guards.delete(`exists:${guard.key}`)
    this.#guards.set(`${guard.kind}:${'prefix' in guard ? guard.prefix : guard.key}`, guard)
  }

  /** Removes the guard that `key` must not exist, if another guard has the same effect. */
  unguard(key: string): void {
    this.#guards.delete(`absent:${key}`)
  }

  write(write: Write): void {
    this.#writes.set(write.key, write)
  }

  add(extra: Extra | undefined): void {
    for (const guard of extra?.guards ?? []) this.guard(guard)
    for (const write of extra?.writes ?? []) this.write(write)
  }

  /** Adds the creation of a record to the transaction. Returns the record as readers will see it. */
  create<R extends Resource>(kind: AnyKind, source: { uid: Uid; record: R; facts: EnvelopeFacts }): R {
    const { uid, record, facts } = source
    const key = recordKey(kind.index.kind, uid)
    this.guard({ kind: 'absent', key })
    this.#grow(kind, uid, { records: 1, bytes: this.#put(kind, source) })
    for (const claim of claimsOf(kind, { uid, record, managedBy: facts.managedBy })) this.#claim(claim, uid)
    for (const reference of kind.references?.(record) ?? []) this.#refer(kind, reference, uid)
    record.uid = uid
    return stamped(kind.desc, record, facts)
  }

  /** Adds the replacement of the record `cached` to the transaction. Returns the new record as readers will see it. */
  update<R extends Resource>(kind: AnyKind, source: { cached: CachedRecord; record: R; facts: EnvelopeFacts }): R {
    const { cached, record, facts } = source
    const key = recordKey(kind.index.kind, cached.uid)
    this.guard({ kind: 'unchanged', key, revision: cached.revision })
    for (const { uid } of ownersOf(kind, cached)) this.guard({ kind: 'absent', key: cascadeKey(uid) })
    const length = this.#put(kind, { uid: cached.uid, record, facts: wholeFacts(kind, cached, facts) })
    this.#grow(kind, cached.uid, { records: 0, bytes: length - cached.length })
    const heldClaims = new Set(claimsOf(kind, { uid: cached.uid, record: cached.message, managedBy: cached.managedBy }).map((claim) => claim.key))
    for (const claim of claimsOf(kind, { uid: cached.uid, record, managedBy: facts.managedBy }))
      if (!heldClaims.delete(claim.key)) this.#claim(claim, cached.uid)
    const heldUses = new Set((kind.references?.(cached.message) ?? []).map((reference) => usedKey(kind, reference, cached.uid)))
    for (const reference of kind.references?.(record) ?? []) {
      if (!heldUses.delete(usedKey(kind, reference, cached.uid))) this.#refer(kind, reference, cached.uid)
    }
    for (const gone of [...heldClaims, ...heldUses]) this.write({ kind: 'delete', key: gone })
    return stamped(kind.desc, record, facts)
  }

  /** Adds the removal of a record, with its unique and reverse keys, to the transaction. */
  remove(kind: AnyKind, record: CachedRecord): void {
    const key = recordKey(kind.index.kind, record.uid)
    this.guard({ kind: 'unchanged', key, revision: record.revision })
    this.write({ kind: 'delete', key })
    for (const gone of indexKeysOf(kind, record.uid, record.message)) this.write({ kind: 'delete', key: gone })
    this.#grow(kind, record.uid, { records: -1, bytes: -record.length })
  }

  #grow(kind: AnyKind, uid: Uid, by: Pick<Growth, 'records' | 'bytes'>): void {
    const root = countedFor(kind.index.kind, uid)
    if (root !== undefined) this.growth.push({ root, kind: kind.index.kind, ...by })
  }

  /** Adds the write of a record to the transaction. Returns the record's stored size in bytes. */
  #put(kind: AnyKind, source: { uid: Uid; record: Resource; facts: EnvelopeFacts }): number {
    const value = envelopeBytes(envelopeOf(kind.desc, source.record, source.facts))
    if (value.length > maxRecordBytes) throw DomainError.invalid('body', `the resource is larger than ${maxRecordBytes} bytes`)
    this.write({ kind: 'put', key: recordKey(kind.index.kind, source.uid), value })
    return value.length
  }

  #claim(claim: Claim, uid: Uid): void {
    this.guard({ kind: 'absent', key: claim.key })
    this.claims.push({ key: claim.key, taken: () => claim.taken(), uid })
    this.write({ kind: 'put', key: claim.key, value: Buffer.from(uid) })
  }

  #refer(kind: AnyKind, reference: Reference, by: Uid): void {
    const uid = trustedUid(reference.uid)
    if (reference.presence === 'required') this.guard({ kind: 'exists', key: recordKey(reference.kind, uid) })
    if (reference.presence === 'derived') this.guard({ kind: 'absent', key: cascadeKey(uid) })
    this.write({ kind: 'put', key: usedKey(kind, reference, by), value: new Uint8Array() })
  }
}

/** Returns a fresh etag: an opaque text that a record never has twice. */
export function newEtag(random: { bytes(count: number): Uint8Array }): string {
  return randomHex(random, 8)
}
