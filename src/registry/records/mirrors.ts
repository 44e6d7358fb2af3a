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
import type { Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { Slices } from '../../cache/slices.ts'
import type { Snapshot } from '../../cache/snapshot.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import type { RenderFacts, Planning } from '../../engine/kind.ts'
import { oneByOne } from '../../engine/jobs/one-by-one.ts'
import { continuationOf, listShown, nextToken, pageLimit } from '../../engine/read.ts'
import { apiOwnership, callerOf, innerContext, type Caller, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import { factsOf } from '../../engine/shown.ts'
import { bodyOf, emit } from '../../engine/write.ts'
import { repoKind } from './repos.ts'
import { isInForce } from './sync-rights.ts'
import { sourceFilter } from './synced-repos.ts'

const kind = 'Mirror'

function mirrorSchema(): ResourceRow {
  const row = resources.get(kind)
  if (row === undefined) throw new TypeError(`${kind} is no resource of the schema`)
  return row
}

const schema = mirrorSchema()

function repoOf(row: CachedRecord): Repo {
  // A row of kind Repo holds a Repo.
  return row.message as unknown as Repo
}

const listsIdentities = setOf(['identity.list'])

/** Which identities an answer may name (docs/spec/registry.md#mirrors): the caller's own, those that they may list, and those of bindings that they may list. */
class IdentitySight {
  readonly #snapshot: Snapshot
  readonly #caller: Caller
  readonly #reach: EffectivePermissions
  readonly #bindings: BindingSight
  /** A page mostly repeats a few identities, and each may have many bindings. */
  readonly #known = new Map<string, boolean>()

  constructor(snapshot: Snapshot, caller: Caller) {
    this.#snapshot = snapshot
    this.#caller = caller
    this.#reach = caller.reach()
    this.#bindings = new BindingSight(this.#reach)
  }

  /** True where the caller may see the identity, by a binding at most in the organisations `roots`. */
  shows(identity: string, roots: readonly Uid[]): boolean {
    if (identity === '') return false
    const key = [identity, ...roots].join(' ')
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const isShown =
      identity === this.#caller.identity ||
      decide(this.#reach, identity, listsIdentities).kind === 'allowed' ||
      roots.some((root) => this.#bindings.showsOneOf(this.#snapshot, identity, root))
    this.#known.set(key, isShown)
    return isShown
  }
}

function mirrorOf(facts: RenderFacts, row: CachedRecord, { parent, sight }: { parent: Uid; sight: IdentitySight }): Mirror {
  const { syncConfig: sync } = repoOf(row)
  const organization = rootOf(row.uid)
  const identity = sync?.identityUid ?? ''
  return create(MirrorSchema, {
    uid: row.uid,
    organizationUid: organization,
    organizationName: facts.snapshot.get('Group', organization)?.name ?? '',
    identityUid: sight.shows(identity, [rootOf(parent), organization]) ? identity : '',
    ...(sync?.expirationTime && { expirationTime: sync.expirationTime }),
    active: sync !== undefined && isInForce(facts, row.uid, sync),
  })
}

/** ListMirrors: the repos that are synced with a repo, whichever organisation they are in. A mirror of a mirror is the mirror's. */
export const listMirrors: Handler = async (services, context, message) => {
  const { parent, orderBy, pageToken, pageSize, skip } = message as ListMirrorsRequest
  const order = parseOrder(orderBy.trim() === '' ? schema.defaultOrder : orderBy, schema)
  const queryHash = hashQuery([context.method.rpc, parent, order.id, callerOf(context).identity])
  const { after, restarted } = await continuationOf(services, context, { text: pageToken, queryHash, order })
  const limit = pageLimit(pageSize)
  const query = (): ListQuery => {
    // Time may have passed: the right to ask is looked at again.
    context.authorize()
    return {
      kind: repoKind.index.kind,
      uidp: { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: [] },
      filters: [[sourceFilter, parent]],
      visibility: { everywhere: true, groups: [], roots: true },
      order,
      ...(after === undefined ? {} : { after }),
      skip,
      // One more than the page tells whether another follows.
      limit: limit + 1,
    }
  }
  const answer = ({ rows, total }: ListResult): HandlerAnswer => {
    const page = rows.slice(0, limit)
    const last = page.at(-1)
    const facts = factsOf(services)
    const shown = { parent: trustedUid(parent), sight: new IdentitySight(facts.snapshot, callerOf(context)) }
    return {
      message: create(ListMirrorsResponseSchema, {
        mirrors: page.map((row) => mirrorOf(facts, row, shown)),
        nextPageToken: rows.length > limit && last !== undefined ? nextToken(services, { order, row: last, queryHash }) : '',
        totalCount: BigInt(total),
        skipped: skip,
      }),
      subject: parent,
    }
  }
  const answered = await listShown(repoKind, services, { query, answer })
  return { ...answered, ...(restarted ? { pageTokenRestarted: true } : {}) }
}

/** Takes the sync out of the repo in `row`, also where a Kubernetes object owns the record, with the event that the repo was changed. */
function planEnd(planning: Planning, context: Context, row: CachedRecord): MutationPlan<true> {
  const record = clone(RepoSchema, repoOf(row))
  delete record.syncConfig
  const changes = new ChangeSet()
  const { createMs, managedBy } = row
  const facts = { etag: newEtag(planning.services.random), createMs, updateMs: Math.max(planning.nowMs, row.updateMs + 1), managedBy }
  // A repo has what every resource has.
  const changed = changes.update(repoKind, { row, record: record as unknown as Resource, facts })
  emit(planning, context, { changes, subject: row.uid, body: bodyOf(repoKind, planning, changed) })
  return { changes, result: true }
}

/** EndMirror: ends the sync of a repo with the one that the caller may change. Code 5 where it is no mirror of that, or no longer one. */
export const endMirror: Handler = async (services, context, message) => {
  const { parent, mirrorUid } = message as EndMirrorRequest
  await commit(services, context, (planning) => {
    const row = planning.snapshot.get(repoKind.index.kind, mirrorUid)
    if (row === undefined || repoOf(row).syncConfig?.source !== parent) throw notFound(kind, mirrorUid, { concealed: row !== undefined })
    return planEnd(planning, context, row)
  })
  return { message: create(EndMirrorResponseSchema), subject: mirrorUid }
}

/** The platform itself as the caller of an update of a repo. */
function ownContext(services: Services, signal: AbortSignal): Context {
  const method = methods.find((row) => row.kind === repoKind.index.kind && row.verb === 'update')
  if (method === undefined) throw new TypeError('repos have no update')
  return innerContext({
    method,
    caller: {
      identity: trustedUid(''),
      operator: true,
      actor: { iss: services.settings.ownIssuer },
      restrictions: {},
      reach: () => ({ operator: true, grants: [] }),
    },
    requestId: 'expired-syncs',
    signal,
    validateOnly: false,
    ownership: apiOwnership,
    authorize: () => undefined,
  })
}

function isExpired(row: CachedRecord, nowMs: number): boolean {
  const end = repoOf(row).syncConfig?.expirationTime
  return end !== undefined && nowMs >= timestampMs(end)
}

/**
 * Takes syncs that have expired out of their repos, each in a transaction of its own. Returns how many. One repo that fails holds up no other: the first failure is thrown at
 * the end. Rejects with DomainError, or the signal's reason.
 */
export async function endExpiredSyncs(services: Services, signal: AbortSignal): Promise<number> {
  const { replica, clock, log } = services
  const context = ownContext(services, signal)
  const slices = new Slices()
  let ended = 0
  const end = async ({ uid }: CachedRecord): Promise<void> => {
    if (slices.isOver) await slices.pause()
    const row = replica.snapshot.get(repoKind.index.kind, uid)
    if (row === undefined || !isExpired(row, clock.now())) return
    const isEnded = await commit(services, context, (planning): MutationPlan<boolean> => {
      const current = planning.snapshot.get(repoKind.index.kind, uid)
      if (current === undefined || !isExpired(current, planning.nowMs)) return { changes: new ChangeSet(), result: false }
      return planEnd(planning, context, current)
    })
    ended += Number(isEnded)
  }
  await oneByOne([...replica.snapshot.table(repoKind.index.kind).having(sourceFilter)], end, {
    signal,
    failed: ({ uid }, error) => log.warn('a sync that has expired could not be ended', { repo: uid, error: errorText(error) }),
  })
  return ended
}
