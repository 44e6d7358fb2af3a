import { randomUUID } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { restDoor, type Reply } from '../../harness/doors.ts'
import type { ApiProcess } from '../cluster/api-process.ts'
import { until } from '../cluster/until.ts'
import type { ActionContext } from './action.ts'

/** How long an effect that must come may take, on a busy machine. */
const patienceMs = 30_000

/** One call; undefined where the connection broke, or the process does not run. */
async function replyOf(api: ApiProcess, rpc: string, request: JsonObject, token: string): Promise<Reply | undefined> {
  try {
    return await restDoor(api.url).call(rpc, request, { token })
  } catch {
    return undefined
  }
}

/** The body of an answer that is a success, else undefined. */
export async function bodyOf(api: ApiProcess, rpc: string, request: JsonObject, token: string): Promise<JsonObject | undefined> {
  const reply = await replyOf(api, rpc, request, token)
  return reply?.code === 0 ? reply.body : undefined
}

/** With a store that has no room left every process soon answers writes with code 8, and goes on answering reads. Throws where that does not come. */
export async function expectNoRoom(context: ActionContext): Promise<void> {
  const token = await context.installation.token()
  for (const api of context.installation.apis) {
    const refuses = async (): Promise<boolean> => {
      const name = `room ${randomUUID()}`
      return (await replyOf(api, 'CreateGroup', { group: { name, description: 'x'.repeat(500) } }, token))?.code === 8
    }
    await until(refuses, { withinMs: patienceMs, what: `${api.name} refuses writes for want of room`, signal: context.signal })
    const reads = async (): Promise<boolean> => (await replyOf(api, 'ListGroups', { pageSize: 1 }, token))?.code === 0
    await until(reads, { withinMs: patienceMs, what: `${api.name} answers reads though there is no room`, signal: context.signal })
  }
}
