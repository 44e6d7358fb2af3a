import { clone, create, type Message } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { Digest } from '../../base/digest.ts'
import type { MethodEvent } from '../../base/schema/method.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'
import type { CreateTagRequest as CreateTagV1, Tag as TagV1 } from '../../gen/taproot/registry/v1/registry_pb.ts'
import { DeleteTagRequestSchema, TagSchema, type CreateTagRequest, type DeleteTagRequest, type Tag } from '../../gen/taproot/registry/v2/tags_pb.ts'
import type { Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { recordKey } from '../../store/keys.ts'
import type { Entry } from '../../store/store.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { alreadyExists, notFound } from '../../engine/errors.ts'
import { onceByKey } from '../../engine/idempotency.ts'
import type { Planning } from '../../engine/kind.ts'
import { outboxWrite } from '../../engine/outbox.ts'
import { recordAnswer } from '../../engine/read.ts'
import type { Context, Handler, HandlerAnswer, MutationContext, Services } from '../../engine/services.ts'
import { assertValid } from '../../engine/validate.ts'
import { assertEtag, emit, existingRecord, planChild, rememberKey } from '../../engine/write.ts'
import { describedByTag, manifestIn, manifestKey, unreadKey } from '../records/manifest-keys.ts'
import { touchOf } from '../records/manifest-touch.ts'
import { appendHistory, readHead, type TagHead, type TagName } from './tag-history.ts'
import { tagKind, tagNamed, tagOf, type TagRecord } from '../records/tags.ts'

/** New values for a tag. Absent fields stay as they are. */
export interface TagState {
  /** Empty for a tag of version 1 that names no digest yet. */
  readonly digest: Digest | ''
  /**
   * The digest by which the manifest was pushed, if it is another digest of the same bytes; empty if not. If absent, a move to another
   * digest sets it to empty.
   */
  readonly pushedDigest?: Digest | ''
  readonly deprecated?: boolean
  readonly bundles?: readonly string[]
  /** The digest for which the life cycle decides `deprecated`; empty if it takes its decision back. Absent for changes by callers. */
  readonly lifeCycleDigest?: Digest | ''
}

/** The entries that a move of a tag reads and guards. */
export interface MoveFacts {
  readonly head: TagHead
  /** The manifest's entry; `unchecked` if `services.content` is absent. */
  readonly manifest: Entry | undefined | 'unchecked'
}

/** Reads the entries for a move of the tag to `digest`. */
export async function readMoveFacts(services: Services, tag: TagName & Pick<TagState, 'digest'>, signal: AbortSignal): Promise<MoveFacts> {
  const { repo, digest } = tag
  const manifest = digest === '' ? undefined : services.store.get(manifestKey(repo, digest), signal)
  const [head, entry] = await Promise.all([readHead(services.store, tag, signal), manifest])
  return { head, manifest: services.content === undefined || digest === '' ? 'unchecked' : entry }
}

/**
 * Throws code 9 if the repo does not hold the digest. Otherwise adds a guard that fails the transaction if the repo no longer holds it
 * (docs/spec/registry.md#tag-creation).
 */
function assertHeld(changes: ChangeSet, { repo, state: { digest } }: TagName & { state: TagState }, { manifest }: MoveFacts): void {
  if (manifest === 'unchecked') return
  if (manifest === undefined || manifestIn(manifest) === undefined) {
    const description = `the repo holds no manifest ${digest}: push it first`
    throw new DomainError(9, `Precondition failed: ${description}`, {
      reason: 'DIGEST_NOT_FOUND',
      details: { precondition: [{ type: 'DIGEST_NOT_FOUND', subject: repo, description }] },
    })
  }
  changes.guard({ kind: 'unchanged', key: manifest.key, revision: manifest.revision })
}

function changed(record: Tag, state: TagState): TagRecord {
  // TagRecord only requires fields that every stored resource has.
  const next: TagRecord = clone(TagSchema, record)
  next.digest = state.digest
  if (state.deprecated !== undefined) next.deprecated = state.deprecated
  if (state.bundles !== undefined) next.bundles = [...state.bundles]
  return next
}

/**
 * Returns the digest for which the life cycle set `deprecated`, or for which a caller cleared it. What a caller sets is the caller's: the life cycle leaves it
 * alone (docs/adr/0042).
 */
function lifeCycleDigestOf(cached: CachedRecord, { digest, deprecated }: Tag, state: TagState): string {
  if (state.lifeCycleDigest !== undefined) return state.lifeCycleDigest
  if (state.deprecated === undefined) return cached.lifeCycleDigest
  if (state.deprecated) return ''
  return deprecated ? digest : cached.lifeCycleDigest
}

function isSame(one: TagRecord, other: TagRecord): boolean {
  return one.digest === other.digest && one.deprecated === other.deprecated && one.bundles.join('\n') === other.bundles.join('\n')
}

/** The result of a planned move. */
export interface PlannedMove {
  /** The tag after the move. */
  readonly tag: TagRecord
  /** The digest that the tag pointed to before; undefined if it did not exist, or had none. */
  readonly previous: Digest | undefined
}

/**
 * Plans to create a tag, to move it, or to leave it if it already has the values in `state`. A change of the digest adds one record to its
 * history. Throws code 9 if the repo does not hold the digest.
 */
export function planMove(planning: Planning, changes: ChangeSet, move: TagName & { repo: Uid; state: TagState; facts: MoveFacts }): PlannedMove {
  const { repo, name, state, facts } = move
  const { nowMs } = planning
  changes.isUpsert = true
  assertHeld(changes, move, facts)
  const cached = tagNamed(planning.tables, repo, name)
  if (cached === undefined) {
    const atMs = state.digest === '' ? nowMs : point(planning, changes, { ...move, notBeforeMs: 0 })
    changes.guard({ kind: 'exists', key: recordKey('Repo', repo) })
    const record = changed(create(TagSchema, { name }), state)
    const facts = { pushedDigest: state.pushedDigest ?? '' }
    return { tag: planChild(tagKind, planning, { changes, parent: repo, record, atMs, facts }) as TagRecord, previous: undefined }
  }
  const current = tagOf(cached)
  const record = changed(current, state)
  // The digest was validated when it was written.
  const previous = current.digest === '' ? undefined : (current.digest as Digest)
  const pushedDigest = state.pushedDigest ?? (record.digest === current.digest ? cached.pushedDigest : '')
  const lifeCycleDigest = lifeCycleDigestOf(cached, current, state)
  if (isSame(record, current) && pushedDigest === cached.pushedDigest && lifeCycleDigest === cached.lifeCycleDigest) {
    // Other writes of the transaction assume that the tag exists, so a deletion meanwhile must fail it.
    changes.guard({ kind: 'unchanged', key: recordKey('Tag', cached.uid), revision: cached.revision })
    return { tag: current, previous }
  }
  const notBeforeMs = cached.updateMs + 1
  const updateMs = record.digest === current.digest ? Math.max(nowMs, notBeforeMs) : point(planning, changes, { ...move, notBeforeMs })
  const written = { etag: newEtag(planning.services.random), createMs: cached.createMs, updateMs, managedBy: cached.managedBy, pushedDigest, lifeCycleDigest }
  return { tag: changes.update(tagKind, { cached, record, facts: written }), previous }
}

/**
 * Minimum age, in milliseconds, of a manifest's last touch before a move touches it again. Much shorter than the shortest allowed grace
 * period.
 */
const touchEveryMs = 60_000

/**
 * Adds the move to the tag's history, and touches the manifest. A collection that started before then keeps the manifest, even if the tag
 * has moved again.
 */
function point({ nowMs }: Planning, changes: ChangeSet, move: TagName & { state: TagState; facts: MoveFacts; notBeforeMs: number }): number {
  const { state, facts, notBeforeMs } = move
  const { head, manifest } = facts
  const touch = manifest === undefined || manifest === 'unchecked' ? undefined : touchOf(manifest, { nowMs, everyMs: touchEveryMs })
  if (touch !== undefined) changes.write(touch)
  askForContents(changes, move)
  return appendHistory(changes, move, { digest: state.digest, nowMs, notBeforeMs, after: head })
}

/** Has the image read again about which a tag of cosign says something else now, or nothing any more. */
function askForContents(changes: ChangeSet, { repo, name }: TagName): void {
  const described = describedByTag(name)
  if (described !== undefined) changes.write({ kind: 'put', key: unreadKey(repo, described), value: new Uint8Array() })
}

/** Plans to remove a tag. Its history gets a record of the deletion, if the tag has a digest. */
export function planRemoval(planning: Planning, changes: ChangeSet, { record, head }: { record: CachedRecord; head: TagHead }): void {
  changes.remove(tagKind, record)
  if (tagOf(record).digest === '') return
  askForContents(changes, { repo: record.parent, name: record.name })
  appendHistory(changes, { repo: record.parent, name: record.name }, { digest: '', nowMs: planning.nowMs, notBeforeMs: record.updateMs + 1, after: head })
}

/** A digest that the schema accepts. */
const anyDigest = `sha256:${'0'.repeat(64)}`

/** Throws code 3 if the fields of a tag are not valid. Without `needsDigest` the digest may be empty. */
function assertTag({ name, digest, deprecated, bundles }: Omit<TagV1, '$typeName' | 'id'>, needsDigest: boolean): void {
  assertValid(TagSchema, create(TagSchema, { name, digest: digest === '' && !needsDigest ? anyDigest : digest, deprecated, bundles }))
}

/** A request for a tag that may exist. `keepsDigest` means that without a digest, the tag keeps its own, or has none. */
interface TagCreation {
  readonly parent: string
  readonly tag: Omit<TagV1, '$typeName' | 'id'> | undefined
  readonly keepsDigest: boolean
}

async function putTag(services: Services, call: { context: Context; message: Message }, { parent, tag, keepsDigest }: TagCreation): Promise<HandlerAnswer> {
  const { context, message } = call
  // Authorization has already found the repo.
  const { name, digest, deprecated, bundles } = tag ?? create(TagSchema)
  assertTag({ name, digest, deprecated, bundles }, !keepsDigest)
  const where = { repo: parent as Uid, name }
  // A stored digest was validated when it was written.
  const wanted = (record: CachedRecord | undefined) => (digest === '' && record !== undefined ? tagOf(record).digest : digest) as Digest | ''
  const outcome = await onceByKey(services, { context, message, parent }, (memory) =>
    commitPrepared(services, context, {
      prepare: (signal) => readMoveFacts(services, { ...where, digest: wanted(tagNamed(services.cache.tables, parent, name)) }, signal),
      plan: (planning, facts): MutationPlan<Resource> => {
        const record = tagNamed(planning.tables, parent, name)
        if (context.ifNoneMatch === '*' && record !== undefined) throw alreadyExists('Tag', `name "${name}" is taken`)
        assertEtag(record, context.ifMatch)
        const changes = new ChangeSet()
        const planned = planMove(planning, changes, { ...where, state: { digest: wanted(record), deprecated, bundles }, facts })
        if (context.ifNoneMatch === '*') changes.isUpsert = false
        emit(planning, context, { changes, subject: planned.tag.uid, body: { desc: TagSchema, message: planned.tag } })
        rememberKey(memory, changes, { uids: [planned.tag.uid], nowMs: planning.nowMs })
        return { changes, result: planned.tag }
      },
    }),
  )
  return outcome.kind === 'made' ? recordAnswer(tagKind, services, outcome.made) : earlierTag(services, outcome.uids)
}

/** CreateTag: creates the tag, or moves it (docs/spec/registry.md#tag-creation). */
export const createTag: Handler = (services, context, message) => {
  const { parent, tag } = message as CreateTagRequest
  return putTag(services, { context, message }, { parent, tag, keepsDigest: false })
}

/** CreateTag of version 1: the digest may be empty. Answers the tag of version 2 (docs/spec/version-1.md#tags). */
export const createTagV1: Handler = (services, context, message) => {
  const { repoId, tag } = message as CreateTagV1
  return putTag(services, { context, message }, { parent: repoId, tag, keepsDigest: true })
}

/**
 * UpdateTag of version 1: moves the tag and replaces its other fields. Without a digest, the tag keeps its digest. Answers the tag of version 2
 * (docs/spec/version-1.md#tags).
 */
export const updateTag: Handler = async (services, context, message) => {
  const { id, name, digest, deprecated, bundles } = message as TagV1
  const wantedBy = (current: CachedRecord): { where: { repo: Uid; name: string }; state: TagState } => {
    if (name !== '' && name !== current.name) throw DomainError.invalid('name', 'cannot be changed: create another tag')
    // A stored digest was validated when it was written.
    const next = (digest === '' ? tagOf(current).digest : digest) as Digest | ''
    assertTag({ name: current.name, digest: next, deprecated, bundles }, false)
    return { where: { repo: trustedUid(current.parent), name: current.name }, state: { digest: next, deprecated, bundles } }
  }
  const tag = await commitPrepared(services, context, {
    prepare(signal) {
      const { where, state } = wantedBy(existingRecord(tagKind, { tables: services.cache.tables }, id))
      return readMoveFacts(services, { ...where, digest: state.digest }, signal)
    },
    plan(planning, facts): MutationPlan<Resource> {
      const record = existingRecord(tagKind, planning, id)
      assertEtag(record, context.ifMatch)
      const { where, state } = wantedBy(record)
      const changes = new ChangeSet()
      const planned = planMove(planning, changes, { ...where, state, facts })
      emit(planning, context, { changes, subject: planned.tag.uid, body: { desc: TagSchema, message: planned.tag } })
      return { changes, result: planned.tag }
    },
  })
  return recordAnswer(tagKind, services, tag)
}

/** Answers a request whose idempotency key was used before: with the current state of the tag. */
function earlierTag(services: Services, [uid = '']: readonly string[]): HandlerAnswer {
  const record = services.cache.tables.get('Tag', uid)
  if (record === undefined) throw notFound('Tag', uid)
  return recordAnswer(tagKind, services, record.message)
}

/** DeleteTag: deletes the tag and keeps its history. */
export const deleteTag: Handler = async (services, context, message) => {
  const { uid } = message as DeleteTagRequest
  await removeRecord(services, context, {
    find: (planning) => existingRecord(tagKind, planning, uid),
    emit: (planning, changes) => emit(planning, context, { changes, subject: uid, body: { desc: context.method.input, message } }),
    ifMatch: context.ifMatch,
  })
  return { message: create(context.method.output), subject: uid }
}

/** How to find the tag to remove, and what else the transaction writes. */
interface TagRemoval {
  find(planning: Pick<Planning, 'tables'>): CachedRecord
  emit(planning: Planning, changes: ChangeSet): void
  readonly ifMatch?: Context['ifMatch']
}

async function removeRecord(services: Services, context: MutationContext, removal: TagRemoval): Promise<void> {
  const tables = (): Pick<Planning, 'tables'> => ({ tables: services.cache.tables })
  await commitPrepared(services, context, {
    prepare: (signal) => {
      const { parent: repo, name } = removal.find(tables())
      return readHead(services.store, { repo, name }, signal)
    },
    plan: (planning, head): MutationPlan<undefined> => {
      const record = removal.find(planning)
      assertEtag(record, removal.ifMatch)
      const changes = new ChangeSet()
      planRemoval(planning, changes, { record, head })
      removal.emit(planning, changes)
      return { changes, result: undefined }
    },
  })
}

const deletedEvent: MethodEvent = { type: 'platform.registry.tag.deleted.v1', group: 'root', internal: false }

/** Adds the event for a tag that was deleted through the registry host. */
export function emitTagDeleted(planning: Planning, changes: ChangeSet, { uid, host }: { uid: Uid; host: string }): void {
  const { services, caller, nowMs } = planning
  const body = { desc: DeleteTagRequestSchema, message: create(DeleteTagRequestSchema, { uid }) }
  const write = outboxWrite(services.random, { event: deletedEvent, source: host, subject: uid, body, caller, nowMs })
  changes.write(write)
  changes.guard({ kind: 'absent', key: write.key })
  changes.proofKey = write.key
}

/** Removes a tag by its name. `host` is the registry host that received the request. Throws code 5 if the tag does not exist. */
export function removeTag(services: Services, context: MutationContext, tag: { repo: Uid; name: string; host: string }): Promise<void> {
  const find = ({ tables }: Pick<Planning, 'tables'>): CachedRecord => {
    const record = tagNamed(tables, tag.repo, tag.name)
    if (record === undefined) throw notFound('Tag', `${tag.repo}:${tag.name}`)
    return record
  }
  return removeRecord(services, context, { find, emit: (planning, changes) => emitTagDeleted(planning, changes, { uid: find(planning).uid, host: tag.host }) })
}

/** Maximum number of tags that one transaction removes. Each takes at most six writes and at least four guards, and etcd allows 127 of each. */
const maxTagsAtOnce = 16

/** A tag to remove, with the newest record of its history. */
export interface TagToRemove {
  readonly record: CachedRecord
  readonly head: TagHead
}

/** Reads what the removal of tags needs, for all of them or for as many as one transaction removes. */
export async function readTags(
  services: Services,
  { repo, records: all }: { repo: Uid; records: readonly CachedRecord[] },
  signal: AbortSignal,
): Promise<readonly TagToRemove[]> {
  const records = all.slice(0, maxTagsAtOnce)
  return Promise.all(records.map(async (record) => ({ record, head: await readHead(services.store, { repo, name: record.name }, signal) })))
}
