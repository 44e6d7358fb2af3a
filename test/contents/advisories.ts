import { create } from '@bufbuild/protobuf'
import { trustedUid } from '../../src/base/uid.ts'
import { apkDatabase } from '../../src/catalogue/import/formats/apk-database.ts'
import { openvex } from '../../src/catalogue/import/formats/openvex.ts'
import { osv } from '../../src/catalogue/import/formats/osv.ts'
import { packageAdvisories } from '../../src/catalogue/import/formats/package-advisories.ts'
import { membersOf } from '../../src/catalogue/import/members.ts'
import { matchPackage, readAdvisory, subjectOf, type Match, type MatchPlace, type ReadAdvisory } from '../../src/contents/index.ts'
import type { Distribution, ImagePackage } from '../../src/contents/package.ts'
import { AdvisorySchema } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'

const group = trustedUid('a'.repeat(40))
const formats = [osv, openvex, packageAdvisories, apkDatabase]

/** Returns the advisories of documents, as an import makes them. `ecosystem` is that of packages whose documents name none. */
export function advisoriesOf(documents: readonly unknown[], ecosystem?: string): ReadAdvisory[] {
  return documents.flatMap((document) => {
    const members = membersOf(document, 'the document')
    const format = formats.find(({ recognises }) => recognises(members))
    if (format === undefined) throw new TypeError('the document has no known form')
    return [...format.rowsOf(members, { group: () => group, nowMs: 0, ecosystem, file: 'document.json' })].flatMap(({ kind, row }) => {
      if (kind !== 'advisories') return []
      return readAdvisory(create(AdvisorySchema, { ...row.advisory, uid: `${group}/${row.segment}` }), row.osv) ?? []
    })
  })
}

/** Returns a package of an image: its package URL says the rest, but for names that have a namespace. */
export function packageAt(purl: string, more: Partial<ImagePackage> = {}): ImagePackage {
  const [, type = '', path = '', version = ''] = /^pkg:([^/]+)\/([^@?]+)(?:@([^?]*))?/.exec(purl) ?? []
  const parts = path.split('/').map(decodeURIComponent)
  const isPlain = ['apk', 'deb', 'rpm'].includes(type)
  const name = isPlain ? (parts.at(-1) ?? '') : parts.join(type === 'maven' ? ':' : '/')
  return { purl, type, name, version: decodeURIComponent(version), origin: '', licenses: [], locations: [], ...more }
}

type Range = Readonly<Record<string, string>>[]

/** An OSV document about one package. */
export function osvDocument(ecosystem: string, name: string, affected: object = {}, more: object = {}): object {
  return {
    id: 'CVE-2026-1',
    published: '2026-01-01T00:00:00Z',
    modified: '2026-01-02T00:00:00Z',
    affected: [{ package: { ecosystem, name }, ...affected }],
    ...more,
  }
}

/** The affected versions of one range. */
export const ranged = (type: string, ...events: Range): object => ({ ranges: [{ type, events }] })

/** A document of a package's own advisories, with its events at days that follow each other. */
export function ownDocument(name: string, ...events: readonly (readonly [type: string, data: object])[]): object {
  const dated = events.map(([type, data], at) => ({ type, timestamp: `2026-03-0${at + 1}T00:00:00Z`, data }))
  return { 'schema-version': '2.0.2', package: { name }, advisories: [{ id: 'OWN-1', aliases: ['CVE-2026-1'], events: dated }] }
}

/** An OpenVEX document with one statement. */
export function vexDocument(product: string, statement: object, component?: string): object {
  const products = [{ '@id': product, ...(component === undefined ? {} : { subcomponents: [{ '@id': component }] }) }]
  const statements = [{ vulnerability: { name: 'CVE-2026-1' }, products, ...statement }]
  return {
    '@context': 'https://openvex.dev/ns/v0.2.0',
    '@id': 'https://example.com/vex',
    author: 'Example',
    timestamp: '2026-04-01T00:00:00Z',
    version: 1,
    statements,
  }
}

/** An event: a detection. */
export const manual: readonly [string, object] = ['detection', { type: 'manual' }]
/** An event: a false positive. */
export const falsePositive: readonly [string, object] = ['false-positive-determination', { type: 'vulnerable-code-not-included-in-package', note: 'not built' }]
/** A distribution without releases. */
export const wolfi: Distribution = { id: 'wolfi', version: '20230201' }

/** Documents, a package and where it is. */
export interface Case {
  readonly documents: readonly object[]
  readonly found: ImagePackage
  readonly image?: Distribution
  readonly place?: MatchPlace
  readonly ecosystem?: string
}

/** Returns the matches of a case. */
export function matchesOf({ documents, found, image, place, ecosystem }: Case): Match[] {
  return matchPackage(subjectOf(found, image), advisoriesOf(documents, ecosystem), place)
}

/** A document about versions from 1.0.0 to 1.2.0. */
export const npmRange = osvDocument('npm', 'left', ranged('SEMVER', { introduced: '1.0.0' }, { fixed: '1.2.0' }))
/** The package of `npmRange`. */
export const npmAt = (version: string): ImagePackage => packageAt(`pkg:npm/left@${version}`)
/** The package of `own`. */
export const apkAt = (version: string): ImagePackage => packageAt(`pkg:apk/wolfi/tool@${version}`)
/** A case with a package's own advisories in Wolfi. */
export const own = (...events: readonly (readonly [string, object])[]): Pick<Case, 'documents' | 'image' | 'ecosystem'> => ({
  documents: [ownDocument('tool', ...events)],
  image: wolfi,
  ecosystem: 'Wolfi',
})
