import { isSuspended } from '../authz/access.ts'
import { visibilityOf } from '../authz/effective-permissions.ts'
import { setOf } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import { prepared } from '../engine/read.ts'
import { callerOf, type Context, type Services } from '../engine/services.ts'

/**
 * Checks that the caller holds the method's capabilities in some group whose organisation is not suspended: all organisations share the catalogue
 * (docs/spec/libraries.md#library-rights). Throws code 7.
 */
export async function assertCatalogueReader(services: Services, context: Context): Promise<void> {
  const needed = setOf(context.method.capabilities)
  await prepared(context, needed)
  const { everywhere, groups } = visibilityOf(callerOf(context).permissions(), needed)
  if (everywhere || groups.some((group) => !isSuspended(services.cache.tables, group))) return
  throw DomainError.denied(context.method.capabilities, '')
}
