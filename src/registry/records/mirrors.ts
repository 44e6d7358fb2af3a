import { clone, create } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { BindingSight } from '../../authz/access.ts'
import { decide, type EffectivePermissions } from '../../authz/effective-permissions.ts'
import { setOf } from '../../base/capability.ts'
import { errorText } from '../../base/error-text.ts'
import { hashQuery } from '../../base/page-token.ts'
import { methods, resources, type ResourceRow } from '../../base/schema/schema.ts'
import { rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import {
  EndMirrorResponseSchema,
  ListMirrorsResponseSchema,
  MirrorSchema,
  RepoSchema,
  type EndMirrorRequest,
  type ListMirrorsRequest,
  type Mirror,
  type Repo,
} from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { ListQuery, ListResult } from '../../cache/lists/list.ts'
import { parseOrder } from '../../cache/lists/order.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { CooperativeTask } from '../../cache/cooperative-task.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import type { RenderFacts, Planning } from '../../engine/kind.ts'
import { oneByOne } from '../../engine/jobs/one-by-one.ts'
import { continuationOf, listShown, nextToken, pageLimit } from '../../engine/read.ts'
import { callerOf, platformContext, type Caller, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import { factsOf } from '../../engine/shown.ts'
import { bodyOf, emit } from '../../engine/write.ts'
import { repoKind } from './repos.ts'
import { isInForce } from './sync-rights.ts'
import { sourceFilter } from './synced-repos.ts'
import { messageOf } from '../../cache/records/record-types.ts'

const kind = 'Mirror'

function mirrorSchema(): ResourceRow {
  const row = resources.get(kind)
  if (row === undefined) throw new TypeError(`${kind} is not a resource of the schema`)
  return row
}

const schema = mirrorSchema()

function repoOf(record: CachedRecord): Repo {
  return messageOf(record, 'Repo')
}

const listsIdentities = setOf(['identity.list'])

/**
 * Decides which identities a response may name (docs/spec/registry.md#mirrors). These are the caller's own, those that the caller may
 * list, and those whose role bindings the caller may list.
 */
class IdentitySight {
  readonly #tables: RecordTables
  readonly #caller: Caller
  readonly #permissions: EffectivePermissions
  readonly #bindings: BindingSight
  /** Results by identity: a page often repeats a few identities, and each may have many role bindings. */
  readonly #known = new Map<string, boolean>()

  constructor(tables: RecordTables, caller: Caller) {
    this.#tables = tables
    this.#caller = caller
    this.#permissions = caller.permissions()
    this.#bindings = new BindingSight(this.#permissions)
  }

  /** Returns true if the caller may see the identity. Role bindings count if they are in the organisations `roots`. */
  shows(identity: string, roots: readonly Uid[]): boolean {
    if (identity === '') return false
    const key = [identity, ...roots].join(' ')
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const isShown =
      identity === this.#caller.identity ||
      decide(this.#permissions, identity, listsIdentities).kind === 'allowed' ||
      roots.some((root) => this.#bindings.showsOneOf(this.#tables, identity, root))
    this.#known.set(key, isShown)
    return isShown
  }
}

function mirrorOf(facts: RenderFacts, record: CachedRecord, { parent, sight }: { parent: Uid; sight: IdentitySight }): Mirror {
  const { syncConfig: sync } = repoOf(record)
  const organization = rootOf(record.uid)
  const identity = sync?.identityUid ?? ''
  return create(MirrorSchema, {
    uid: record.uid,
    organizationUid: organization,
    organizationName: facts.tables.get('Group', organization)?.name ?? '',
    identityUid: sight.shows(identity, [rootOf(parent), organization]) ? identity : '',
    ...(sync?.expirationTime && { expirationTime: sync.expirationTime }),
    active: sync !== undefined && isInForce(facts, record.uid, sync),
  })
}

/** ListMirrors: returns the repos that are synced with a repo, in all organisations. Leaves out mirrors of its mirrors. */
export const listMirrors: Handler = async (services, context, message) => {
  const { parent, orderBy, pageToken, pageSize, skip } = message as ListMirrorsRequest
  const order = parseOrder(orderBy.trim() === '' ? schema.defaultOrder : orderBy, schema)
  const queryHash = hashQuery([context.method.rpc, parent, order.id, callerOf(context).identity])
  const { after, restarted } = await continuationOf(services, context, { text: pageToken, queryHash, order })
  const limit = pageLimit(pageSize)
  const query = (): ListQuery => {
    // Rights may have changed during the wait, so they are checked again.
    context.authorize()
    return {
      kind: repoKind.index.kind,
      uidp: { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: [] },
      filters: [[sourceFilter, parent]],
      visibility: { everywhere: true, groups: [], roots: true },
      order,
      ...(after === undefined ? {} : { after }),
      skip,
      // Reads one more than the page holds, to find out whether more follow.
      limit: limit + 1,
    }
  }
  const answer = ({ records, total }: ListResult): HandlerAnswer => {
    const page = records.slice(0, limit)
    const last = page.at(-1)
    const facts = factsOf(services)
    const shown = { parent: trustedUid(parent), sight: new IdentitySight(facts.tables, callerOf(context)) }
    return {
      message: create(ListMirrorsResponseSchema, {
        mirrors: page.map((record) => mirrorOf(facts, record, shown)),
        nextPageToken: records.length > limit && last !== undefined ? nextToken(services, { order, record: last, queryHash }) : '',
        totalCount: BigInt(total),
        skipped: skip,
      }),
      subject: parent,
    }
  }
  const answered = await listShown(repoKind, services, { query, answer })
  return { ...answered, ...(restarted ? { pageTokenRestarted: true } : {}) }
}

/** Removes the sync from a repo, even if a Kubernetes object owns the repo, and adds the repo's change event. */
function planEnd(planning: Planning, context: Context, cached: CachedRecord): MutationPlan<true> {
  const record = clone(RepoSchema, repoOf(cached))
  delete record.syncConfig
  const changes = new ChangeSet()
  const { createMs, managedBy } = cached
  const facts = { etag: newEtag(planning.services.random), createMs, updateMs: Math.max(planning.nowMs, cached.updateMs + 1), managedBy }
  const changed = changes.update(repoKind, { cached, record, facts })
  emit(planning, context, { changes, subject: cached.uid, body: bodyOf(repoKind, planning, changed) })
  return { changes, result: true }
}

/** EndMirror: ends the sync of a mirror with a repo that the caller may change. Throws code 5 if the mirror is not synced with that repo. */
export const endMirror: Handler = async (services, context, message) => {
  const { parent, mirrorUid } = message as EndMirrorRequest
  await commit(services, context, (planning) => {
    const record = planning.tables.get(repoKind.index.kind, mirrorUid)
    if (record === undefined || repoOf(record).syncConfig?.source !== parent) throw notFound(kind, mirrorUid, { concealed: record !== undefined })
    return planEnd(planning, context, record)
  })
  return { message: create(EndMirrorResponseSchema), subject: mirrorUid }
}

/** Returns a context in which the platform itself updates a repo. */
function ownContext(services: Services, signal: AbortSignal): Context {
  const method = methods.find((row) => row.kind === repoKind.index.kind && row.verb === 'update')
  if (method === undefined) throw new TypeError('the kind Repo has no update method')
  return platformContext(services, { method, requestId: 'expired-syncs', signal })
}

function isExpired(record: CachedRecord, nowMs: number): boolean {
  const end = repoOf(record).syncConfig?.expirationTime
  return end !== undefined && nowMs >= timestampMs(end)
}

/**
 * Removes expired syncs from their repos, each in its own transaction. Resolves with the number removed. Continues if one repo fails, and
 * throws the first failure at the end. Rejects with DomainError, or the signal's reason.
 */
export async function endExpiredSyncs(services: Services, signal: AbortSignal): Promise<number> {
  const { cache, clock, log } = services
  const context = ownContext(services, signal)
  const task = new CooperativeTask()
  let ended = 0
  const end = async ({ uid }: CachedRecord): Promise<void> => {
    if (task.shouldYield) await task.pause()
    const record = cache.tables.get(repoKind.index.kind, uid)
    if (record === undefined || !isExpired(record, clock.now())) return
    const isEnded = await commit(services, context, (planning): MutationPlan<boolean> => {
      const current = planning.tables.get(repoKind.index.kind, uid)
      if (current === undefined || !isExpired(current, planning.nowMs)) return { changes: new ChangeSet(), result: false }
      return planEnd(planning, context, current)
    })
    ended += Number(isEnded)
  }
  await oneByOne([...cache.tables.table(repoKind.index.kind).having(sourceFilter)], end, {
    signal,
    failed: ({ uid }, error) => log.warn('could not end an expired sync of a repo', { repo: uid, error: errorText(error) }),
  })
  return ended
}
