import type { JsonObject } from '@bufbuild/protobuf'
import { restClient, type Reply } from '../../support/api-clients.ts'
import type { ApiProcess } from './api-process.ts'

/** Maximum wait for an answer, in milliseconds. */
const answerMs = 6_000

/** A call that is not part of any history. */
export interface ApiCall {
  readonly rpc: string
  readonly request: JsonObject
  readonly token: string
}

/** Returns the answer; undefined if the connection broke, or the process does not run or answer in time. */
export async function replyOf(api: ApiProcess, { rpc, request, token }: ApiCall): Promise<Reply | undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), answerMs)
  const answer = restClient(api.url)
    .call(rpc, request, { token })
    .catch(() => undefined)
  try {
    return await Promise.race([answer, promise])
  } finally {
    clearTimeout(timer)
  }
}

/** Returns the body of a successful answer, else undefined. */
export async function bodyOf(api: ApiProcess, call: ApiCall): Promise<JsonObject | undefined> {
  const reply = await replyOf(api, call)
  return reply?.code === 0 ? reply.body : undefined
}
