import { create, fromBinary } from '@bufbuild/protobuf'
import type { DocumentExport, OsvPage, OsvPageQuery } from '../../cache/lists/advisory-source.ts'
import type { PackageAdvisory } from '../../cache/lists/advisory-source.ts'
import type { AdvisoriesOfId } from '../advisories/advisory-reader.ts'
import type { OsvFacts } from '../advisories/osv-facts.ts'
import { AdvisorySchema, SeveritySchema } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { csafOf } from './csaf-export.ts'
import type { ExportFacts, StoredAdvisory } from './export-facts.ts'
import { openvexOf } from './openvex-export.ts'
import { osvDocumentsOf, osvOf } from './osv-export.ts'
import { zipEntry } from './zip-records.ts'

const formats = {
  openvex: openvexOf,
  csaf: csafOf,
  osv: (_: string, all: readonly StoredAdvisory[], facts: ExportFacts) => osvDocumentsOf(all, facts),
} as const

function opened({ body, osv }: PackageAdvisory): StoredAdvisory {
  // Only AdvisoryBuilder writes these facts.
  return { advisory: fromBinary(AdvisorySchema, body), facts: osv === undefined ? {} : (JSON.parse(osv) as OsvFacts) }
}

/** The number of names by which the scores of a vulnerability are looked for. */
const maxNames = 20

/** Returns the names of each vulnerability whose advisories have no scores: its id, then the aliases of one of them. */
export function unscoredNames(stored: readonly PackageAdvisory[]): (readonly string[])[] {
  const unscored = stored.map(({ body }) => fromBinary(AdvisorySchema, body)).filter(({ severities }) => severities.length === 0)
  return [...new Map(unscored.map(({ advisoryId, aliases }) => [advisoryId, [advisoryId, ...aliases].slice(0, maxNames)])).values()]
}

/** Returns the document of one origin package. The advisories are in a stable order. */
export function exportDocument(stored: readonly PackageAdvisory[], { origin, format, scores, ...facts }: DocumentExport, builtMs: number): Uint8Array {
  const all = stored.map(opened)
  for (const { advisory } of all) {
    const known = advisory.severities.length === 0 ? scores.get(advisory.advisoryId) : undefined
    if (known !== undefined) advisory.severities = known.map((score) => create(SeveritySchema, score))
  }
  return Buffer.from(JSON.stringify(formats[format](origin, all, { ...facts, builtMs })))
}

/** Returns a part of a zip with the OSV documents of these ids. */
export function osvPage(found: readonly AdvisoriesOfId[], { offset }: OsvPageQuery, builtMs: number): Pick<OsvPage, 'bytes' | 'records' | 'count'> {
  const bytes: Uint8Array[] = []
  const records: Uint8Array[] = []
  let at = offset
  for (const { id, advisories } of found) {
    const document = osvOf(id, advisories.map(opened), { builtMs })
    if (document === undefined) continue
    // An id may have any characters. In the name of a file, none of them leads to another folder.
    const entry = zipEntry(`${encodeURIComponent(id)}.json`, JSON.stringify(document), at)
    bytes.push(entry.bytes)
    records.push(entry.record)
    at += entry.bytes.length
  }
  return { bytes: Buffer.concat(bytes), records: Buffer.concat(records), count: records.length }
}
