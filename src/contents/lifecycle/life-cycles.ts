import type { TaskTurn } from '../../base/task-thread.ts'
import { hasCome, type FoundCycle, type LifecycleSource } from '../../cache/lists/lifecycle-source.ts'
import type { Services } from '../../engine/services.ts'
import { EolTag_GraceStatus as Grace, EolTag_TagStatus as Status, type EolTag } from '../../gen/taproot/registry/v2/eol_tags_pb.ts'
import { tagProducts, type ProductTag, type TagProduct } from './tag-products.ts'

/** The statuses of a tag. */
type EolStatuses = Pick<EolTag, 'tagStatus' | 'graceStatus'>

/** Returns the statuses at a day, such as `2026-01-31`. What is not known is never active (docs/spec/registry.md#life-cycle-of-tags). */
export function eolStatuses(cycle: Pick<FoundCycle, 'lifeEnd' | 'extendedEnd'> | undefined, today: string): EolStatuses {
  const [ended, graceEnded] = [hasCome(cycle?.lifeEnd, today), hasCome(cycle?.extendedEnd, today)]
  if (ended === undefined) return { tagStatus: Status.TAG_UNKNOWN, graceStatus: Grace.GRACE_NOT_ELIGIBLE }
  if (!ended) return { tagStatus: Status.TAG_ACTIVE, graceStatus: graceEnded === false ? Grace.GRACE_ELIGIBLE : Grace.GRACE_NOT_ELIGIBLE }
  if (graceEnded === false) return { tagStatus: Status.TAG_IN_GRACE, graceStatus: Grace.GRACE_ACTIVE }
  return { tagStatus: Status.TAG_INACTIVE, graceStatus: graceEnded === true ? Grace.GRACE_EXPIRED : Grace.GRACE_NOT_ELIGIBLE }
}

/** A product of a tag, and its cycle. */
export interface ProductCycle {
  readonly product: TagProduct
  readonly cycle: FoundCycle
}

/** What is known of the life cycle of a tag. */
export interface TagLifeCycle {
  /** The best product that the catalogue knows, unless it does not know the version. */
  readonly found: ProductCycle | undefined
  /** True if an SBOM that is not known yet may name a better product. */
  readonly mayChange: boolean
  /** True if the contents of its image are known. */
  readonly isRead: boolean
}

/** Resolves with the life cycle of each tag, in the order of the tags. Rejects as `tagProducts` and `cyclesOf` do. */
export async function tagLifeCycles(
  services: Services,
  { source, tags }: { readonly source: LifecycleSource; readonly tags: readonly ProductTag[] },
  turn: TaskTurn,
): Promise<readonly TagLifeCycle[]> {
  const products = await tagProducts(services, tags, turn)
  const all = products.flatMap((known) => known.products)
  const cycles = all.length === 0 ? [] : await source.cyclesOf(all, turn)
  const cycleOf = new Map(all.map((product, at) => [product, cycles[at]]))
  return products.map(({ products: some, isImage, isRead }) => {
    const product = some.find((one) => cycleOf.get(one) !== undefined)
    const cycle = product && cycleOf.get(product)
    const found = product === undefined || cycle === undefined || cycle === 'unknown version' ? undefined : { product, cycle }
    return { found, mayChange: isImage && (product?.isBase ?? true), isRead }
  })
}

/** Returns the day of a time in milliseconds since 1970, in UTC, e.g. `2026-01-31`. */
export function dayText(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10)
}
