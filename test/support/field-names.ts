import { expect } from 'vitest'

/** The one JSON name of the schema that keeps its underscore. */
const irregular = 'sync_config'

/**
 * A field of an error in the schema's names, whichever transport answered: `claimMatch.issuer` over REST is `claim_match.issuer`. Over REST a name that its caller can't
 * have written fails the test. Keys of maps, which stand in quotes, stay as they are.
 */
export function schemaName(field: string, transport: 'rest' | 'grpc'): string {
  if (transport === 'grpc') return field
  return field.replaceAll(/"(?:[^"\\]|\\.)*"|[^"]+/g, (part) => {
    if (part.startsWith('"')) return part
    expect(part.replaceAll(irregular, '')).not.toContain('_')
    return part.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  })
}
