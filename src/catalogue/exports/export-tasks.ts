import { fromBinary } from '@bufbuild/protobuf'
import type { DocumentExport, OsvPage, OsvPageQuery } from '../../cache/lists/advisory-source.ts'
import type { AdvisoriesOfId } from '../advisories/advisory-reader.ts'
import { AdvisorySchema, type Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { csafOf } from './csaf-export.ts'
import type { ExportFacts } from './export-facts.ts'
import { openvexOf } from './openvex-export.ts'
import { osvDocumentsOf, osvOf } from './osv-export.ts'
import { zipEntry } from './zip-records.ts'

const formats = {
  openvex: openvexOf,
  csaf: csafOf,
  osv: (_: string, advisories: readonly Advisory[], facts: ExportFacts) => osvDocumentsOf(advisories, facts),
} as const

/** Returns the document of one origin package. `bodies` are Advisory messages as protobuf bytes, in a stable order. */
export function exportDocument(bodies: readonly Uint8Array[], { origin, format, publisher, baseUrl }: DocumentExport, builtMs: number): Uint8Array {
  const advisories = bodies.map((body) => fromBinary(AdvisorySchema, body))
  return Buffer.from(JSON.stringify(formats[format](origin, advisories, { publisher, baseUrl, builtMs })))
}

/** Returns a part of a zip with the OSV documents of these ids. */
export function osvPage(found: readonly AdvisoriesOfId[], { offset }: OsvPageQuery, builtMs: number): Pick<OsvPage, 'bytes' | 'records' | 'count'> {
  const bytes: Uint8Array[] = []
  const records: Uint8Array[] = []
  let at = offset
  for (const { id, bodies } of found) {
    const document = osvOf(
      id,
      bodies.map((body) => fromBinary(AdvisorySchema, body)),
      { builtMs },
    )
    if (document === undefined) continue
    // An id may have any characters. In the name of a file, none of them leads to another folder.
    const entry = zipEntry(`${encodeURIComponent(id)}.json`, JSON.stringify(document), at)
    bytes.push(entry.bytes)
    records.push(entry.record)
    at += entry.bytes.length
  }
  return { bytes: Buffer.concat(bytes), records: Buffer.concat(records), count: records.length }
}
