import { Severity_Type, type Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { msOf, statusesOf, timeText, type ExportFacts } from './export-facts.ts'
import type { OsvFacts, OsvVersions } from '../advisories/osv-facts.ts'
import { osvPackageOf } from './export-products.ts'

/** Versions are compared as the ecosystem does. */
const byEcosystem = 'ECOSYSTEM'

const severityTypes: Readonly<Record<number, string | undefined>> = {
  [Severity_Type.CVSS_V2]: 'CVSS_V2',
  [Severity_Type.CVSS_V3]: 'CVSS_V3',
  [Severity_Type.CVSS_V4]: 'CVSS_V4',
}

/** An advisory with what OSV needs besides. */
export interface OsvAdvisory {
  readonly advisory: Advisory
  readonly facts: OsvFacts
}

/** Returns affected versions, with a range of all of them if there are none. */
function versionsMember({ ranges, versions }: OsvVersions): object {
  const all = ranges.length === 0 && versions.length === 0 ? [{ type: byEcosystem, events: [{ introduced: '0' }] }] : ranges
  return { ...(all.length === 0 ? {} : { ranges: all }), ...(versions.length === 0 ? {} : { versions }) }
}

/** Returns what OSV says of the component. Empty if it is not affected, or if OSV cannot name it. */
function affectedOf({ advisory, facts }: OsvAdvisory): object[] {
  const statuses = statusesOf(advisory)
  if ((statuses.at(-1)?.status.status ?? 'not_affected') === 'not_affected') return []
  const found = osvPackageOf(advisory, facts.ecosystem)
  if (found === undefined) return []
  const { version, ...named } = found
  if (facts.affected !== undefined) return facts.affected.map((affected) => ({ package: named, ...versionsMember(affected) }))
  const fixed = new Set(statuses.flatMap(({ status }) => (status.status === 'fixed' ? status.versions : [])))
  if (fixed.size === 0 && version !== undefined) return [{ package: named, versions: [version] }]
  // One range for each fix: what came in later than a fix is not known.
  const ends = fixed.size === 0 ? [[]] : [...fixed].map((one) => [{ fixed: one }])
  return [{ package: named, ranges: ends.map((end) => ({ type: byEcosystem, events: [{ introduced: '0' }, ...end] })) }]
}

/** The part of a vector that names its version. OSV takes vectors only. */
const vectorPattern = /^(?:CVSS:[34]\.[01]\/|AV:)/

function severitiesOf(advisories: readonly Advisory[]): object[] {
  const scores = advisories.flatMap(({ severities }) =>
    severities.flatMap(({ type, score }) => {
      const name = severityTypes[type]
      return name === undefined || !vectorPattern.test(score) ? [] : [JSON.stringify({ type: name, score })]
    }),
  )
  return [...new Set(scores)].map((text) => JSON.parse(text) as object) // what was made into the text
}

/**
 * Returns the advisories of one id as an OSV document. Undefined if no package of it is affected that OSV can name
 * (docs/spec/advisories.md#advisory-exports).
 */
export function osvOf(id: string, all: readonly OsvAdvisory[], { builtMs }: Pick<ExportFacts, 'builtMs'>): object | undefined {
  const affected = [...new Set(all.flatMap(affectedOf).map((one) => JSON.stringify(one)))]
  if (affected.length === 0) return undefined
  const advisories = all.map(({ advisory }) => advisory)
  const aliases = [...new Set(advisories.flatMap((advisory) => advisory.aliases))].filter((alias) => alias !== id)
  const created = advisories.flatMap(({ createTime }) => msOf(createTime) ?? [])
  const severity = severitiesOf(advisories)
  const modifiedMs = advisories.reduce((latest, { updateTime }) => Math.max(latest, msOf(updateTime) ?? builtMs), 0)
  return {
    schema_version: '1.6.0',
    id,
    modified: timeText(modifiedMs),
    ...(created.length === 0 ? {} : { published: timeText(created.reduce((first, ms) => Math.min(first, ms), Infinity)) }),
    ...(aliases.length === 0 ? {} : { aliases }),
    ...(severity.length === 0 ? {} : { severity }),
    affected: affected.map((text) => JSON.parse(text) as object), // what was made into the text
  }
}

/** Returns the advisories as OSV documents, one for each id. */
export function osvDocumentsOf(advisories: readonly OsvAdvisory[], facts: ExportFacts): object[] {
  return [...Map.groupBy(advisories, ({ advisory }) => advisory.advisoryId)].map(([id, some]) => osvOf(id, some, facts)).filter((one) => one !== undefined)
}
