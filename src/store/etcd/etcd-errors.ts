import { status } from '@grpc/grpc-js'
import { StoreError, type StoreErrorKind } from '../store.ts'

/** The StoreError kind of each gRPC status. Every other status means `unavailable`, or `indeterminate` for a write. */
const kindByStatus = new Map<number, StoreErrorKind>([
  [status.OUT_OF_RANGE, 'compacted'],
  [status.RESOURCE_EXHAUSTED, 'exhausted'],
])

/** The text of a temporary refusal under load. etcd uses the same status for "no space", which is not temporary. Only this constant text distinguishes the two. */
const busyText = 'etcdserver: too many requests'

/** Returns the gRPC status of an error from the gRPC client; undefined for any other error. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'number' ? error.code : undefined
}

/**
 * Translates the error of a failed call into a StoreError. Returns StoreErrors and errors of other origin unchanged. A write (`isWrite`) that etcd calls
 * invalid exceeds limits configured below etcd's defaults, because writes are checked before they are sent. A write that failed in any other way may have
 * reached etcd.
 */
export function etcdError(error: unknown, isWrite = false): unknown {
  const code = statusOf(error)
  if (error instanceof StoreError || code === undefined) return error
  const busy = code === status.RESOURCE_EXHAUSTED && error instanceof Error && error.message.includes(busyText)
  const tooLarge = isWrite && code === status.INVALID_ARGUMENT
  const kind = busy ? 'unavailable' : tooLarge ? 'too_large' : (kindByStatus.get(code) ?? (isWrite ? 'indeterminate' : 'unavailable'))
  return new StoreError(kind, `etcd answered ${status[code] ?? code}`, error)
}
