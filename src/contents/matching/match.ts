import { compareTexts } from '../../base/versions/version-order.ts'
import type { AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive, Severity } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { isAbout, versionFor, type ReadAdvisory } from './advisory.ts'
import { answerOf } from './ranges.ts'
import { vulnerabilityStates, type StatedImage, type VulnerabilityState } from '../../cache/lists/contents-source.ts'
import { verdictOf, weights, type RuleName, type Verdict } from './rules.ts'
import type { MatchSubject } from './subject.ts'

/** Why a match has its state. */
export interface MatchReason {
  readonly rule: RuleName
  /** The uid of the advisory that decides. */
  readonly advisory: string
  readonly author: string
  /** What its newest approved event says for people. Empty if nothing. */
  readonly note: string
  /** Why the package is not affected; absent for other states, and without a reason. */
  readonly justification?: FalsePositive
}

/** A vulnerability and what is known about it in a package. */
export interface Match {
  /** The id of CVE if there is one, else the first of the others. */
  readonly id: string
  /** The other ids, in order. */
  readonly aliases: readonly string[]
  /** The scores of all advisories about it, each once, those of the deciding one first. */
  readonly severities: readonly Pick<Severity, 'type' | 'score'>[]
  /** The version that has the fix. Empty if none is known. */
  readonly fixedVersion: string
  readonly state: VulnerabilityState
  readonly why: MatchReason
}

/** Where a package is. */
export interface MatchPlace {
  /** The image that has the package. Undefined for what holds in all images. */
  readonly image?: StatedImage | undefined
}

/** True if an advisory about a part of an image names this one: by digest, and by its repository and architecture if it says them. */
function namesImage({ image: named, advisory: { artifactName, artifactArchitecture } }: ReadAdvisory, image: StatedImage | undefined): boolean {
  if (named === undefined || image === undefined || !image.digests.includes(named.digest)) return false
  if (named.repository !== undefined && named.repository !== image.address) return false
  if (artifactArchitecture !== '' && artifactArchitecture !== image.architecture) return false
  return artifactName.toLowerCase() === image.address.slice(image.address.lastIndexOf('/') + 1)
}

/** Returns what an advisory says about a package. Undefined if it says nothing. */
function verdictFor(read: ReadAdvisory, subject: MatchSubject, { image }: MatchPlace): Verdict | undefined {
  if (!isAbout(read, subject)) return undefined
  const version = versionFor(read, subject)
  const { artifact, affected, order } = read
  return verdictOf({
    read,
    version,
    parsed: version.in(order),
    isOfRelease: subject.isOfRelease(read.release) === true,
    isOfArtifact: artifact === undefined || namesImage(read, image),
    range: affected === undefined ? undefined : answerOf(affected, version),
  })
}

const isCve = (id: string): boolean => id.startsWith('CVE-')

function idsOf({ read }: Verdict): readonly string[] {
  return [read.advisory.advisoryId, ...read.advisory.aliases]
}

/** Returns sets of verdicts that share ids, but for those of CVE: one advisory may have several of them. */
function joined(verdicts: readonly Verdict[]): Verdict[][] {
  const byId = new Map<string, Verdict[]>()
  const sets = new Set<Verdict[]>()
  for (const verdict of verdicts) {
    const ids = idsOf(verdict).filter((id) => !isCve(id))
    const merged = [...new Set(ids.flatMap((id) => byId.get(id) ?? []).concat(verdict))]
    for (const id of ids) {
      const old = byId.get(id)
      if (old !== undefined) sets.delete(old)
    }
    for (const id of merged.flatMap(idsOf)) if (!isCve(id)) byId.set(id, merged)
    sets.add(merged)
  }
  return [...sets]
}

/** Returns the verdicts by vulnerability: that of each CVE, and those that have none. */
function byVulnerability(verdicts: readonly Verdict[]): Map<string, Verdict[]> {
  const found = new Map<string, Verdict[]>()
  for (const set of joined(verdicts)) {
    const ids = [...new Set(set.flatMap(idsOf))].sort(compareTexts)
    const cves = ids.filter(isCve)
    for (const verdict of set) {
      const own = [...new Set(idsOf(verdict).filter(isCve))]
      for (const id of own.length > 0 ? own : cves.length > 0 ? cves : ids.slice(0, 1)) found.set(id, [...(found.get(id) ?? []), verdict])
    }
  }
  return found
}

/** Returns below 0 for the verdict that counts more. */
function compareVerdicts(a: Verdict, b: Verdict): number {
  return (
    b.weight - a.weight ||
    (a.weight >= weights.determination ? b.read.newestMs - a.read.newestMs : 0) ||
    vulnerabilityStates.indexOf(a.state) - vulnerabilityStates.indexOf(b.state) ||
    compareTexts(a.read.advisory.uid, b.read.advisory.uid)
  )
}

/** Returns the version that has the fixes of all verdicts. A determination that the package is affected has the fix of the ranges. */
function fixOf(decider: Verdict, verdicts: readonly Verdict[]): string {
  if (decider.state !== 'affected' || (decider.weight >= weights.determination && decider.rule !== 'true positive')) return decider.fixedVersion
  const { order } = decider.read
  return verdicts
    .filter(({ state, weight, fixedVersion }) => state === 'affected' && weight < weights.determination && fixedVersion !== '')
    .reduce((last, { fixedVersion }) => (last === '' || order.compare(fixedVersion, last) > 0 ? fixedVersion : last), '')
}

function matchOf(id: string, all: readonly Verdict[]): Match {
  const [decider, ...others] = all.toSorted(compareVerdicts)
  if (decider === undefined) throw new TypeError('a vulnerability has a verdict')
  const verdicts = [decider, ...others]
  const { advisory } = decider.read
  const severities = new Map(verdicts.flatMap(({ read }) => read.advisory.severities.map(({ type, score }) => [`${type} ${score}`, { type, score }] as const)))
  const aliases = new Set(verdicts.flatMap(idsOf).filter((one) => one !== id && !isCve(one)))
  return {
    id,
    aliases: [...aliases].sort(compareTexts),
    severities: [...severities.values()],
    fixedVersion: fixOf(decider, verdicts),
    state: decider.state,
    why: {
      rule: decider.rule,
      advisory: advisory.uid,
      author: advisory.author,
      note: decider.note,
      ...(decider.justification === undefined ? {} : { justification: decider.justification }),
    },
  }
}

/**
 * Returns what is known about the vulnerabilities of a package, in the order of their ids. `advisories` are those that have one of its keys; others are ignored.
 * Their order does not count.
 */
export function matchPackage(subject: MatchSubject, advisories: readonly ReadAdvisory[], place: MatchPlace = {}): Match[] {
  const verdicts = advisories.map((read) => verdictFor(read, subject, place)).filter((verdict) => verdict !== undefined)
  return [...byVulnerability(verdicts)].map(([id, some]) => matchOf(id, some)).sort((a, b) => compareTexts(a.id, b.id))
}
