import { create, toBinary, type MessageInitShape } from '@bufbuild/protobuf'
import { ReferenceSchema, VulnerabilityMetadataSchema, type Reference, type Reference_Type } from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import type { SourceForm } from '../vulnerabilities/merge.ts'
import type { NewVulnerability } from '../vulnerabilities/vulnerability-builder.ts'
import { checkedName, RefusedDocument, textAt, type Members } from './members.ts'

const maxSummaryLength = 4_096
const maxDetailsLength = 256 * 1024
const maxLinkLength = 2_048
/** The largest part, in bytes. Each field of a vulnerability comes from one part, so one vulnerability fits into a page. */
const maxPartBytes = 1024 * 1024

/** Returns a summary. Throws RefusedDocument. */
export function summaryOf(members: Members, key: string): string {
  return textAt(members, key, { where: key, max: maxSummaryLength })
}

/** Returns details. Throws RefusedDocument. */
export function detailsOf(members: Members, key: string): string {
  return textAt(members, key, { where: key, max: maxDetailsLength })
}

/** Returns the links to pages, each once. Links of other kinds, such as `javascript:`, are left out. Throws RefusedDocument. */
export function referencesOf(links: readonly { readonly url: unknown; readonly type: Reference_Type }[]): Reference[] {
  const found = new Map<string, Reference>()
  for (const { url, type } of links) {
    if (typeof url !== 'string') throw new RefusedDocument('references has an item without a url')
    if (/^https?:\/\//i.test(url) && !found.has(url)) found.set(url, create(ReferenceSchema, { url: checkedName(url, 'references.url', maxLinkLength), type }))
  }
  return [...found.values()]
}

/** Returns what a source says about a vulnerability, as a row. Throws RefusedDocument if that is too much. */
export function vulnerabilityPart(
  from: { readonly form: SourceForm; readonly division: string },
  fields: MessageInitShape<typeof VulnerabilityMetadataSchema>,
): NewVulnerability {
  const metadata = create(VulnerabilityMetadataSchema, fields)
  const body = toBinary(VulnerabilityMetadataSchema, metadata)
  if (body.length > maxPartBytes) throw new RefusedDocument(`the description of the vulnerability is larger than ${maxPartBytes / 1024 / 1024} MiB`)
  return { ...from, metadata, body }
}
