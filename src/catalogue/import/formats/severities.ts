import { create } from '@bufbuild/protobuf'
import { SeveritySchema, type Severity, type Severity_Type } from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { optionalNameAt, RefusedDocument, type Members } from '../members.ts'

/** Returns a CVSS score: its vector, or its number without one. Undefined if it has neither. Throws RefusedDocument. */
export function severityOf(type: Severity_Type, members: Members, keys: { readonly vector: string; readonly number: string }): Severity | undefined {
  const vector = optionalNameAt(members, keys.vector, keys.vector)
  const number = members[keys.number] ?? ''
  if (number !== '' && typeof number !== 'number') throw new RefusedDocument(`${keys.number} is no number`)
  const score = vector || String(number)
  return score === '' ? undefined : create(SeveritySchema, { type, score })
}
