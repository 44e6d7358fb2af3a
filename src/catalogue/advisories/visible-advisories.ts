import { setOf } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { isBelow, isWithin, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { AdvisorySource } from '../../cache/lists/advisory-source.ts'
import { isVisible, type UidFilter, type Visibility } from '../../cache/lists/places.ts'
import { prepared, uidFilterOf, visibility } from '../../engine/read.ts'
import type { Context, Services } from '../../engine/services.ts'
import { publicRoot } from '../../registry/index.ts'
import { ownAdvisories } from './own-advisories.ts'

/** What a caller may read, as of one moment: ask the sources for these groups, also if the query then waits for its turn. */
export interface VisibleAdvisories {
  readonly sources: readonly AdvisorySource[]
  /** The groups with advisories that the caller may see, in uid order. A deleted group is not one of them, whatever the catalogue has. */
  readonly groups: readonly Uid[]
  /** The hand-made advisories that the caller may see. They are in no source. */
  readonly own: readonly CachedRecord[]
}

const needed = setOf(['advisories.list'])
const everything = uidFilterOf(undefined)

/** Returns the sources of advisories as of now. Throws code 14 while they are being loaded. */
export function advisorySources(services: Pick<Services, 'catalogue'>): readonly AdvisorySource[] {
  const catalogue = services.catalogue('advisories')
  return catalogue === undefined ? [] : [catalogue]
}

/** True if advisories of a group may match the filter of places. */
function isNamed({ descendantsOf, childrenOf, ancestorsOf, inRoot }: UidFilter, group: Uid): boolean {
  if (inRoot) return false
  if (descendantsOf !== '' && !isWithin(group, descendantsOf)) return false
  if (childrenOf !== '' && group !== childrenOf) return false
  return ancestorsOf === '' || isBelow(ancestorsOf, group)
}

/** The places where hand-made advisories may be seen. */
type Places = Pick<Visibility, 'everywhere' | 'groups'>

function among({ catalogue, cache: { tables } }: Services, places: Places, isShown: (group: Uid) => boolean): VisibleAdvisories {
  const sources = advisorySources({ catalogue })
  const groups = new Set(sources.flatMap((source) => source.groups()))
  const visible = [...groups].filter((group) => isShown(group) && tables.get('Group', group) !== undefined).sort()
  return { sources, groups: visible, own: ownAdvisories(tables, places, isShown) }
}

function seenBy(services: Services, context: Context, uidp: UidFilter): Visibility {
  return visibility('Advisory', { tables: services.cache.tables, context, uidp }, needed)
}

function isSeen(seen: Visibility, group: Uid): boolean {
  return isVisible(seen, { seenAtUid: true }, group)
}

/** Resolves with the advisories that lists show: those of groups where the caller holds `advisories.list`. Rejects with code 14 while they are being loaded. */
export async function listedAdvisories(services: Services, context: Context, uidp: UidFilter): Promise<VisibleAdvisories> {
  await prepared(context, needed)
  const seen = seenBy(services, context, uidp)
  return among(services, seen, (group) => isNamed(uidp, group) && isSeen(seen, group))
}

/**
 * Resolves with the advisories that documents show: those of the public organisation, and those that lists show to the caller, if there is one
 * (docs/spec/advisories.md#advisory-documents). Rejects with code 14 while they are being loaded.
 */
export async function documentedAdvisories(services: Services, context: Context): Promise<VisibleAdvisories> {
  if (context.caller !== undefined) await prepared(context, needed)
  const seen = context.caller === undefined ? undefined : seenBy(services, context, everything)
  const open = publicRoot(services.cache.tables, services.settings.registry?.publicOrganization)
  const opened = open === undefined ? [] : [trustedUid(open)]
  const groups = [...(seen?.groups ?? []).filter((group) => rootOf(group) !== open), ...opened]
  return among(services, { everywhere: seen?.everywhere === true, groups }, (group) => rootOf(group) === open || (seen !== undefined && isSeen(seen, group)))
}

/** Returns code 9 for an answer that is not made because of its size. */
export function answerTooLarge(description: string): DomainError {
  return DomainError.precondition([{ type: 'ANSWER_TOO_LARGE', description }], { reason: 'ANSWER_TOO_LARGE' })
}
