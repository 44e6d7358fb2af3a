import { AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive } from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { DocumentFormat } from '../format.ts'
import { checkedName, databaseOf, listAt, membersOf, nameAt, optionalNameAt, RefusedDocument, type Members } from '../members.ts'
import { findings, maxStatements, StatementCollector, vulnerabilityFrom } from './statements.ts'

/** The version of vulnerabilities that never affected the package. */
const neverAffected = '0'

function addPackage(
  collector: StatementCollector,
  { name, fixes, repository }: { readonly name: string; readonly fixes: Members; readonly repository: string },
): void {
  const artifact = { identifier: name, name, type: 'apk', version: '', architecture: '' }
  for (const [version, ids] of Object.entries(fixes)) {
    const finding =
      version === neverAffected ? findings.notAffected(FalsePositive.UNSPECIFIED, '') : findings.fixed(checkedName(version, 'a version in secfixes'))
    for (const item of listAt({ ids }, 'ids', { where: `secfixes of ${name}`, max: maxStatements })) {
      if (typeof item !== 'string') throw new RefusedDocument(`secfixes of ${name} has an item that is no text`)
      // The other ids of an item name the same vulnerability.
      const [id, ...aliases] = checkedName(item, `an id in secfixes of ${name}`)
        .split(' ')
        .filter((part) => part !== '')
      if (id === undefined) throw new RefusedDocument(`secfixes of ${name} has an item without an id`)
      const vulnerability = vulnerabilityFrom(id, aliases)
      collector.add({ vulnerability, artifact, component: artifact, location: repository, time: undefined, findings: [finding] })
    }
  }
}

/** The repositories of distributions that OSV knows. */
const repositories: readonly { readonly prefix: string; readonly ecosystem: string; readonly release?: RegExp }[] = [
  { prefix: 'https://dl-cdn.alpinelinux.org/alpine', ecosystem: 'Alpine', release: /^v\d+\.\d+$/ },
  { prefix: 'https://packages.wolfi.dev', ecosystem: 'Wolfi' },
  { prefix: 'https://packages.cgr.dev', ecosystem: 'Chainguard' },
]

/** Returns the ecosystem of a repository, with the release of the distribution. Undefined if OSV has none. */
function ecosystemOf({ urlprefix, distroversion }: Members): string | undefined {
  const found = typeof urlprefix === 'string' ? repositories.find(({ prefix }) => urlprefix === prefix || urlprefix.startsWith(`${prefix}/`)) : undefined
  if (found?.release === undefined) return found?.ecosystem
  return typeof distroversion === 'string' && found.release.test(distroversion) ? `${found.ecosystem}:${distroversion}` : undefined
}

/** The security database of an APK repository: one advisory for each package and vulnerability (docs/spec/advisories.md#advisories-of-apk-repositories). */
export const apkDatabase: DocumentFormat = {
  name: 'APK security database',
  recognises: (document) => 'apkurl' in document && 'packages' in document,
  rowsOf: (document, context) => {
    const parts = ['urlprefix', 'distroversion', 'reponame'].map((key) => optionalNameAt(document, key, key))
    const repository = checkedName(parts.filter((part) => part !== '').join('/'), 'urlprefix, distroversion and reponame')
    if (repository === '') throw new RefusedDocument('urlprefix and reponame are missing: they say which repository this is')
    const ecosystem = ecosystemOf(document) ?? context.ecosystem
    const collector = new StatementCollector({ form: 'apk', issuer: repository, group: context.group(), ecosystem, authorOf: databaseOf })
    for (const item of listAt(document, 'packages', { where: 'packages', max: maxStatements })) {
      const { pkg } = membersOf(item, 'packages')
      const members = membersOf(pkg, 'packages.pkg')
      const name = nameAt(members, 'name', 'packages.pkg.name')
      addPackage(collector, { name, fixes: membersOf(members['secfixes'] ?? {}, `secfixes of ${name}`), repository })
    }
    return collector.rows()
  },
}
