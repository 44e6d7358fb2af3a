import { DomainError } from '../../base/errors.ts'
import { StoreError, type StoreErrorKind } from '../../store/store.ts'

/** Kinds of StoreError that concern a single record, not the whole store. */
const kindsOfOne: ReadonlySet<StoreErrorKind> = new Set(['damaged', 'too_large'])

/** True if the error concerns the whole store, so that all later items would fail as well. */
function isOfStore(error: unknown): boolean {
  if (error instanceof DomainError && error.cause !== undefined) return isOfStore(error.cause)
  return error instanceof StoreError && !kindsOfOne.has(error.kind)
}

/**
 * Calls `work` for each item in turn. If an item fails, it calls `failed` and continues. After the last item it throws the first failure. Rejects at once if
 * the store as a whole fails, or with the signal's reason.
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
