import { status } from '@grpc/grpc-js'
import { StoreError, type StoreErrorKind } from '../store.ts'

/** The port's error kind for a gRPC status. Every other status is `unavailable`, for a write `indeterminate`. */
const kindByStatus = new Map<number, StoreErrorKind>([
  [status.OUT_OF_RANGE, 'compacted'],
  [status.RESOURCE_EXHAUSTED, 'exhausted'],
])

/** The text of a temporary refusal. It has the same code as "no space", which is not temporary; only etcd's (constant) text distinguishes them. */
const busyText = 'etcdserver: too many requests'

/** Returns the gRPC status of a driver error; undefined for any other error. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'number' ? error.code : undefined
}

/**
 * Translates a failed call for the port. StoreErrors, and errors that are not the driver's, are returned unchanged. Writes are checked before they are sent. So
 * a write (`isWrite`) that etcd finds invalid exceeds limits configured below etcd's defaults. A write that failed in any other way may have reached etcd.
 */
export function etcdError(error: unknown, isWrite = false): unknown {
  const code = statusOf(error)
  if (error instanceof StoreError || code === undefined) return error
  const busy = code === status.RESOURCE_EXHAUSTED && error instanceof Error && error.message.includes(busyText)
  const tooLarge = isWrite && code === status.INVALID_ARGUMENT
  const kind = busy ? 'unavailable' : tooLarge ? 'too_large' : (kindByStatus.get(code) ?? (isWrite ? 'indeterminate' : 'unavailable'))
  return new StoreError(kind, `etcd answered ${status[code] ?? code}`, error)
}
