import { create } from '@bufbuild/protobuf'
import { VulnerabilityMetadataSchema, type VulnerabilityMetadata } from '../../gen/taproot/advisory/v2/advisory_pb.ts'

/** The forms of documents that say something about vulnerabilities. */
export type SourceForm = 'osv' | 'nvd' | 'epss' | 'kev'

/** A field that sources fill. */
type MergedField = Exclude<keyof VulnerabilityMetadata, '$typeName' | '$unknown' | 'id'>

/** What one source says. */
export interface VulnerabilityPart {
  readonly form: SourceForm
  readonly metadata: VulnerabilityMetadata
}

/** The sources of each field, best first. The first one that has the field wins (docs/spec/vulnerability-metadata.md#merged-sources). */
const precedence: Readonly<Record<MergedField, readonly SourceForm[]>> = {
  summary: ['osv', 'kev'],
  details: ['nvd', 'osv', 'kev'],
  references: ['nvd', 'osv'],
  severities: ['nvd', 'osv'],
  epssScore: ['epss'],
  epssPercentile: ['epss'],
  knownExploitedTime: ['kev'],
  knownRansomware: ['kev'],
}

const fields = Object.keys(precedence) as readonly MergedField[] // of the table

function isSet(value: VulnerabilityMetadata[MergedField]): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== '' && value !== false
}

/** Returns what all sources together say about a vulnerability. The parts of one form are in the order of their source. */
export function mergedVulnerability(id: string, parts: readonly VulnerabilityPart[]): VulnerabilityMetadata {
  const merged = fields.map((field) => {
    const ranked = precedence[field].flatMap((form) => parts.filter((part) => part.form === form))
    return [field, ranked.map(({ metadata }) => metadata[field]).find(isSet)] as const
  })
  return create(VulnerabilityMetadataSchema, { id, ...Object.fromEntries(merged.filter(([, value]) => value !== undefined)) })
}
