import { OrgStatus, type Group } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { ChangeSet } from '../../src/resources/change-set.ts'
import { groupKind } from '../../src/resources/iam/groups.ts'
import type { Resource } from '../../src/snapshot/row.ts'
import type { TestServer } from './test-server.ts'

/** Suspends an organisation, or opens it again, which the API has no method for. */
export async function suspend(server: TestServer, group: string, status: OrgStatus = OrgStatus.SUSPENDED): Promise<void> {
  const { replica, store } = server.running.engine
  const signal = AbortSignal.timeout(10_000)
  for (;;) {
    await replica.barrier(signal)
    const row = replica.snapshot.get('Group', group)
    if (row === undefined) throw new Error('no such group')
    const changes = new ChangeSet()
    // A row of kind Group holds a Group.
    const record = { ...(row.message as unknown as Group), status } as unknown as Resource
    changes.update(groupKind, { row, record, facts: row })
    const outcome = await store.transact(changes, signal)
    // Who else is at work may have changed it meanwhile.
    if (!outcome.committed) continue
    await replica.reached(outcome.revision, signal)
    return
  }
}

/** Opens a suspended organisation again. */
export function reinstate(server: TestServer, group: string): Promise<void> {
  return suspend(server, group, OrgStatus.READY)
}
