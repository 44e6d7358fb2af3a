import { timestampDate, type Timestamp } from '@bufbuild/protobuf/wkt'
import { formatOf } from '../../../src/catalogue/import/formats/formats.ts'
import type { Advisory } from '../../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { testGroup } from '../documents.ts'

/** Returns the advisories of a document, as an import makes them. Throws RefusedDocument. */
export function advisoriesOf(document: unknown): Advisory[] {
  const { format, document: members } = formatOf(document)
  const rows = [...format.rowsOf(members, { group: () => testGroup, nowMs: Date.parse('2026-02-01T00:00:00Z'), ecosystem: undefined, file: 'document.json' })]
  return rows.flatMap((row) => (row.kind === 'advisories' ? [row.row.advisory] : []))
}

const dayOf = (time: Timestamp | undefined): string => (time === undefined ? 'no time' : timestampDate(time).toISOString().replace('.000Z', 'Z'))

/** One line for each event: `time: finding`, with the members that have a value. */
export function eventsOf({ events }: Advisory): string[] {
  return events.map(({ createTime, type }) => {
    const { $typeName: _, ...said } = { $typeName: '', ...type.value }
    const text = JSON.stringify(said, (key, value: unknown) => (key === '$typeName' || value === '' || value === 0 ? undefined : value))
    return `${dayOf(createTime)}: ${type.case ?? 'nothing'} ${text}`
  })
}

/** What each advisory is about: `id: artifact (type, architecture) / component (type, location)`. */
export function pairOf({ advisoryId, artifactName, artifactType, artifactArchitecture, componentName, componentType, componentLocation }: Advisory): string {
  return `${advisoryId}: ${artifactName} (${artifactType}, ${artifactArchitecture}) / ${componentName} (${componentType}, ${componentLocation})`
}
