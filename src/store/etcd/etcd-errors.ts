import { status } from '@grpc/grpc-js'
import { StoreError, type StoreErrorKind } from '../store.ts'

/** What a gRPC status means to the port. Every other one is `unavailable`, for a write `indeterminate`. */
const kindByStatus = new Map<number, StoreErrorKind>([
  [status.OUT_OF_RANGE, 'compacted'],
  [status.RESOURCE_EXHAUSTED, 'exhausted'],
])

/**
 * Asks to come again, and has the code of "no space", which does not. etcd gives no other sign than its (constant) text.
 */
const busyText = 'etcdserver: too many requests'

/** The gRPC status of an error of the driver; undefined for any other error. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'number' ? error.code : undefined
}

/**
 * What a failed call means to the port. StoreErrors, and errors that are not the driver's, are returned as they are. Writes are checked before
 * they are sent, so a write (`isWrite`) that etcd finds invalid exceeds limits that etcd was given below its defaults. A write that failed in any other way may
 * have reached etcd.
 */
export function etcdError(error: unknown, isWrite = false): unknown {
  const code = statusOf(error)
  if (error instanceof StoreError || code === undefined) return error
  const busy = code === status.RESOURCE_EXHAUSTED && error instanceof Error && error.message.includes(busyText)
  const tooLarge = isWrite && code === status.INVALID_ARGUMENT
  const kind = busy ? 'unavailable' : tooLarge ? 'too_large' : (kindByStatus.get(code) ?? (isWrite ? 'indeterminate' : 'unavailable'))
  return new StoreError(kind, `etcd answered ${status[code] ?? code}`, error)
}
