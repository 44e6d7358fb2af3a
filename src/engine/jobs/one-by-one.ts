import { DomainError } from '../../base/errors.ts'
import { StoreError, type StoreErrorKind } from '../../store/store.ts'

/** What fails one record, and says nothing of the others. */
const kindsOfOne: ReadonlySet<StoreErrorKind> = new Set(['damaged', 'too_large'])

/** True where the store fails, so that what comes next would fail as well. */
function isOfStore(error: unknown): boolean {
  if (error instanceof DomainError && error.cause !== undefined) return isOfStore(error.cause)
  return error instanceof StoreError && !kindsOfOne.has(error.kind)
}

/**
 * Does `work` with each item in turn. One that fails holds up no other: `failed` is called for each failure, and the first failure is thrown after the last item.
 * Rejects at once where the store fails, or with the signal's reason.
 */
export async function oneByOne<T>(
  items: Iterable<T> | AsyncIterable<T>,
  work: (item: T) => Promise<unknown>,
  { signal, failed }: { signal: AbortSignal; failed?: (item: T, error: unknown) => void },
): Promise<void> {
  const failures: unknown[] = []
  for await (const item of items) {
    signal.throwIfAborted()
    try {
      await work(item)
    } catch (error) {
      signal.throwIfAborted()
      if (isOfStore(error)) throw error
      failed?.(item, error)
      failures.push(error)
    }
  }
  if (failures.length > 0) throw failures[0]
}
