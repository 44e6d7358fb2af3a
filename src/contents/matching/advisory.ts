import { timestampMs } from '@bufbuild/protobuf/wkt'
import { baseOf, ecosystemOfPackages, nameForm, orderOfType, packagesOfEcosystem } from '../../base/versions/ecosystems.ts'
import type { ReadVersion, VersionOrder } from '../../base/versions/version-order.ts'
import type { ArtifactImage, OsvFacts } from '../../catalogue/index.ts'
import { ReviewState, type Advisory, type AdvisoryEvent } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { sourceEcosystems } from './distributions.ts'
import { affectedVersionsOf, type AffectedVersions } from './ranges.ts'
import { keyOf, parsePurl, type MatchSubject, type SubjectVersion } from './subject.ts'

/** An advisory, read to be compared with many packages. */
export interface ReadAdvisory {
  readonly advisory: Advisory
  /** By this, packages find it: see `MatchSubject.keys`. */
  readonly key: string
  /** The package in the form of its ecosystem. */
  readonly name: string
  /** The release of its distribution; empty for all of them. */
  readonly release: string
  /** True if the name is that of a source package. */
  readonly isOfSource: boolean
  readonly order: VersionOrder
  /** The one version that the statement is about. Undefined for all of them. */
  readonly only: ReadVersion | undefined
  /** The artifact that the package is a part of. Undefined for statements about the package itself. */
  readonly artifact: { readonly type: string; readonly name: string } | undefined
  /** This artifact, if it is an image that is named by its digest. */
  readonly image: ArtifactImage | undefined
  /** The newest approved event. Undefined if there is none. */
  readonly newest: AdvisoryEvent['type'] | undefined
  /** The time of that event in milliseconds since 1970; 0 if it has none. */
  readonly newestMs: number
  /** True if the newest approved events name a version that fixes it, also one that cannot be read. */
  readonly namesFix: boolean
  /** The versions that fix it, as the newest approved events say. Those that cannot be read are left out. */
  readonly fixes: readonly ReadVersion[]
  /** What a document in OSV form says. Undefined for other forms, and empty if it is about commits only. */
  readonly affected: readonly AffectedVersions[] | undefined
}

function timeOf({ createTime }: AdvisoryEvent): number {
  return createTime === undefined ? 0 : timestampMs(createTime)
}

/** Returns the newest approved events. Those of one moment are in the order of the list: the last of them counts. */
function newestOf({ events }: Advisory): readonly AdvisoryEvent[] {
  const approved = events.filter(({ reviewState, type }) => reviewState === ReviewState.APPROVED && type.case !== undefined)
  const newestMs = approved.reduce((latest, event) => Math.max(latest, timeOf(event)), -Infinity)
  return approved.filter((event) => timeOf(event) === newestMs)
}

/** Returns the versions that events name as fixed. */
function fixesIn(events: readonly AdvisoryEvent[]): string[] {
  return events
    .flatMap(({ type }) => (type.case === 'fixed' ? [type.value.fixedVersion] : type.case === 'patched' ? type.value.patchedVersions : []))
    .filter((version) => version !== '')
}

/** The package of an advisory. */
interface NamedPackage {
  readonly type: string
  /** With its release. Empty if it is not known. */
  readonly ecosystem: string
  readonly version: string | undefined
}

/** Returns the package that an advisory is about. Undefined if its identifier is no package. */
function packageOf({ componentType, componentLocation }: Advisory, { ecosystem: named }: OsvFacts): NamedPackage | undefined {
  const known = packagesOfEcosystem(componentType)
  const url = parsePurl(componentLocation)
  if (known !== undefined) return { type: known.type, ecosystem: componentType, version: url?.version ?? undefined }
  const type = url?.type ?? componentType
  if (type === '') return undefined
  return { type, ecosystem: named ?? ecosystemOfPackages({ type, namespace: url?.namespace ?? undefined }) ?? '', version: url?.version ?? undefined }
}

/**
 * Returns an advisory to compare it with packages. Undefined if it can be about no package. Then its identifier is no package, its versions have no order, or
 * it names one version that cannot be read.
 */
export function readAdvisory(advisory: Advisory, facts: OsvFacts = {}): ReadAdvisory | undefined {
  const found = packageOf(advisory, facts)
  const order = found === undefined ? undefined : orderOfType(found.type)
  if (found === undefined || order === undefined) return undefined
  const { type, version } = found
  const only = version === undefined ? undefined : order.read(version)
  if (version !== undefined && only === undefined) return undefined
  const { artifactName, artifactType, componentName, componentType, componentLocation } = advisory
  const ecosystem = baseOf(found.ecosystem)
  const newest = newestOf(advisory)
  const last = newest.at(-1)
  const fixes = fixesIn(newest)
  return {
    advisory,
    key: keyOf({ type, ecosystem }, componentName),
    name: nameForm(type, componentName),
    release: found.ecosystem.slice(ecosystem.length + 1),
    isOfSource: sourceEcosystems.has(ecosystem) && !componentLocation.startsWith('pkg:'),
    order,
    only,
    artifact: artifactName === componentName && artifactType === componentType ? undefined : { type: artifactType, name: artifactName },
    image: facts.image,
    newest: last?.type,
    newestMs: last === undefined ? 0 : timeOf(last),
    namesFix: fixes.length > 0,
    fixes: fixes.flatMap((text) => order.read(text) ?? []),
    affected: facts.affected?.flatMap((versions) => affectedVersionsOf(versions, order) ?? []),
  }
}

/** True if an advisory is about the package, or may be, whatever its version. */
export function isAbout({ key, name, release, isOfSource }: ReadAdvisory, subject: MatchSubject): boolean {
  if (!subject.keys.includes(key) || subject.isOfRelease(release) === false) return false
  return isOfSource ? name === subject.source : name === subject.name || name === subject.source
}

/** Returns the version that an advisory of the package is about: that of the source package if it names this one. */
export function versionFor({ name }: ReadAdvisory, subject: MatchSubject): SubjectVersion {
  return name === subject.name && name !== subject.source ? subject.version : subject.sourceVersion
}
