import { timestampMs } from '@bufbuild/protobuf/wkt'
import { type Advisory, type AdvisoryEvent, EventTypeFilter, ReviewState } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { nameForm, packagesOfEcosystem } from '../../base/versions/ecosystems.ts'
import { advisoryFacets, type AdvisoryFacet } from '../../cache/lists/advisory-source.ts'

/** The facets of the file: those of the API, and one by which packages of images find advisories. */
export type FactFacet = AdvisoryFacet | 'packageName'

const factFacets: readonly FactFacet[] = [...advisoryFacets, 'packageName']

/** The filter that finds each type of event. */
const eventTypes = {
  detection: EventTypeFilter.DETECTION,
  truePositiveDetermination: EventTypeFilter.TRUE_POSITIVE_DETERMINATION,
  fixed: EventTypeFilter.FIXED,
  falsePositiveDetermination: EventTypeFilter.FALSE_POSITIVE_DETERMINATION,
  analysisNotPlanned: EventTypeFilter.ANALYSIS_NOT_PLANNED,
  fixNotPlanned: EventTypeFilter.FIX_NOT_PLANNED,
  pendingUpstreamFix: EventTypeFilter.PENDING_UPSTREAM_FIX,
  patched: EventTypeFilter.PATCHED,
} as const satisfies Record<NonNullable<AdvisoryEvent['type']['case']>, EventTypeFilter>

function typeOf({ type }: AdvisoryEvent): EventTypeFilter {
  return type.case === undefined ? EventTypeFilter.UNSPECIFIED : eventTypes[type.case]
}

function timeOf({ createTime }: AdvisoryEvent): number {
  return createTime === undefined ? 0 : timestampMs(createTime)
}

/** Returns the newest approved event. Of events of one moment, the last in the list counts. */
function latestOf(events: readonly AdvisoryEvent[]): AdvisoryEvent | undefined {
  let latest: AdvisoryEvent | undefined
  for (const event of events) {
    if (event.reviewState === ReviewState.APPROVED && (latest === undefined || timeOf(event) >= timeOf(latest))) latest = event
  }
  return latest
}

/** Returns the type in the package URLs of the component. */
function packageTypeOf({ componentType, componentLocation }: Advisory): string {
  return packagesOfEcosystem(componentType)?.type ?? /^pkg:([^/]+)\//.exec(componentLocation)?.[1] ?? componentType
}

/** Returns the name by which packages of images find an advisory. */
export function packageNameOf(advisory: Advisory): string {
  return nameForm(packageTypeOf(advisory), advisory.componentName)
}

/** Returns the values of an advisory in one facet, empty ones included. `origin` is the package that the artifact is built from. */
const readers: Readonly<Record<FactFacet, (advisory: Advisory, origin: string) => readonly (string | number)[]>> = {
  advisoryId: ({ advisoryId }) => [advisoryId],
  legacyId: ({ legacyAdvisoryId = '' }) => [legacyAdvisoryId],
  artifactName: ({ artifactName }) => [artifactName],
  artifactType: ({ artifactType }) => [artifactType],
  artifactArchitecture: ({ artifactArchitecture }) => [artifactArchitecture],
  componentName: ({ componentName }) => [componentName],
  componentType: ({ componentType }) => [componentType],
  componentLocation: ({ componentLocation }) => [componentLocation],
  alias: ({ aliases }) => aliases,
  origin: (_, origin) => [origin],
  eventState: ({ events }) => events.map(({ reviewState }) => reviewState),
  eventAuthor: ({ events }) => events.map(({ author }) => author),
  eventReviewer: ({ events }) => events.map(({ reviewer }) => reviewer),
  eventType: ({ events }) => events.map(typeOf),
  latestType: ({ events }) => [latestOf(events)].filter((event) => event !== undefined).map(typeOf),
  packageName: (advisory) => [packageNameOf(advisory)],
}

/** Returns the terms by which an advisory is found, each once. Empty texts are no terms. */
export function termsOf(advisory: Advisory, origin: string): (readonly [facet: FactFacet, value: string])[] {
  const terms: (readonly [facet: FactFacet, value: string])[] = []
  for (const facet of factFacets) {
    const values = readers[facet](advisory, origin)
    // Most facets have one value.
    for (const value of values.length > 1 ? new Set(values) : values) if (value !== '') terms.push([facet, String(value)])
  }
  return terms
}

/** Returns `text` as `query` compares it: without regard to case. */
export function foldCase(text: string): string {
  return text.toLowerCase()
}

/** The texts that `query` searches, one on each line: none of them has a line break. */
export function searchTextOf({ artifactName, componentName, aliases }: Advisory): string {
  return foldCase([artifactName, componentName, ...aliases].join('\n'))
}
