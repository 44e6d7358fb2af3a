import { rootParent } from '../base/uid.ts'
import { DomainError } from '../base/errors.ts'
import { resources } from '../base/schema/schema.ts'
import { StoreError } from '../store/store.ts'

/** `iam.taproot.dev/Group` */
export function resourceTypeOf(kind: string): string {
  return resources.get(kind)?.resourceType ?? kind
}

/** Code 5 with ResourceInfo: the same whether `name` is missing, malformed or out of the caller's reach. An empty `name` is of what was not asked for by one: its kind stands for it. `resourceType` is of what the schema has no kind for. */
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

/** Code 7; the metadata names what is missing and where. */
export function denied(missing: readonly string[], scope: string): DomainError {
  const metadata = missing.length === 0 ? { scope } : { missingCapabilities: missing.join(','), scope }
  return new DomainError(7, missing.length === 0 ? 'permission denied' : `permission denied: needs ${missing.join(', ')}`, { details: { metadata } })
}

/** Code 6 for a taken unique key. */
export function alreadyExists(kind: string, what: string): DomainError {
  return new DomainError(6, `${kind} already exists: ${what}`)
}

/** Code 6 where a Kubernetes object owns a record already: another reconciler was first. */
export function ownedAlready(kind: string, managedBy: string): DomainError {
  return new DomainError(6, `${kind} already exists: ${managedBy} owns one`, { reason: 'OWNED_ALREADY' })
}

/** Code 10 for a stale etag. */
export function staleEtag(): DomainError {
  return new DomainError(10, 'the etag does not match: the resource changed since it was read', { reason: 'ETAG_MISMATCH' })
}

/** When a caller may try again after the store was full, in milliseconds. */
const storeFullRetryMs = 30_000

/** Code 2 for a change that was sent and not answered. Clients do not repeat it by themselves, as they do with code 14. */
export function outcomeUnknown(cause?: unknown): DomainError {
  return new DomainError(2, 'The store did not answer, and the change may still happen. Read the resource before you repeat it', {
    reason: 'OUTCOME_UNKNOWN',
    cause,
  })
}

/** What a store failure means to a caller; anything else is returned as it is. */
export function fromStore(error: unknown): unknown {
  if (!(error instanceof StoreError)) return error
  switch (error.kind) {
    case 'exhausted':
      // Not 14, which clients repeat at once (docs/spec/errors.md#retries): room comes when an operator, or trimming, has made some.
      return new DomainError(8, 'the store has no room for writes', { reason: 'STORE_FULL', cause: error, details: { retryAfterMs: storeFullRetryMs } })
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
      return new DomainError(14, 'the store can not be reached; try again', { cause: error, details: { retryAfterMs: 1_000 } })
  }
}
