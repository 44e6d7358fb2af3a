import { create, type DescMessage } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { MethodEvent } from '../../base/schema/method.ts'
import type { Uid } from '../../base/uid.ts'
import { GroupSchema } from '../../gen/taproot/iam/v2/groups_pb.ts'
import { RepoSchema } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { Resource } from '../../cache/records/cached-record.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { groupKind } from '../../iam/index.ts'
import type { AnyKind } from '../../engine/kind.ts'
import { outboxWrite } from '../../engine/outbox.ts'
import { rendered } from '../../engine/shown.ts'
import type { MutationContext, Services } from '../../engine/services.ts'
import { assertValid } from '../../engine/validate.ts'
import { planCreate } from '../../engine/write.ts'
import { repoKind } from './repos.ts'

/** The kinds of object that a push may create, and their events. */
const made = {
  group: { kind: groupKind, desc: GroupSchema, event: { type: 'iam.group.created.v1', group: 'self', internal: false } },
  repo: { kind: repoKind, desc: RepoSchema, event: { type: 'platform.registry.repo.created.v1', group: 'parent', internal: false } },
} as const satisfies Record<string, { kind: AnyKind; desc: DescMessage; event: MethodEvent }>

interface PushTarget {
  readonly parent: Uid
  readonly name: string
  /** Name of the registry host; the source of the event. */
  readonly host: string
  /** The target of the push, for errors. */
  readonly path: string
}

/** Returns an error that says which part of the path cannot be created, since the client named the whole path. */
function unmakeable(error: DomainError, { sort, name, path }: PushTarget & { sort: keyof typeof made }): DomainError {
  const why = error.details.badRequest?.map(({ field, description }) => `${field} ${description}`).join(', ') ?? error.message
  return new DomainError(3, `the ${sort} "${name}" of ${path} cannot be created: ${why}`, { reason: 'NAME_INVALID', details: error.details, cause: error })
}

/**
 * Creates an object, or returns one that another push has just created. Throws code 3 NAME_INVALID if its name is invalid, code 5 if its
 * parent is gone.
 */
async function makeByPush(services: Services, context: MutationContext, place: PushTarget & { sort: keyof typeof made }): Promise<Uid> {
  const { parent, name, host, sort } = place
  const { kind, desc, event } = made[sort]
  const there = (): Uid | undefined => services.cache.tables.table(kind.index.kind).child(parent, name)?.uid
  // a cast: every resource has the fields of Resource
  const draft = create(desc as DescMessage, { name }) as Resource
  try {
    assertValid(desc, draft)
    return await commit(services, context, (planning): MutationPlan<Uid> => {
      const changes = new ChangeSet()
      const record = planCreate(kind, planning, { changes, parent, draft })
      const uid = record.uid as Uid
      const body = { desc, message: rendered(kind, services, record) }
      const write = outboxWrite(services.random, { event, source: host, subject: uid, body, caller: planning.caller, nowMs: planning.nowMs })
      changes.write(write)
      changes.guard({ kind: 'absent', key: write.key })
      changes.proofKey = write.key
      return { changes, result: uid }
    })
  } catch (error) {
    if (!(error instanceof DomainError)) throw error
    if (error.code === 3) throw unmakeable(error, place)
    if (error.code !== 6) throw error
    await services.cache.barrier(context.signal)
    const uid = there()
    if (uid === undefined) throw error
    return uid
  }
}

/**
 * Creates the repo of a first push, and the missing groups on its path, each in its own transaction. Never creates a root group. Throws
 * code 3 NAME_INVALID if a name is invalid, code 5 if the group is gone.
 */
export async function createRepoByPush(services: Services, context: MutationContext, repo: PushTarget & { groups: readonly string[] }): Promise<Uid> {
  const { groups, name, host, path } = repo
  let { parent } = repo
  for (const group of groups) parent = await makeByPush(services, context, { parent, name: group, host, path, sort: 'group' })
  return makeByPush(services, context, { parent, name, host, path, sort: 'repo' })
}
