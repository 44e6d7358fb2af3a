import { decide, visibilityOf, type EffectivePermissions } from '../../authz/effective-permissions.ts'
import { isSuspended } from '../../authz/access.ts'
import type { CapabilitySet } from '../../base/capability.ts'
import { isUid } from '../../base/uid.ts'
import { listRecords, type ListSource } from '../../cache/lists/list.ts'
import { sortKeyOf, uidOrder } from '../../cache/lists/order.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { Services } from '../../engine/services.ts'
import type { RegistryExchange } from './exchange.ts'
import type { OciHost } from './oci-host.ts'
import { nextLink, parsePageLimit } from './list-routes.ts'
import { findRepository, pathOf } from '../records/repo-paths.ts'
import { RegistryError } from '../registry-error.ts'
import { pullCapabilities } from '../tokens/rights.ts'

/** Limits of one page of the catalogue. */
interface CatalogPage {
  readonly permissions: EffectivePermissions
  /** Capabilities that the caller must hold at every listed repo. */
  readonly needed: CapabilitySet
  /** Lists only repos after this uid. */
  readonly after: string | undefined
  readonly n: number
}

const anywhere = { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: [] }

/**
 * Returns repos where the caller holds the capabilities, in uid order. Leaves out repos of a suspended organisation, except for operators.
 * `next` is the uid after which the next page begins. A page with `next` may have fewer than `n` repos.
 */
async function pullableRepos(
  { cache }: Services,
  { permissions, needed, after, n }: CatalogPage,
): Promise<{ records: readonly CachedRecord[]; next: string | undefined }> {
  const place = after === undefined ? undefined : sortKeyOf(uidOrder, [after])
  const current = (): ListSource => ({
    tables: cache.tables,
    query: {
      kind: 'Repo',
      uidp: anywhere,
      filters: [],
      visibility: visibilityOf(permissions, needed),
      order: uidOrder,
      ...(place === undefined ? {} : { after: place }),
      skip: 0,
      limit: n + 1,
    },
  })
  const found = await listRecords(current, ({ records }) => records)
  const { tables } = cache
  const page = found.slice(0, n)
  const isOpen = ({ uid }: CachedRecord): boolean => decide(permissions, uid, needed).kind === 'allowed' && (permissions.operator || !isSuspended(tables, uid))
  return { records: page.filter(isOpen), next: found.length > n ? page.at(-1)?.uid : undefined }
}

/**
 * Handles GET of `_catalog`: a page of the repositories that the caller may pull by role bindings, as paths. The order is stable, but not
 * alphabetical. `last` must be an existing repository. The URL in `Link` continues after a uid, so it also works if the last repository
 * was deleted.
 */
export async function listCatalog(host: OciHost, exchange: RegistryExchange): Promise<void> {
  if (!host.catalog) throw new RegistryError('UNSUPPORTED', 'registry.catalog is off: list repos through the platform API', { headers: { Allow: '' } })
  const caller = await host.gate.catalog(exchange)
  const n = parsePageLimit(exchange.query)
  const after = placeAfter(host, exchange)
  const { tables } = host.services.cache
  const { records, next } =
    n === 0 ? { records: [], next: undefined } : await pullableRepos(host.services, { permissions: caller.permissions(), needed: pullCapabilities, after, n })
  const repositories = records.flatMap(({ uid }) => pathOf(tables, uid) ?? [])
  const body = `${JSON.stringify({ repositories })}\n`
  const link = next === undefined ? [] : ['Link', nextLink('/v2/_catalog', { n: String(n), after: next })]
  exchange.send(200, ['Content-Type', 'application/json', 'Content-Length', Buffer.byteLength(body), 'Cache-Control', 'no-store', ...link], body)
}

/** Returns the uid after which the page begins. */
function placeAfter({ services }: OciHost, { query }: RegistryExchange): string | undefined {
  const after = query.get('after')
  if (after !== null) {
    if (isUid(after)) return after
    throw new RegistryError('UNSUPPORTED', 'after must be a value that a Link named', { status: 400 })
  }
  const last = query.get('last')
  if (last === null || last === '') return undefined
  const target = findRepository(services.cache.tables, last)
  if (target?.kind === 'repo') return target.uid
  throw new RegistryError('NAME_UNKNOWN', 'last must be an existing repository: follow the Link instead')
}
