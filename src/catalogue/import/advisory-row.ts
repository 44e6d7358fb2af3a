import { toBinary } from '@bufbuild/protobuf'
import { AdvisorySchema, type Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { NewAdvisory } from '../advisories/advisory-builder.ts'
import type { ImportRow } from '../catalogue-kinds.ts'
import { RefusedDocument } from './members.ts'

/** The largest advisory, in bytes. Lists answer whole advisories, and clients of gRPC accept 4 MiB. */
const maxAdvisoryBytes = 1024 * 1024
/** An advisory with fewer items cannot be too large, since each text has a bound. Encoding all of them would take time. */
const fewItems = 10

/** The most characters of all advisories of one document: a few long texts about many products must not make a catalogue of any size. */
const maxCharacters = 128 * 1024 * 1024

/** Throws RefusedDocument if the advisories of a document have more characters than one document may make. */
export function assertFewCharacters(characters: number): void {
  if (characters > maxCharacters) throw new RefusedDocument(`the advisories of the document have more than ${maxCharacters / 1024 / 1024} Mi characters`)
}

function itemsOf({ aliases, events, severities }: Advisory): number {
  return aliases.length + events.length + severities.length
}

/** Returns an advisory as a row. Throws RefusedDocument if it is so large that answers could not contain it. */
export function advisoryRow(row: NewAdvisory): ImportRow {
  const { advisory } = row
  if (itemsOf(advisory) > fewItems && toBinary(AdvisorySchema, advisory).length > maxAdvisoryBytes)
    throw new RefusedDocument(`the advisory ${advisory.advisoryId} about ${advisory.componentName} is larger than ${maxAdvisoryBytes / 1024 / 1024} MiB`)
  return { kind: 'advisories', row }
}
