import { create } from '@bufbuild/protobuf'
import type { Timestamp } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../../base/uid.ts'
import {
  AdvisoryEventSchema,
  AdvisorySchema,
  ReviewState,
  Severity_Type,
  SeveritySchema,
  type Advisory,
  type AdvisoryEvent,
  type Severity,
} from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { Reference_Type } from '../../../gen/taproot/advisory/v2/advisory_pb.ts'
import type { NewAdvisory } from '../../advisories/advisory-builder.ts'
import type { OsvEvent, OsvRange, OsvVersions } from '../../advisories/osv-facts.ts'
import type { NewVulnerability } from '../../vulnerabilities/vulnerability-builder.ts'
import { detailsOf, referencesOf, summaryOf, vulnerabilityPart } from '../descriptions.ts'
import { advisoryRow, assertFewCharacters } from '../advisory-row.ts'
import type { DocumentFormat } from '../format.ts'
import {
  checkedName,
  databaseOf,
  listAt,
  maxItems,
  membersOf,
  nameAt,
  namesAt,
  optionalNameAt,
  RefusedDocument,
  segmentOf,
  timeAt,
  type Members,
} from '../members.ts'

const maxPackages = 10_000
/** The number of single versions that one statement may name. */
const maxVersions = 20_000

const severityTypes: ReadonlyMap<unknown, Severity_Type> = new Map([
  ['CVSS_V2', Severity_Type.CVSS_V2],
  ['CVSS_V3', Severity_Type.CVSS_V3],
  ['CVSS_V4', Severity_Type.CVSS_V4],
])

const referenceTypes: ReadonlyMap<unknown, Reference_Type> = new Map(Object.entries(Reference_Type))

/** Returns the CVSS scores. Other scales are left out: the contract has no member for them. */
function severitiesOf(members: Members, where: string): Severity[] {
  return listAt(members, 'severity', { where: `${where}severity` }).flatMap((item) => {
    const { type, score } = membersOf(item, `${where}severity`)
    const known = severityTypes.get(type)
    return known === undefined || typeof score !== 'string'
      ? []
      : [create(SeveritySchema, { type: known, score: checkedName(score, `${where}severity.score`) })]
  })
}

/** The types of ranges. */
const rangeTypes: ReadonlySet<unknown> = new Set(['SEMVER', 'ECOSYSTEM', 'GIT'] satisfies OsvRange['type'][])
const eventNames = ['introduced', 'fixed', 'last_affected', 'limit'] as const

/** Returns the one thing that an event says. Undefined for others. Throws RefusedDocument. */
function eventOf(item: unknown): OsvEvent | undefined {
  const event = membersOf(item, 'affected.ranges.events')
  for (const name of eventNames) {
    const value = event[name]
    // YAML without quotes makes numbers of some versions.
    if (typeof value === 'string' || typeof value === 'number') return { [name]: checkedName(String(value), `affected.ranges.events.${name}`) }
  }
  return undefined
}

function rangeOf(item: unknown): OsvRange | undefined {
  const range = membersOf(item, 'affected.ranges')
  const events = listAt(range, 'events', { where: 'affected.ranges.events' })
    .map(eventOf)
    .filter((event) => event !== undefined)
  if (events.length === 0) return undefined
  const type = rangeTypes.has(range['type']) ? (range['type'] as OsvRange['type']) : 'ECOSYSTEM' // one of them
  const repo = optionalNameAt(range, 'repo', 'affected.ranges.repo')
  return { type, ...(repo === '' ? {} : { repo }), events }
}

/** Returns the affected versions of a statement. Throws RefusedDocument. */
function versionsOf(statement: Members): OsvVersions {
  const versions = listAt(statement, 'versions', { where: 'affected.versions', max: maxVersions }).map((version) => {
    if (typeof version !== 'string' && typeof version !== 'number') throw new RefusedDocument('affected.versions has an item that is no text')
    return checkedName(String(version), 'affected.versions')
  })
  const ranges = listAt(statement, 'ranges', { where: 'affected.ranges' })
    .map(rangeOf)
    .filter((range) => range !== undefined)
  return { ranges, versions: [...new Set(versions)] }
}

/** Returns the versions that fix the vulnerability. Commits are no versions. */
function fixedVersions({ ranges }: OsvVersions): string[] {
  return ranges.flatMap(({ type, events }) => (type === 'GIT' ? [] : events.flatMap(({ fixed }) => fixed ?? [])))
}

/** The parts that all advisories of one document share. */
interface OsvDocument {
  readonly id: string
  readonly author: string
  readonly times: { readonly created: Timestamp; readonly updated: Timestamp; readonly withdrawn: Timestamp | undefined }
  readonly aliases: string[]
  readonly severities: Severity[]
}

/** The same, in the group that its advisories belong to. */
interface OsvAdvisories extends OsvDocument {
  readonly group: Uid
}

const detectionSegment = segmentOf('detection')

function eventsOf({ group, author, times }: OsvAdvisories, segment: string, versions: readonly string[]): AdvisoryEvent[] {
  const event = (key: string, createTime: Timestamp, type: AdvisoryEvent['type']): AdvisoryEvent =>
    create(AdvisoryEventSchema, { uid: `${group}/${segment}/${key}`, createTime, author, reviewState: ReviewState.APPROVED, type })
  const manual = { case: 'manual', value: { $typeName: 'taproot.vulnerabilities.v2.AdvisoryEvent.Detection.Manual' } } as const
  const detection = { $typeName: 'taproot.vulnerabilities.v2.AdvisoryEvent.Detection', type: manual } as const
  return [
    event(detectionSegment, times.created, { case: 'detection', value: detection }),
    ...versions.map((fixedVersion) => {
      const $typeName = 'taproot.vulnerabilities.v2.AdvisoryEvent.Fixed'
      const value = { $typeName, fixedVersion, note: '', scannerVersion: '', grypeDbBuilt: '', grypeDbChecksum: '' } as const
      return event(segmentOf(`fixed ${fixedVersion}`), times.updated, { case: 'fixed', value })
    }),
  ]
}

/** A package of a document, with all statements about it. */
interface AffectedPackage {
  readonly ecosystem: string
  readonly name: string
  readonly statements: readonly Members[]
}

/** Returns the packages, each once. Entries without a package are about commits, and left out. */
function packagesOf(document: Members): AffectedPackage[] {
  const packages = new Map<string, { readonly ecosystem: string; readonly name: string; readonly statements: Members[] }>()
  for (const item of listAt(document, 'affected', { where: 'affected', max: maxPackages })) {
    const statement = membersOf(item, 'affected')
    if (statement['package'] === undefined) continue
    const members = membersOf(statement['package'], 'affected.package')
    const ecosystem = nameAt(members, 'ecosystem', 'affected.package.ecosystem')
    const name = nameAt(members, 'name', 'affected.package.name')
    const key = JSON.stringify([ecosystem, name])
    const known = packages.get(key)
    if (known === undefined) packages.set(key, { ecosystem, name, statements: [statement] })
    else known.statements.push(statement)
  }
  return [...packages.values()]
}

function advisoryOf(document: OsvAdvisories, { ecosystem, name, statements }: AffectedPackage): NewAdvisory {
  const { id, author, times, aliases, severities } = document
  const segment = segmentOf('osv', id, ecosystem, name)
  const affected = statements.map(versionsOf)
  const versions = [...new Set(affected.flatMap(fixedVersions))]
  const ownSeverities = statements.flatMap((statement) => severitiesOf(statement, 'affected.'))
  if (versions.length > maxItems) throw new RefusedDocument(`${name} has more than ${maxItems} fixed versions`)
  if (ownSeverities.length > maxItems) throw new RefusedDocument(`${name} has more than ${maxItems} severities`)
  const advisory: Advisory = create(AdvisorySchema, {
    advisoryId: id,
    createTime: times.created,
    updateTime: times.updated,
    ...(times.withdrawn === undefined ? {} : { deleteTime: times.withdrawn }),
    author,
    artifactName: name,
    artifactType: ecosystem,
    componentName: name,
    componentType: ecosystem,
    aliases,
    events: eventsOf(document, segment, versions),
    severities: ownSeverities.length > 0 ? ownSeverities : severities,
  })
  return { segment, origin: name, advisory, osv: { affected } }
}

function documentOf(members: Members): OsvDocument {
  const id = nameAt(members, 'id', 'id')
  const updated = timeAt(members, 'modified')
  if (updated === undefined) throw new RefusedDocument('modified is missing: this is no OSV document')
  return {
    id,
    author: databaseOf(id),
    times: { created: timeAt(members, 'published') ?? updated, updated, withdrawn: timeAt(members, 'withdrawn') },
    aliases: namesAt(members, 'aliases', 'aliases'),
    severities: severitiesOf(members, ''),
  }
}

/** Returns what the document says about the vulnerability, whatever the package. */
function metadataOf({ id, author, severities }: OsvDocument, members: Members): NewVulnerability {
  const links = listAt(members, 'references', { where: 'references' }).map((item) => {
    const { url, type } = membersOf(item, 'references')
    return { url, type: referenceTypes.get(type) ?? Reference_Type.UNSPECIFIED }
  })
  return vulnerabilityPart(
    { form: 'osv', division: author },
    {
      id,
      summary: summaryOf(members, 'summary'),
      details: detailsOf(members, 'details'),
      references: referencesOf(links),
      severities: severities.map(({ type, score }) => ({ type, score })),
    },
  )
}

/** OSV (https://ossf.github.io/osv-schema/): one advisory for each package, and the vulnerability that all of them are about. */
export const osv: DocumentFormat = {
  name: 'OSV',
  recognises: (document) => 'modified' in document || ('id' in document && ('affected' in document || 'schema_version' in document)),
  rowsOf: (members, context) => {
    const document = documentOf(members)
    const packages = packagesOf(members)
    // Each advisory repeats them.
    const shared = [...document.aliases, ...document.severities.map(({ score }) => score)].reduce((sum, text) => sum + text.length, 0)
    assertFewCharacters(shared * packages.length)
    const advisories = packages.map((affected) => advisoryRow(advisoryOf({ ...document, group: context.group() }, affected)))
    return [...advisories, { kind: 'vulnerabilities', row: metadataOf(document, members) }]
  },
}
