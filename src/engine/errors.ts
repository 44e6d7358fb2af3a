import { rootParent } from '../base/uid.ts'
import { DomainError } from '../base/errors.ts'
import { resources } from '../base/schema/schema.ts'
import { StoreError } from '../store/store.ts'

/** Returns the name of a kind in errors: `iam.taproot.dev/Group`. */
export function resourceTypeOf(kind: string): string {
  return resources.get(kind)?.resourceType ?? kind
}

/**
 * Returns code 5 with ResourceInfo. It is the same whether `name` does not exist, is malformed, or is not visible to the caller. An empty `name` means that
 * the request named none; the message then contains only the kind. `resourceType` is for types without a kind in the schema.
 */
export function notFound(kind: string, name: string, options: { readonly concealed?: boolean; readonly resourceType?: string } = {}): DomainError {
  const { resourceType = resourceTypeOf(kind), ...rest } = options
  const slash = name.lastIndexOf('/')
  return new DomainError(5, `${kind} not found${name === '' ? '' : `: ${name.slice(0, 300)}`}`, {
    ...rest,
    details: {
      resource: {
        resourceType,
        resourceName: name.slice(0, 1024) || kind,
        owner: slash < 0 ? rootParent : name.slice(0, Math.min(slash, 1024)),
        description: `no such ${kind}`,
      },
    },
  })
}

/** Returns code 6 for a unique key that another record has, such as a name. */
export function alreadyExists(kind: string, what: string): DomainError {
  return new DomainError(6, `${kind} already exists: ${what}`)
}

/** Returns code 6 for a record that a Kubernetes object already owns, because another reconciler was faster. */
export function ownedAlready(kind: string, managedBy: string): DomainError {
  return new DomainError(6, `${kind} already exists: the Kubernetes object ${managedBy} owns it`, { reason: 'OWNED_ALREADY' })
}

/** Returns code 10 for an etag that is not the current one. */
export function staleEtag(): DomainError {
  return new DomainError(10, 'the etag does not match: the resource changed since it was read. Read it again', { reason: 'ETAG_MISMATCH' })
}

/** Returns code 10 for a path that no longer leads to the record to which it led before. */
export function pathChanged(path: string): DomainError {
  return new DomainError(10, `the path ${path.slice(0, 300)} leads to another record now, or to none: look at the path again`, { reason: 'PATH_CHANGED' })
}

/** Time after which a caller may retry when the store is full, in milliseconds. */
const storeFullRetryMs = 30_000

/** Returns code 2 for a change that was sent to the store but not answered. Unlike code 14, clients do not retry it automatically. */
export function outcomeUnknown(cause?: unknown): DomainError {
  return new DomainError(2, 'The store did not answer, and the change may still happen. Read the resource before you repeat it', {
    reason: 'OUTCOME_UNKNOWN',
    cause,
  })
}

/** Translates a StoreError into the error for a caller. Returns any other error unchanged. */
export function fromStore(error: unknown): unknown {
  if (!(error instanceof StoreError)) return error
  switch (error.kind) {
    case 'exhausted':
      // Not code 14, which clients retry at once (docs/spec/errors.md#retries). An operator, or expiry, must free space first.
      return new DomainError(8, 'the store is full: ask the operator to free space', {
        reason: 'STORE_FULL',
        cause: error,
        details: { retryAfterMs: storeFullRetryMs },
      })
    case 'too_large':
      return new DomainError(3, 'Invalid argument: body: the resource is too large to be stored', {
        cause: error,
        details: { badRequest: [{ field: 'body', description: 'the resource is too large to be stored' }] },
      })
    case 'indeterminate':
      return outcomeUnknown(error)
    case 'damaged':
      return new DomainError(15, 'A stored record is damaged. Ask the operator to restore a backup', { reason: 'STORE_DAMAGED', cause: error })
    case 'unavailable':
    case 'compacted':
    case 'replaced':
    case 'closed':
      return new DomainError(14, 'the store is unreachable; try again', { cause: error, details: { retryAfterMs: 1_000 } })
  }
}
