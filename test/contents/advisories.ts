import { create } from '@bufbuild/protobuf'
import { trustedUid } from '../../src/base/uid.ts'
import { apkDatabase } from '../../src/catalogue/import/formats/apk-database.ts'
import { openvex } from '../../src/catalogue/import/formats/openvex.ts'
import { osv } from '../../src/catalogue/import/formats/osv.ts'
import { packageAdvisories } from '../../src/catalogue/import/formats/package-advisories.ts'
import { membersOf } from '../../src/catalogue/import/members.ts'
import { readAdvisory, type ReadAdvisory } from '../../src/contents/index.ts'
import type { ImagePackage } from '../../src/contents/package.ts'
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
