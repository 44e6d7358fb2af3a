import { create, fromBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../core/errors.ts'
import { applyMask, maskAllowsEtag } from '../../core/field-mask.ts'
import { trustedUid, type Uid } from '../../core/uid.ts'
import { RepoReadmeSchema, type Repo, type RepoReadme, type UpdateRepoReadmeRequest } from '../../gen/taproot/registry/v2/repos_pb.ts'
import { EnvelopeSchema } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { Resource, Row } from '../../snapshot/row.ts'
import { recordKey } from '../../store/keys.ts'
import type { Revision } from '../../store/store.ts'
import { ChangeSet, newEtag } from '../change-set.ts'
import { commit, type Plan } from '../commit.ts'
import { fromStore, notFound } from '../faults.ts'
import type { Planning } from '../kind.ts'
import { envelopeBytes, envelopeOf, stamped, type EnvelopeFacts } from '../record-codec.ts'
import type { Context, Handler, HandlerAnswer, Services } from '../services.ts'
import { assertValid } from '../validate.ts'
import { assertEtag, emit, pathsOf, writableCopy } from '../write.ts'
import { checkReadme } from './check-readme.ts'
import { originOf } from './repo-rules.ts'

type ReadmeRecord = RepoReadme & Resource

/** The etag of a readme that nobody has written yet. */
const unwrittenEtag = '0'

/** A readme is read again so often while others write it. */
const maxAttempts = 12

/** Where a repo's readme is kept: beside the records, never in memory. */
export function readmeKey(repo: string): string {
  return `x/readme/${repo}`
}

/** The row of the repo that a readme belongs to, or code 5. */
function repoRow(services: Services, uid: string): Row {
  const row = services.replica.snapshot.get('Repo', uid)
  if (row === undefined) throw notFound('RepoReadme', uid)
  return row
}

/** A readme as the store has it now; without a revision where nobody has written it. */
interface Stored {
  readonly record: ReadmeRecord
  readonly facts: EnvelopeFacts
  readonly revision: Revision | undefined
}

/** Reads the readme that `repo` shows: for a synced one that of its source. */
async function readReadme(services: Services, row: Row, signal: AbortSignal): Promise<Stored> {
  // A row of kind Repo holds a Repo.
  const origin = originOf(services.replica.snapshot, row.message as unknown as Repo)
  let entry
  try {
    entry = origin === undefined ? undefined : await services.store.get(readmeKey(origin.uid), signal)
  } catch (error) {
    throw fromStore(error)
  }
  const envelope = entry === undefined ? undefined : fromBinary(EnvelopeSchema, entry.value)
  const facts: EnvelopeFacts =
    envelope === undefined
      ? { etag: unwrittenEtag, createMs: row.createMs, updateMs: row.createMs, managedBy: '' }
      : { etag: envelope.etag, createMs: Number(envelope.createTimeMs), updateMs: Number(envelope.updateTimeMs), managedBy: envelope.managedBy }
  // A readme has what every resource has (test/core/schema.test.ts).
  const bare = (envelope === undefined ? create(RepoReadmeSchema) : fromBinary(RepoReadmeSchema, envelope.record)) as ReadmeRecord
  bare.uid = row.uid
  return { record: stamped(RepoReadmeSchema, bare, facts), facts, revision: entry?.revision }
}

function answerOf(record: ReadmeRecord): HandlerAnswer {
  return { message: record, etag: record.etag, subject: record.uid }
}

/** GetRepoReadme: as the store has it; empty where nobody wrote one (rules 3.1). */
export const getRepoReadme: Handler = async (services, context, message) => {
  // The request has a uid.
  const row = repoRow(services, (message as { uid?: string }).uid ?? '')
  return answerOf((await readReadme(services, row, context.signal)).record)
}

function isSynced(row: Row): boolean {
  // A row of kind Repo holds a Repo.
  return (row.message as unknown as Repo).syncConfig !== undefined
}

/** The readme as the request wants it. Throws code 10, 3. */
async function wanted(context: Context, request: UpdateRepoReadmeRequest, at: { row: Row; stored: Stored }): Promise<ReadmeRecord> {
  const { record: current } = at.stored
  const { updateMask: mask } = request
  const patch = (request.repoReadme ?? create(RepoReadmeSchema)) as ReadmeRecord // see readReadme
  assertEtag(current, context.ifMatch)
  if (maskAllowsEtag(mask === undefined || mask.paths.length === 0 ? undefined : mask.paths)) assertEtag(current, patch.etag)
  const next = applyMask(RepoReadmeSchema, { current, patch }, pathsOf({ desc: RepoReadmeSchema }, context, { patch, mask }))
  assertValid(RepoReadmeSchema, writableCopy(RepoReadmeSchema, next))
  if (next.content === current.content) return next
  if (isSynced(at.row)) throw DomainError.invalid('content', 'is inherited from the source of the sync')
  const fault = next.content === '' ? undefined : await checkReadme(next.content, context.signal)
  if (fault !== undefined) throw DomainError.invalid('content', fault)
  return next
}

/** What was planned was read before somebody else's write: it is to be read anew. */
class OutOfDate extends Error {
  override readonly name = 'OutOfDate'
}

function planReadme(planning: Planning, context: Context, change: { seen: Row; stored: Stored; next: ReadmeRecord }): Plan<ReadmeRecord> {
  const { services, nowMs } = planning
  const { seen, stored, next } = change
  const row = repoRow(services, seen.uid)
  if (row.revision !== seen.revision) throw new OutOfDate()
  const changes = new ChangeSet()
  changes.guard({ kind: 'unchanged', key: recordKey('Repo', row.uid), revision: row.revision })
  const key = readmeKey(row.uid)
  const { facts: before, revision } = stored
  const facts = {
    etag: newEtag(services.random),
    createMs: revision === undefined ? nowMs : before.createMs,
    updateMs: revision === undefined ? nowMs : Math.max(nowMs, before.updateMs + 1),
    managedBy: '',
  }
  changes.guard(revision === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision })
  changes.write({ kind: 'put', key, value: envelopeBytes(envelopeOf(RepoReadmeSchema, next, facts)) })
  const record = stamped(RepoReadmeSchema, next, facts)
  emit(planning, context, { changes, subject: row.uid, body: { desc: RepoReadmeSchema, message: record } })
  return { changes, result: record }
}

/** One attempt: undefined where somebody else's write came in between. */
async function attempt(services: Services, context: Context, request: UpdateRepoReadmeRequest): Promise<HandlerAnswer | undefined> {
  const uid: Uid = trustedUid(request.repoReadme?.uid ?? '')
  const seen = repoRow(services, uid)
  const stored = await readReadme(services, seen, context.signal)
  const next = await wanted(context, request, { row: seen, stored })
  // What it shows is its source's: there is nothing to write.
  if (isSynced(seen)) return answerOf(next)
  let planned = false
  try {
    const record = await commit(services, context, (planning) => {
      if (planned) throw new OutOfDate()
      planned = true
      return planReadme(planning, context, { seen, stored, next })
    })
    return answerOf(record)
  } catch (error) {
    if (error instanceof OutOfDate) return undefined
    throw error
  }
}

/** UpdateRepoReadme: changes what the mask names, checks the whole result, in one transaction with the event (rules 3.1). */
export const updateRepoReadme: Handler = async (services, context, message) => {
  for (let count = 1; count <= maxAttempts; count++) {
    const answer = await attempt(services, context, message as UpdateRepoReadmeRequest) // the method's own request
    if (answer !== undefined) return answer
  }
  throw new DomainError(10, 'too many concurrent changes of the same readme; try again', { details: { retryAfterMs: 100 } })
}
