import { decide, visibilityOf, type Reach } from '../../authz/effective-permissions.ts'
import { isSuspended } from '../../authz/suspended.ts'
import type { CapabilitySet } from '../../base/capability.ts'
import { listRows, type ListSource } from '../../cache/lists/list.ts'
import { sortKeyOf, uidOrder } from '../../cache/lists/order.ts'
import type { Row } from '../../cache/records/cached-record.ts'
import type { Services } from '../../engine/services.ts'

/** What a page of a catalogue is. */
export interface CatalogPage {
  readonly reach: Reach
  /** Held at every repo that is listed. */
  readonly needed: CapabilitySet
  /** Only repos after this uid. */
  readonly after: string | undefined
  readonly n: number
}

const anywhere = { descendantsOf: '', childrenOf: '', ancestorsOf: '', inRoot: false, ids: [] }

/** Repos where the caller holds the capabilities, in uid order; none of a suspended organisation, but for operators. `next` is what the next page begins after; a page that has one may be shorter than `n`. */
export async function pullableRepos(
  { replica }: Services,
  { reach, needed, after, n }: CatalogPage,
): Promise<{ rows: readonly Row[]; next: string | undefined }> {
  const place = after === undefined ? undefined : sortKeyOf(uidOrder, [after])
  const current = (): ListSource => ({
    snapshot: replica.snapshot,
    query: {
      kind: 'Repo',
      uidp: anywhere,
      filters: [],
      visibility: visibilityOf(reach, needed),
      order: uidOrder,
      ...(place === undefined ? {} : { after: place }),
      skip: 0,
      limit: n + 1,
    },
  })
  const found = await listRows(current, ({ rows }) => rows)
  const { snapshot } = replica
  const page = found.slice(0, n)
  const isOpen = ({ uid }: Row): boolean => decide(reach, uid, needed).kind === 'allowed' && (reach.operator || !isSuspended(snapshot, uid))
  return { rows: page.filter(isOpen), next: found.length > n ? page.at(-1)?.uid : undefined }
}
