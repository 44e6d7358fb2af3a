import { msOf, statusesOf, timeText, type ExportFacts, type StoredAdvisory, type VexStatus } from './export-facts.ts'
import { productOfAdvisory, type ExportedProduct } from './export-products.ts'

/** The members of a statement that follow from its status. */
function statusMembers(status: VexStatus): object {
  switch (status.status) {
    case 'affected':
      return { status: status.status, action_statement: status.action }
    case 'not_affected':
      return { status: status.status, ...(status.justification === undefined ? {} : { justification: status.justification }), impact_statement: status.impact }
    case 'fixed':
      return { status: status.status, ...(status.note === '' ? {} : { status_notes: status.note }) }
    case 'under_investigation':
      return { status: status.status }
  }
}

function productMember({ artifact, component }: ExportedProduct): object {
  const identified = (purl: string): object => ({ '@id': purl, identifiers: { purl } })
  return { ...identified(artifact), ...(component === undefined ? {} : { subcomponents: [identified(component)] }) }
}

function statementsOf(stored: StoredAdvisory, builtMs: number): object[] {
  const { advisory } = stored
  const { advisoryId, aliases } = advisory
  const vulnerability = { name: advisoryId, ...(aliases.length === 0 ? {} : { aliases }) }
  return statusesOf(advisory).map(({ status, ms }) => {
    // A fix is a statement about the fixed versions.
    const versions = status.status === 'fixed' && status.versions.length > 0 ? status.versions : [undefined]
    const products = versions.map((version) => productMember(productOfAdvisory(stored, version)))
    return { vulnerability, timestamp: timeText(ms ?? builtMs), products, ...statusMembers(status) }
  })
}

/** Returns the advisories as an OpenVEX document: one statement for each approved event (docs/spec/advisories.md#advisory-exports). */
export function openvexOf(origin: string, advisories: readonly StoredAdvisory[], { publisher, baseUrl, builtMs }: ExportFacts): object {
  // Two events may say the same. A document has each statement once.
  const statements = new Set(advisories.flatMap((stored) => statementsOf(stored, builtMs)).map((statement) => JSON.stringify(statement)))
  const times = advisories.flatMap(({ advisory }) => msOf(advisory.updateTime) ?? builtMs)
  return {
    '@context': 'https://openvex.dev/ns/v0.2.0',
    '@id': `${baseUrl}/advisory/v2/documents/${encodeURIComponent(origin)}?format=openvex`,
    author: publisher,
    timestamp: timeText(times.reduce((latest, ms) => Math.max(latest, ms), 0)),
    version: 1,
    statements: [...statements].map((text) => JSON.parse(text) as object), // what was made into the text
  }
}
