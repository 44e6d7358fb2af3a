import type { JsonObject } from '@bufbuild/protobuf'
import { restClient, type Reply } from '../../support/api-clients.ts'
import type { ApiProcess } from './api-process.ts'

/** How long an answer is waited for, in milliseconds. */
const answerMs = 6_000

/** A call that is not part of any history. */
export interface ApiCall {
  readonly rpc: string
  readonly request: JsonObject
  readonly token: string
}

/** The answer; undefined where the connection broke, or the process does not run or does not answer in time. */
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

/** The body of an answer that is a success, else undefined. */
export async function bodyOf(api: ApiProcess, call: ApiCall): Promise<JsonObject | undefined> {
  const reply = await replyOf(api, call)
  return reply?.code === 0 ? reply.body : undefined
}
