import { randomUUID } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { replyOf } from '../cluster/api-call.ts'
import type { ApiProcess } from '../cluster/api-process.ts'
import { until } from '../cluster/until.ts'
import type { ActionContext } from './action.ts'

/** Maximum time in milliseconds for an expected effect on a busy machine. */
const timeoutMs = 30_000

/**
 * With a full store every process soon answers writes with code 8, and still answers reads. Throws if that does not happen.
 * `fill` uses up space that became free meanwhile, such as a store's log at the restart of its process.
 */
export async function expectNoRoom(context: ActionContext, fill?: () => Promise<void>): Promise<void> {
  const { installation, signal } = context
  // A new token each time: one of a process whose clock jumps is invalid elsewhere.
  const codeOf = async (api: ApiProcess, rpc: string, request: JsonObject): Promise<number | undefined> =>
    (await replyOf(api, { rpc, request, token: await installation.token() }))?.code
  for (const api of installation.apis) {
    const group = (): JsonObject => ({ name: `room ${randomUUID()}`, description: 'x'.repeat(500) })
    const refuses = async (): Promise<boolean> => {
      await fill?.()
      return (await codeOf(api, 'CreateGroup', { group: group() })) === 8
    }
    await until(refuses, { withinMs: timeoutMs, what: `${api.name} refuses writes for want of room`, signal })
    const reads = async (): Promise<boolean> => (await codeOf(api, 'ListGroups', { pageSize: 1 })) === 0
    await until(reads, { withinMs: timeoutMs, what: `${api.name} answers reads though there is no room`, signal })
  }
}
