import { fromBinary } from '@bufbuild/protobuf'
import type { MatchAnswer, MatchQuestion, PackageVulnerability } from '../../cache/lists/contents-source.ts'
import type { OsvFacts } from '../../catalogue/index.ts'
import { AdvisorySchema } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { isAbout, readAdvisory, type ReadAdvisory } from './advisory.ts'
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

/** Returns the vulnerabilities in packages. */
export function vulnerabilitiesOfPackages(question: MatchQuestion): MatchAnswer {
  const { packages, distribution, states, image } = question
  const known = byKey(question)
  const vulnerabilities: PackageVulnerability[] = []
  const images: string[][] = []
  for (const found of packages) {
    const subject = subjectOf(found, distribution)
    const advisories = subject.keys.flatMap((key) => known.get(key) ?? [])
    for (const { why, ...match } of matchPackage(subject, advisories, { image })) {
      const { rule, advisory, author, note } = why
      if (states.includes(match.state)) vulnerabilities.push({ ...match, found, rule, advisory, author, note })
    }
    images.push([...new Set(advisories.flatMap((read) => (read.image !== undefined && isAbout(read, subject) ? [read.image.digest] : [])))])
  }
  return { vulnerabilities, images }
}
