import { create } from '@bufbuild/protobuf'
import { DomainError } from '../../core/errors.ts'
import type { MethodEvent } from '../../core/method.ts'
import type { Uid } from '../../core/uid.ts'
import { RepoSchema } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { Resource } from '../../snapshot/row.ts'
import { ChangeSet } from '../change-set.ts'
import { commit, type Plan } from '../commit.ts'
import { outboxWrite } from '../outbox.ts'
import { rendered } from '../shown.ts'
import type { MutationContext, Services } from '../services.ts'
import { planCreate } from '../write.ts'
import { repoKind } from './repos.ts'

const createdEvent: MethodEvent = { type: 'platform.registry.repo.created.v1', group: 'parent', internal: false }

/** Makes the repo that a first push needs, or finds the one that another push has just made. Throws code 5 where the group is gone. */
export async function createRepoByPush(services: Services, context: MutationContext, repo: { parent: Uid; name: string; host: string }): Promise<Uid> {
  const { parent, name, host } = repo
  const there = (): Uid | undefined => services.replica.snapshot.table('Repo').child(parent, name)?.uid
  try {
    return await commit(services, context, (planning): Plan<Uid> => {
      const changes = new ChangeSet()
      // Every resource has what Resource adds.
      const record = planCreate(repoKind, planning, { changes, parent, draft: create(RepoSchema, { name }) as unknown as Resource })
      const uid = record.uid as Uid
      const body = { desc: RepoSchema, message: rendered(repoKind, planning.snapshot, record) }
      const write = outboxWrite(services.random, { event: createdEvent, source: host, subject: uid, body, caller: planning.caller, nowMs: planning.nowMs })
      changes.write(write)
      changes.guard({ kind: 'absent', key: write.key })
      changes.proofKey = write.key
      return { changes, result: uid }
    })
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== 6) throw error
    await services.replica.barrier(context.signal)
    const uid = there()
    if (uid === undefined) throw error
    return uid
  }
}
