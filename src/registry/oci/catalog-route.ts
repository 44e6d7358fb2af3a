import { isUid } from '../../base/uid.ts'
import { findRepository, pathOf } from '../records/repo-paths.ts'
import { pullableRepos } from '../records/catalog.ts'
import { RegistryError } from '../registry-error.ts'
import { pullCapabilities } from '../tokens/rights.ts'
import type { Exchange } from './exchange.ts'
import type { OciHost } from './oci-host.ts'
import { nextLink, parsePageLimit } from './paging.ts'

/**
 * GET of `_catalog`: the repositories that the caller may pull by role bindings, by path, a page at a time. The order is stable and is not that of the names. `last` is a
 * repository that is there; a `Link` goes on by uid, so that it works also where the last repository was deleted.
 */
export async function listCatalog(host: OciHost, exchange: Exchange): Promise<void> {
  if (!host.catalog)
    throw new RegistryError('UNSUPPORTED', 'repositories are listed by the platform API: here registry.catalog is off', { headers: { Allow: '' } })
  const caller = await host.gate.catalog(exchange)
  const n = parsePageLimit(exchange.query)
  const after = placeAfter(host, exchange)
  const { snapshot } = host.services.replica
  const { rows, next } =
    n === 0 ? { rows: [], next: undefined } : await pullableRepos(host.services, { reach: caller.reach(), needed: pullCapabilities, after, n })
  const repositories = rows.flatMap(({ uid }) => pathOf(snapshot, uid) ?? [])
  const body = `${JSON.stringify({ repositories })}\n`
  const link = next === undefined ? [] : ['Link', nextLink('/v2/_catalog', { n: String(n), after: next })]
  exchange.send(200, ['Content-Type', 'application/json', 'Content-Length', Buffer.byteLength(body), 'Cache-Control', 'no-store', ...link], body)
}

/** The uid that the page begins after. */
function placeAfter({ services }: OciHost, { query }: Exchange): string | undefined {
  const after = query.get('after')
  if (after !== null) {
    if (isUid(after)) return after
    throw new RegistryError('UNSUPPORTED', 'after must be a value that a Link named', { status: 400 })
  }
  const last = query.get('last')
  if (last === null || last === '') return undefined
  const target = findRepository(services.replica.snapshot, last)
  if (target?.kind === 'repo') return target.uid
  throw new RegistryError('NAME_UNKNOWN', 'last must be a repository that is there: follow the Link instead')
}
