import type { Readable } from 'node:stream'
import type { KubeObject, WatchEvent } from '../kube-api.ts'
import { toldError, type StatusAnswer } from './kube-errors.ts'

const newline = 0x0a

/** A line of a watch. */
interface WatchLine {
  readonly type: string
  readonly object: unknown
}

const typeOf = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const

/** What a line tells, or undefined where it is of a type that is not known. Throws the error that it tells. */
export function parseWatchLine(text: string): WatchEvent | undefined {
  // Casts: the API server's own form.
  const { type, object } = JSON.parse(text) as WatchLine
  if (type === 'ERROR') throw toldError(object as StatusAnswer)
  const told = object as KubeObject
  if (type === 'BOOKMARK') return { type: 'bookmark', resourceVersion: told.metadata.resourceVersion }
  return Object.hasOwn(typeOf, type) ? { type: typeOf[type as keyof typeof typeOf], object: told } : undefined
}

/** The lines of a body, without those that are empty, and without a last one that has no end. */
export async function* linesOf(body: Readable): AsyncGenerator<string, void> {
  let begun: Buffer[] = []
  for await (const chunk of body) {
    let rest = chunk as Buffer // a body without an encoding gives buffers
    for (let end = rest.indexOf(newline); end >= 0; end = rest.indexOf(newline)) {
      const line = Buffer.concat([...begun, rest.subarray(0, end)]).toString()
      begun = []
      rest = rest.subarray(end + 1)
      if (line !== '') yield line
    }
    if (rest.length > 0) begun.push(rest)
  }
}
