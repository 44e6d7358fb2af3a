import { create, fromBinary, type MessageInitShape } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../base/uid.ts'
import { CooperativeTask } from '../../cache/cooperative-task.ts'
import type { OriginAdvisory } from '../../cache/lists/advisory-source.ts'
import { turnOf, type Handler } from '../../engine/services.ts'
import {
  DocumentAdvisorySchema,
  DocumentEventSchema,
  DocumentSchema,
  ListDocumentsResponseSchema,
  type DetectionSchema,
  type Document,
  type DocumentAdvisory,
  type DocumentEvent,
  type ListDocumentsRequest,
} from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import {
  AdvisorySchema,
  ReviewState,
  type Advisory,
  type AdvisoryEvent,
  type AdvisoryEvent_Detection,
} from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { ownByOrigin } from './own-advisories.ts'
import { answerTooLarge, documentedAdvisories } from './visible-advisories.ts'

/** The bounds of one answer. Clients of gRPC accept 4 MiB. */
const maxAdvisories = 1_000
const maxBytes = 2 * 1024 * 1024

type EventData = NonNullable<MessageInitShape<typeof DocumentEventSchema>['data']>

/** Returns how documents show who found the vulnerability. */
function detectionOf({ type }: AdvisoryEvent_Detection): MessageInitShape<typeof DetectionSchema> {
  if (type.case === 'manual') return { type: { case: type.case, value: {} } }
  if (type.case === 'nvdapi') return { type: { case: type.case, value: { cpeSearched: type.value.cpeSearched, cpeFound: type.value.cpeFound } } }
  if (type.case === undefined) return {}
  const { scanner, subpackage, componentId, component, componentVersion, componentType, componentLocation, artifactVersion } = type.value
  const { scannerVersion, grypeDbBuilt, grypeDbChecksum } = type.value
  const named = { scanner, componentId, componentVersion, componentType, componentLocation, artifactVersion, scannerVersion, grypeDbBuilt, grypeDbChecksum }
  return { type: { case: type.case, value: { ...named, subpackageName: subpackage, componentName: component } } }
}

/** Returns what a document shows of an event. Undefined for `patched`, which documents do not have. */
function dataOf({ type }: AdvisoryEvent): EventData | undefined {
  switch (type.case) {
    case 'detection':
      return { case: type.case, value: detectionOf(type.value) }
    case 'fixed': {
      const { fixedVersion, scannerVersion, grypeDbBuilt, grypeDbChecksum } = type.value
      return { case: type.case, value: { fixedVersion, scannerVersion, grypeDbBuilt, grypeDbChecksum } }
    }
    case 'falsePositiveDetermination':
      return { case: type.case, value: { type: type.value.type, note: type.value.note } }
    case 'truePositiveDetermination':
    case 'analysisNotPlanned':
    case 'fixNotPlanned':
    case 'pendingUpstreamFix':
      return { case: type.case, value: { note: type.value.note } }
    default:
      return undefined
  }
}

function timeOf({ timestamp }: DocumentEvent): number {
  return timestamp === undefined ? 0 : timestampMs(timestamp)
}

/** Returns the approved events, in time order. Events under review are for the group's own members. */
function eventsOf({ events }: Advisory): DocumentEvent[] {
  return events
    .filter(({ reviewState }) => reviewState === ReviewState.APPROVED)
    .flatMap((event) => {
      const data = dataOf(event)
      return data === undefined ? [] : [create(DocumentEventSchema, { ...(event.createTime === undefined ? {} : { timestamp: event.createTime }), data })]
    })
    .sort((a, b) => timeOf(a) - timeOf(b))
}

/** An advisory as a document shows it, with what orders it. */
interface Entry {
  readonly origin: string
  readonly uid: Uid
  readonly advisory: DocumentAdvisory
}

/** Returns the entry of an advisory; undefined if it has no event that documents show. */
function entryOf({ origin, uid, body }: OriginAdvisory): Entry | undefined {
  const advisory = fromBinary(AdvisorySchema, body)
  const events = eventsOf(advisory)
  if (events.length === 0) return undefined
  const { advisoryId: id, aliases, artifactType: packageNamespace, artifactName } = advisory
  return { origin: origin === '' ? artifactName : origin, uid, advisory: create(DocumentAdvisorySchema, { id, aliases, packageNamespace, events }) }
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** Returns one document for each origin package, in order. */
async function documentsOf(found: readonly OriginAdvisory[]): Promise<Document[]> {
  const task = new CooperativeTask()
  const entries: Entry[] = []
  for (const one of found) {
    const entry = entryOf(one)
    if (entry !== undefined) entries.push(entry)
    if (task.shouldYield) await task.pause()
  }
  entries.sort((a, b) => compareText(a.origin, b.origin) || compareText(a.advisory.id, b.advisory.id) || compareText(a.uid, b.uid))
  return [...Map.groupBy(entries, ({ origin }) => origin)].map(([id, ofOrigin]) =>
    create(DocumentSchema, { id, advisories: ofOrigin.map(({ advisory }) => advisory) }),
  )
}

const tooLarge = `the answer has more than ${maxAdvisories} advisories or ${maxBytes / 1024 / 1024} MiB: name an origin package with id, or vulnerabilities with cves`

/** Answers ListDocuments: the advisories that the caller may see, grouped by origin package (docs/spec/advisories.md#advisory-documents). */
export const listDocuments: Handler = async (services, context, message) => {
  const { id, cves } = message as ListDocumentsRequest // the method's input
  const { sources, groups, own } = await documentedAdvisories(services, context)
  const query = { groups, origin: id === '' ? undefined : id, ids: cves.length === 0 ? undefined : [...new Set(cves)], maxAdvisories, maxBytes }
  const found = groups.length === 0 ? [] : await Promise.all(sources.map((source) => source.byOrigin(query, turnOf(context))))
  const all = [...found.flat(), ...(await ownByOrigin(own, query))]
  const bytes = all.reduce((sum, one) => sum + (one?.body.length ?? 0), 0)
  if (found.includes(undefined) || all.length > maxAdvisories || bytes > maxBytes) throw answerTooLarge(tooLarge)
  const documents = await documentsOf(all.filter((one) => one !== undefined))
  return { message: create(ListDocumentsResponseSchema, { documents }) }
}
