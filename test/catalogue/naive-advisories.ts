import { create } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Order, SortKey } from '../../src/cache/lists/order.ts'
import { membersOf } from '../../src/catalogue/import/members.ts'
import { osv } from '../../src/catalogue/import/formats/osv.ts'
import type { AdvisoryFacet, AdvisoryFilter, AdvisoryQuery } from '../../src/cache/lists/advisory-source.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { AdvisorySchema, ReviewState, type Advisory, type AdvisoryEvent } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'

/** An advisory of the model. */
export interface NaiveAdvisory extends SortKey {
  readonly advisory: Advisory
  readonly group: Uid
}

/** The numbers of EventTypeFilter, by the member of an event that is set. */
const types: Readonly<Record<string, string>> = {
  detection: '1',
  truePositiveDetermination: '2',
  fixed: '3',
  falsePositiveDetermination: '4',
  analysisNotPlanned: '5',
  fixNotPlanned: '6',
  pendingUpstreamFix: '7',
  patched: '8',
}

const typeOf = (event: AdvisoryEvent): string => types[event.type.case ?? ''] ?? '0'

function latest(events: readonly AdvisoryEvent[]): string[] {
  const approved = events.filter(({ reviewState }) => reviewState === ReviewState.APPROVED)
  const newest = Math.max(...approved.map(({ createTime }) => (createTime === undefined ? 0 : timestampMs(createTime))))
  const last = approved.findLast(({ createTime }) => (createTime === undefined ? 0 : timestampMs(createTime)) === newest)
  return last === undefined ? [] : [typeOf(last)]
}

/** The values of each facet, read from the message. */
export const naiveValues: Readonly<Record<AdvisoryFacet, (advisory: Advisory) => readonly string[]>> = {
  advisoryId: ({ advisoryId }) => [advisoryId],
  legacyId: ({ legacyAdvisoryId = '' }) => [legacyAdvisoryId],
  artifactName: ({ artifactName }) => [artifactName],
  artifactType: ({ artifactType }) => [artifactType],
  artifactArchitecture: ({ artifactArchitecture }) => [artifactArchitecture],
  componentName: ({ componentName }) => [componentName],
  componentType: ({ componentType }) => [componentType],
  componentLocation: ({ componentLocation }) => [componentLocation],
  alias: ({ aliases }) => aliases,
  // OSV has no subpackages: each package is its own origin.
  origin: ({ artifactName }) => [artifactName],
  eventState: ({ events }) => events.map(({ reviewState }) => String(reviewState)),
  eventAuthor: ({ events }) => events.map(({ author }) => author),
  eventReviewer: ({ events }) => events.map(({ reviewer }) => reviewer),
  eventType: ({ events }) => events.map(typeOf),
  latestType: ({ events }) => latest(events),
}

/** The advisories of documents in OSV form, as the model keeps them. */
export function naiveAdvisories(documents: readonly unknown[], group: Uid): NaiveAdvisory[] {
  return documents.flatMap((document) =>
    [...osv.rowsOf(membersOf(document, 'the document'), { group: () => group, nowMs: 0, ecosystem: undefined, file: 'document.json' })].flatMap(
      ({ kind, row }) => {
        if (kind !== 'advisories') return []
        const { segment, advisory } = row
        const uid = trustedUid(`${group}/${segment}`)
        const [createMs = 0, updateMs = 0] = [advisory.createTime, advisory.updateTime].map((time) => (time === undefined ? 0 : timestampMs(time)))
        return [{ uid, name: '', createMs, updateMs, group, advisory: create(AdvisorySchema, { ...advisory, uid }) }]
      },
    ),
  )
}

function matches({ groups, uids, anyOf, noneOf, text }: AdvisoryFilter, { advisory, group, uid }: NaiveAdvisory): boolean {
  const has = ([facet, values]: readonly [AdvisoryFacet, readonly string[]]): boolean => naiveValues[facet](advisory).some((value) => values.includes(value))
  const texts = [advisory.artifactName, advisory.componentName, ...advisory.aliases]
  return (
    advisory.deleteTime === undefined &&
    groups.includes(group) &&
    (uids === undefined || uids.includes(uid)) &&
    anyOf.every(has) &&
    !noneOf.some(has) &&
    texts.some((one) => one.toLowerCase().includes(text.toLowerCase()))
  )
}

function isAfter(order: Order, advisory: NaiveAdvisory, after: SortKey | undefined): boolean {
  return after === undefined || order.compare(advisory, after) > 0
}

/** Answers a query by looking at every advisory. */
export function naivePage(
  all: readonly NaiveAdvisory[],
  { filter, order, after, skip, limit }: AdvisoryQuery,
): { readonly uids: readonly string[]; readonly total: number } {
  const found = all.filter((advisory) => matches(filter, advisory)).sort(order.compare)
  const uids = found.filter((advisory) => isAfter(order, advisory, after)).slice(skip, skip + limit)
  return { uids: uids.map(({ uid }) => uid), total: found.length }
}
