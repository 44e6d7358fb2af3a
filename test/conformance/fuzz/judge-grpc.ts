import { fromBinary } from '@bufbuild/protobuf'
import { anyUnpack } from '@bufbuild/protobuf/wkt'
import { ErrorInfoSchema } from '../../../src/gen/google/rpc/error_details_pb.ts'
import { StatusSchema } from '../../../src/gen/google/rpc/status_pb.ts'
import type { GrpcOutcome } from './grpc-client.ts'
import type { GrpcDraft } from './requests/grpc-draft.ts'
import type { Finding } from './judge-http.ts'

/** Codes that say that the server is at fault: UNKNOWN, INTERNAL, UNAVAILABLE, DATA_LOSS. */
const errorCodes: ReadonlySet<number> = new Set([2, 13, 14, 15])

/** A call that the gRPC library answers before the server's handler runs. */
interface AnsweredBelow {
  readonly why: string
  readonly matches: (draft: GrpcDraft, outcome: GrpcOutcome) => boolean
}

const contentTypeOf = ({ headers }: GrpcDraft): string => String(headers['content-type'] ?? '')

/** The complete table. Any other malformed end is a breach. */
const answeredBelow: readonly AnsweredBelow[] = [
  {
    why: 'a content type that is not gRPC is answered with HTTP status 415 and nothing else, as the protocol says',
    matches: (draft, { httpStatus }) => httpStatus === 415 && !contentTypeOf(draft).startsWith('application/grpc'),
  },
  {
    why: 'without a content type, the request is one of REST, which has no such path',
    matches: (draft, { httpStatus }) => httpStatus === 404 && contentTypeOf(draft) === '',
  },
  {
    why: 'health and reflection are services of the library: their errors are those that their own protocols have',
    matches: ({ path }, { code }) => /^\/grpc\.(?:health|reflection)\./.test(path) && code !== undefined,
  },
  {
    why: 'HTTP/2 itself ends a stream (ENHANCE_YOUR_CALM) whose bytes are far over the limit of a message and come faster than they are refused',
    matches: ({ message, body = [message] }, { code, reset }) => code === undefined && reset === 11 && sizeOf(body) > 4 * maxMessageBytes,
  },
  {
    why: 'HTTP/2 itself ends a stream whose headers break its rules: the verb, the path, names and values, or their size',
    matches: (draft, { code, reset, ended, httpStatus }) => code === undefined && breaksHttp2(draft) && (reset !== 0 || ended === 'gone' || httpStatus === 431),
  },
]

/** The maximum size of a message. */
const maxMessageBytes = 1024 * 1024

function sizeOf(parts: readonly Buffer[]): number {
  return parts.reduce((sum, { length }) => sum + length, 0)
}

/** HTTP/2 refuses metadata above this size. */
const maxMetadataBytes = 16 * 1024

function breaksHttp2({ path, headers }: GrpcDraft): boolean {
  const texts = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((text) => [name, text] as const))
  const size = path.length + texts.reduce((sum, [name, text]) => sum + name.length + text.length + 32, 0)
  const isOdd = (text: string): boolean => /[\0-\x08\x0a-\x1f\x7f-\xff]/.test(text) || text !== text.trim()
  return size > maxMetadataBytes || !/^\/[\x21-\x7e]*$/.test(path) || texts.some(([name, text]) => name.startsWith(':') || isOdd(text))
}

/** Returns the faults in the end of a call. */
export function judgeGrpc(draft: GrpcDraft, outcome: GrpcOutcome): Finding[] {
  const { code, ended, reset } = outcome
  if (ended === 'refused') return []
  if (ended === 'late')
    return draft.path.endsWith('/Watch') || draft.path.includes('ServerReflection')
      ? []
      : [{ kind: 'hang', text: `not done after ${Math.round(outcome.milliseconds)} ms` }]
  if (draft.ending === 'cancel') return []
  if (answeredBelow.some(({ matches }) => matches(draft, outcome))) return []
  if (code === undefined) return [{ kind: 'form', text: `no status; HTTP ${outcome.httpStatus}, reset ${reset}, ${ended}` }]
  if (code === 0) return outcome.requestId === undefined ? [{ kind: 'form', text: 'no request id' }] : []
  if (errorCodes.has(code)) return [{ kind: 'fault', text: `code ${code}: ${outcome.message}` }]
  return judgeStatus(outcome)
}

function judgeStatus({ code, message, details, requestId }: GrpcOutcome): Finding[] {
  const errors: string[] = []
  if (message === '') errors.push('no message')
  if (details === undefined) return [{ kind: 'form', text: `code ${code} without details: ${message}` }]
  const status = fromBinary(StatusSchema, details)
  const info = status.details.map((any) => anyUnpack(any, ErrorInfoSchema)).find((found) => found !== undefined)
  if (status.code !== code) errors.push(`details of code ${status.code}`)
  if (info === undefined) errors.push('no ErrorInfo')
  else if (info.reason === '' || info.domain === '' || info.metadata['requestId'] !== requestId || requestId === undefined)
    errors.push(`ErrorInfo ${JSON.stringify(info)} for request ${requestId}`)
  return errors.length === 0 ? [] : [{ kind: 'form', text: `code ${code} with ${errors.join(', ')}` }]
}
