import { create, fromBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import { applyMask, maskAllowsEtag } from '../../base/schema/field-mask.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import { RepoReadmeSchema, type RepoReadme, type UpdateRepoReadmeRequest } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { recordKey } from '../../store/keys.ts'
import type { Revision } from '../../store/store.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { fromStore, notFound } from '../../engine/errors.ts'
import type { Planning } from '../../engine/kind.ts'
import { envelopeBytes, envelopeOf, readEnvelope, stamped, type EnvelopeFacts } from '../../engine/record-codec.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import { recordsOf } from '../../engine/shown.ts'
import { assertValid } from '../../engine/validate.ts'
import { assertEtag, emit, pathsOf, writableCopy } from '../../engine/write.ts'
import { checkReadme } from './check-readme.ts'
import { originOf } from '../records/synced-repos.ts'
import { messageOf } from '../../cache/records/record-types.ts'

type ReadmeRecord = RepoReadme & Resource

/** The etag of a readme that was never written. */
const unwrittenEtag = '0'

/** Returns the key of a repo's readme. Readmes are stored outside the records, and never kept in memory. */
export function readmeKey(repo: string): string {
  return `x/readme/${repo}`
}

/** Returns the record of the repo that a readme belongs to. Throws code 5 if there is none. */
function repoRecord(services: Services, uid: string): CachedRecord {
  const record = services.cache.tables.get('Repo', uid)
  if (record === undefined) throw notFound('RepoReadme', uid)
  return record
}

/** A readme as currently stored; without a revision if it was never written. */
interface StoredReadme {
  readonly record: ReadmeRecord
  readonly facts: EnvelopeFacts
  readonly revision: Revision | undefined
}

/** Reads the readme of a repo. For a synced repo, reads that of its source. */
async function readReadme(services: Services, record: CachedRecord, signal: AbortSignal): Promise<StoredReadme> {
  const origin = originOf(recordsOf(services), messageOf(record, 'Repo'))
  let entry
  try {
    entry = origin === undefined ? undefined : await services.store.get(readmeKey(origin.uid), signal)
  } catch (error) {
    throw fromStore(error)
  }
  const envelope = entry === undefined ? undefined : readEnvelope(entry.value)
  const facts: EnvelopeFacts =
    envelope === undefined
      ? { etag: unwrittenEtag, createMs: record.createMs, updateMs: record.createMs, managedBy: '' }
      : { etag: envelope.etag, createMs: Number(envelope.createTimeMs), updateMs: Number(envelope.updateTimeMs), managedBy: envelope.managedBy }
  const bare = envelope === undefined ? create(RepoReadmeSchema) : fromBinary(RepoReadmeSchema, envelope.record)
  bare.uid = record.uid
  return { record: stamped(RepoReadmeSchema, bare, facts), facts, revision: entry?.revision }
}

function answerOf(record: ReadmeRecord): HandlerAnswer {
  return { message: record, etag: record.etag, subject: record.uid }
}

/** Handles GetRepoReadme: returns the stored readme, empty if none was written (docs/spec/registry.md#readmes). */
export const getRepoReadme: Handler = async (services, context, message) => {
  // a cast: the request has a uid
  const record = repoRecord(services, (message as { uid?: string }).uid ?? '')
  return answerOf((await readReadme(services, record, context.signal)).record)
}

/** Returns the content of a repo's readme; undefined if there is no such repo. Throws StoreError as a DomainError. */
export async function readmeOf(services: Services, uid: string, signal: AbortSignal): Promise<string | undefined> {
  const record = services.cache.tables.get('Repo', uid)
  return record === undefined ? undefined : (await readReadme(services, record, signal)).record.content
}

function isSynced(record: CachedRecord): boolean {
  return messageOf(record, 'Repo').syncConfig !== undefined
}

/**
 * Throws code 3 if the content of the readme is not allowed, and 8 if too many readmes wait. `place` is the uid of its repo, or of the group of a new one. The
 * check soon afterwards of a readme that was accepted costs nothing.
 */
export async function assertReadme(context: Context, readme: RepoReadme, place: Uid): Promise<void> {
  assertValid(RepoReadmeSchema, readme)
  const tenants = [rootOf(place), rootOf(callerOf(context).identity)]
  const error = readme.content === '' ? undefined : await checkReadme({ content: readme.content, tenants }, context.signal)
  if (error !== undefined) throw DomainError.invalid('content', error)
}

/** Returns the readme with the changes of the request. Throws code 10 for a wrong etag, 3 for invalid content, 8 if too many readmes wait. */
async function wanted(context: Context, request: UpdateRepoReadmeRequest, at: { record: CachedRecord; stored: StoredReadme }): Promise<ReadmeRecord> {
  const { record: current } = at.stored
  const { updateMask: mask } = request
  const patch = request.repoReadme ?? create(RepoReadmeSchema) // see readReadme
  assertEtag(current, context.ifMatch)
  if (maskAllowsEtag(mask === undefined || mask.paths.length === 0 ? undefined : mask.paths)) assertEtag(current, patch.etag)
  const next = applyMask(RepoReadmeSchema, { current, patch }, pathsOf({ desc: RepoReadmeSchema }, context, { patch, mask }))
  assertValid(RepoReadmeSchema, writableCopy(RepoReadmeSchema, next))
  if (next.content === current.content) return next
  if (isSynced(at.record)) throw DomainError.invalid('content', 'is inherited from the source of the sync: change it there')
  await assertReadme(context, next, at.record.uid)
  return next
}

/** A new readme, and the state from which it was made. */
interface ReadmeChange {
  /** The repo's record when the readme was read. If the record changes, everything is read again. */
  readonly seen: CachedRecord
  readonly stored: StoredReadme
  readonly next: ReadmeRecord
}

function planReadme(planning: Planning, context: Context, { seen, stored, next }: ReadmeChange): MutationPlan<ReadmeRecord> {
  const { services, nowMs } = planning
  const changes = new ChangeSet()
  changes.guard({ kind: 'unchanged', key: recordKey('Repo', seen.uid), revision: seen.revision })
  const key = readmeKey(seen.uid)
  const { facts: before, revision } = stored
  changes.guard(revision === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision })
  const times = revision === undefined ? { createMs: nowMs, updateMs: nowMs } : { createMs: before.createMs, updateMs: Math.max(nowMs, before.updateMs + 1) }
  const facts = { etag: newEtag(services.random), ...times, managedBy: '' }
  changes.write({ kind: 'put', key, value: envelopeBytes(envelopeOf(RepoReadmeSchema, next, facts)) })
  const record = stamped(RepoReadmeSchema, next, facts)
  emit(planning, context, { changes, subject: seen.uid, body: { desc: RepoReadmeSchema, message: record } })
  return { changes, result: record }
}

/**
 * UpdateRepoReadme: changes the fields in the mask and checks the whole readme. Writes it and its event in one transaction
 * (docs/spec/registry.md#readmes).
 */
export const updateRepoReadme: Handler = async (services, context, message) => {
  const request = message as UpdateRepoReadmeRequest // a cast: the method has this request type
  const prepare = async (signal: AbortSignal): Promise<ReadmeChange> => {
    const seen = repoRecord(services, request.repoReadme?.uid ?? '')
    const stored = await readReadme(services, seen, signal)
    return { seen, stored, next: await wanted(context, request, { record: seen, stored }) }
  }
  // A synced repo has the readme of its source, so nothing is written.
  if (isSynced(repoRecord(services, request.repoReadme?.uid ?? ''))) return answerOf((await prepare(context.signal)).next)
  return answerOf(await commitPrepared(services, context, { prepare, plan: (planning, change) => planReadme(planning, context, change) }))
}
