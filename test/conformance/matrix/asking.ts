import type { JsonObject } from '@bufbuild/protobuf'
import { randomBytes } from 'node:crypto'
import type { ApiClient, Options, Reply } from '../../support/api-clients.ts'

/** Returns a digest without content. */
export function noDigest(): string {
  return `sha256:${randomBytes(32).toString('hex')}`
}

/** Returns a uid, of the same length, below a root that does not exist; for a digest another digest. */
export function nowhere(uid: string): string {
  if (uid.startsWith('sha256:')) return noDigest()
  return [
    randomBytes(20),
    ...uid
      .split('/')
      .slice(1)
      .map(() => randomBytes(8)),
  ]
    .map((bytes) => bytes.toString('hex'))
    .join('/')
}

/** A uid without a record, next to `uid`, or below it if `uid` is `place` itself. */
export function missingIn(place: string, uid: string): string {
  if (uid !== place && !uid.includes('/')) return nowhere(uid)
  const parent = uid === place ? place : uid.slice(0, uid.lastIndexOf('/'))
  return `${parent}/${randomBytes(8).toString('hex')}`
}

/** Returns the whole answer, with the caller's own input replaced: the uid and its parent. */
export function answerAbout(reply: Reply, uid: string): string {
  const slash = uid.lastIndexOf('/')
  const bare = reply.raw.replaceAll(uid, '<uid>')
  return slash < 0 ? bare : bare.replaceAll(uid.slice(0, slash), '<parent>')
}

/** Calls with a fixed request id, so that answers do not differ by it. */
export function ask(apiClient: ApiClient, call: { name: string; request: JsonObject; token: string | undefined; options?: Options }): Promise<Reply> {
  const { name, request, token, options = {} } = call
  return apiClient.call(name, request, { ...options, requestId: 'matrix', ...(token === undefined ? {} : { token }) })
}

/** Runs `work` for each item, several at a time. */
export async function forEach<T>(items: readonly T[], work: (item: T) => Promise<void>, atOnce = 16): Promise<void> {
  const rest = [...items].reverse()
  const worker = async (): Promise<void> => {
    for (let item = rest.pop(); item !== undefined; item = rest.pop()) await work(item)
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}
