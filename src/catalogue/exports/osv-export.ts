import type { Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { msOf, statusesOf, timeText, type ExportFacts, type StoredAdvisory } from './export-facts.ts'
import type { OsvEvent, OsvRange, OsvVersions } from '../advisories/osv-facts.ts'
import { osvSeverityOf } from './cvss-scores.ts'
import { osvPackageOf } from './export-products.ts'
import { osvIdOf } from './osv-names.ts'

/** Versions are compared as the ecosystem does. */
const byEcosystem = 'ECOSYSTEM'

/** Commits in ranges: whole hashes, or all commits. */
const commitPattern = /^(?:0|[a-f0-9]{40}|[a-f0-9]{64})$/

/** Splits events, which begin with a version, into parts that each begin with one after an end. In a part, only the first end counts. */
function eventParts(events: readonly OsvEvent[]): OsvEvent[][] {
  const parts: OsvEvent[][] = []
  let hasEnd = true
  for (const event of events) {
    const isEnd = event.fixed !== undefined || event.last_affected !== undefined
    if (hasEnd && event.introduced !== undefined) {
      parts.push([event])
      hasEnd = false
    } else if (!hasEnd || !isEnd) {
      parts.at(-1)?.push(event)
      hasEnd ||= isEnd
    }
  }
  return parts
}

/** Returns ranges as the schema wants them: each begins somewhere, and says either what fixes it or what is affected last. */
function validRanges(range: OsvRange): OsvRange[] {
  const { type, repo, events } = range
  const isKnown = type !== 'GIT' || (repo !== undefined && events.every((event) => Object.values(event).every((commit) => commitPattern.test(commit))))
  if (!isKnown) return []
  const [first, fixed, last] = (['introduced', 'fixed', 'last_affected'] as const).map((name) => events.findIndex((event) => event[name] !== undefined))
  if (first === -1) return validRanges({ ...range, events: [{ introduced: '0' }, ...events] })
  return fixed === -1 || last === -1 ? [range] : eventParts(events.slice(first)).map((part) => ({ ...range, events: part }))
}

/** Returns affected versions, with a range of all of them if there are none. Undefined if OSV can express none of them. */
function versionsMember({ ranges, versions }: OsvVersions): object | undefined {
  const valid = ranges.flatMap(validRanges)
  if (ranges.length > 0 && valid.length === 0 && versions.length === 0) return undefined
  const all = ranges.length === 0 && versions.length === 0 ? [{ type: byEcosystem, events: [{ introduced: '0' }] }] : valid
  return { ...(all.length === 0 ? {} : { ranges: all }), ...(versions.length === 0 ? {} : { versions }) }
}

/**
 * True if an advisory is about a part of one artifact. Its statement does not hold for the package elsewhere. An artifact without a package URL may be a whole
 * distribution: the ecosystem that the import named says so.
 */
function isOfArtifact({ advisory, facts }: StoredAdvisory): boolean {
  const { artifactName, artifactType, componentName, componentType } = advisory
  if (facts.artifact !== undefined || facts.image !== undefined) return true
  return facts.ecosystem === undefined && (artifactName !== componentName || artifactType !== componentType)
}

/** Returns the affected versions that the newest events say. Undefined if they do not say that any version is affected. */
function statedVersions({ advisory }: StoredAdvisory, version: string | undefined): object | undefined {
  const statuses = statusesOf(advisory)
  const last = statuses.at(-1)
  const all = { type: byEcosystem, events: [{ introduced: '0' }] }
  if (last?.status.status === 'affected') return version === undefined ? { ranges: [all] } : { versions: [version] }
  if (last?.status.status !== 'fixed') return undefined
  // Later fixes of one vulnerability are events of their own. A later status of another kind ends those before it.
  const since = statuses.findLastIndex(({ status }) => status.status !== 'fixed' && status.status !== 'under_investigation') + 1
  const fixed = new Set(statuses.slice(since).flatMap(({ status }) => (status.status === 'fixed' ? status.versions : [])))
  // One range for each fix: what came in later than a fix is not known.
  return fixed.size === 0 ? undefined : { ranges: [...fixed].map((one) => ({ ...all, events: [...all.events, { fixed: one }] })) }
}

/** Returns what OSV says of the component. Empty if nothing says that it is affected, or if OSV cannot name it. */
function affectedOf(stored: StoredAdvisory): object[] {
  const { advisory, facts } = stored
  const found = osvPackageOf(advisory, facts)
  if (found === undefined || isOfArtifact(stored)) return []
  const { version, ...named } = found
  const isNotAffected = (statusesOf(advisory).at(-1)?.status.status ?? 'not_affected') === 'not_affected'
  if (facts.affected !== undefined)
    return facts.affected
      .map(versionsMember)
      .filter((member) => member !== undefined && !isNotAffected)
      .map((member) => ({ package: named, ...member }))
  const stated = statedVersions(stored, version)
  return stated === undefined ? [] : [{ package: named, ...stated }]
}

function severitiesOf(advisories: readonly Advisory[]): object[] {
  const scores = advisories.flatMap(({ severities }) => severities.map(osvSeverityOf).filter((score) => score !== undefined))
  return [...new Map(scores.map((score) => [JSON.stringify(score), score])).values()]
}

/**
 * Returns the advisories of one id as an OSV document. Undefined if no package of it is affected that OSV can name
 * (docs/spec/advisories.md#advisory-exports).
 */
export function osvOf(id: string, all: readonly StoredAdvisory[], { builtMs }: Pick<ExportFacts, 'builtMs'>): object | undefined {
  const affected = [...new Set(all.flatMap(affectedOf).map((one) => JSON.stringify(one)))]
  if (affected.length === 0) return undefined
  const advisories = all.map(({ advisory }) => advisory)
  const aliases = [...new Set(advisories.flatMap((advisory) => advisory.aliases))].filter((alias) => alias !== id)
  const created = advisories.flatMap(({ createTime }) => msOf(createTime) ?? [])
  const severity = severitiesOf(advisories)
  const modifiedMs = advisories.reduce((latest, { updateTime }) => Math.max(latest, msOf(updateTime) ?? builtMs), 0)
  return {
    schema_version: '1.6.0',
    // What came from OSV keeps its id, also of a database that the schema does not list yet.
    id: all.some(({ facts }) => facts.affected !== undefined) ? id : osvIdOf(id),
    modified: timeText(modifiedMs),
    ...(created.length === 0 ? {} : { published: timeText(created.reduce((first, ms) => Math.min(first, ms), Infinity)) }),
    ...(aliases.length === 0 ? {} : { aliases }),
    ...(severity.length === 0 ? {} : { severity }),
    affected: affected.map((text) => JSON.parse(text) as object), // what was made into the text
  }
}

/** Returns the advisories as OSV documents, one for each id. */
export function osvDocumentsOf(advisories: readonly StoredAdvisory[], facts: ExportFacts): object[] {
  return [...Map.groupBy(advisories, ({ advisory }) => advisory.advisoryId)].map(([id, some]) => osvOf(id, some, facts)).filter((one) => one !== undefined)
}
