import { fromBinary } from '@bufbuild/protobuf'
import type { MatchQuestion, PackageVulnerability } from '../../cache/lists/contents-source.ts'
import type { OsvFacts } from '../../catalogue/index.ts'
import { AdvisorySchema } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { readAdvisory, type ReadAdvisory } from './advisory.ts'
import { matchPackage } from './match.ts'
import { subjectOf } from './subject.ts'

/** Returns the names by which advisories of packages are found, each once. */
export function namesOfPackages({ packages, distribution }: Pick<MatchQuestion, 'packages' | 'distribution'>): string[] {
  const subjects = packages.map((found) => subjectOf(found, distribution))
  return [...new Set(subjects.flatMap(({ name, source }) => [name, source]))]
}

/** Returns the advisories by the keys of packages. */
function byKey({ advisories }: MatchQuestion): ReadonlyMap<string, ReadAdvisory[]> {
  const found = new Map<string, ReadAdvisory[]>()
  for (const { body, osv } of advisories) {
    const facts = osv === undefined ? {} : (JSON.parse(osv) as OsvFacts) // of an import
    const read = readAdvisory(fromBinary(AdvisorySchema, body), facts)
    if (read === undefined) continue
    const same = found.get(read.key)
    if (same === undefined) found.set(read.key, [read])
    else same.push(read)
  }
  return found
}

/** Returns the vulnerabilities in packages, in the order of the packages and then of ids. */
export function vulnerabilitiesOfPackages(question: MatchQuestion): PackageVulnerability[] {
  const { packages, distribution, states } = question
  const known = byKey(question)
  return packages.flatMap((found) => {
    const subject = subjectOf(found, distribution)
    const matches = matchPackage(
      subject,
      subject.keys.flatMap((key) => known.get(key) ?? []),
    )
    return matches
      .filter(({ state }) => states.includes(state))
      .map(({ why: { rule, advisory, author, note }, ...match }) => ({ ...match, found, rule, advisory, author, note }))
  })
}
