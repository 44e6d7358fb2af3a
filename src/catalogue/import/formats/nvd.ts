import { Reference_Type, Severity_Type } from '../../../gen/taproot/advisory/v2/advisory_pb.ts'
import { detailsOf, referencesOf, vulnerabilityPart } from '../descriptions.ts'
import type { DocumentFormat } from '../format.ts'
import { isMembers, checkedName, listAt, membersOf, nameAt, RefusedDocument, type Members } from '../members.ts'

/** The lists of scores, newest version first. */
const metrics = [
  ['cvssMetricV40', Severity_Type.CVSS_V4],
  ['cvssMetricV31', Severity_Type.CVSS_V3],
  ['cvssMetricV30', Severity_Type.CVSS_V3],
  ['cvssMetricV2', Severity_Type.CVSS_V2],
] as const

/** The type of a reference by its tags: the first that it has. */
const typesOfTags: readonly (readonly [tag: string, type: Reference_Type])[] = [
  ['Patch', Reference_Type.FIX],
  ['Exploit', Reference_Type.EVIDENCE],
  ['Issue Tracking', Reference_Type.REPORT],
  ['Mailing List', Reference_Type.DISCUSSION],
  ['Product', Reference_Type.PACKAGE],
  ['Technical Description', Reference_Type.ARTICLE],
  ['Press/Media Coverage', Reference_Type.ARTICLE],
  ['Vendor Advisory', Reference_Type.ADVISORY],
  ['Third Party Advisory', Reference_Type.ADVISORY],
]

/** Returns the vectors of all scores, those of NVD itself first. */
function severitiesOf(cve: Members): { type: Severity_Type; score: string }[] {
  const all = membersOf(cve['metrics'] ?? {}, 'metrics')
  return metrics.flatMap(([name, type]) => {
    const scores = listAt(all, name, { where: `metrics.${name}` }).map((item) => membersOf(item, `metrics.${name}`))
    const [primary, others] = [scores.filter((score) => score['type'] === 'Primary'), scores.filter((score) => score['type'] !== 'Primary')]
    const vectors = [...primary, ...others].map((score) => {
      const { vectorString } = membersOf(score['cvssData'], `metrics.${name}.cvssData`)
      if (typeof vectorString !== 'string') throw new RefusedDocument(`metrics.${name}.cvssData.vectorString is no text`)
      return checkedName(vectorString, `metrics.${name}.cvssData.vectorString`)
    })
    return [...new Set(vectors)].map((score) => ({ type, score }))
  })
}

function typeOf(tags: readonly unknown[]): Reference_Type {
  return typesOfTags.find(([tag]) => tags.includes(tag))?.[1] ?? Reference_Type.WEB
}

/** NVD 2.0 (https://nvd.nist.gov/developers/vulnerabilities): one CVE of a feed or a page. */
export const nvd: DocumentFormat = {
  name: 'NVD',
  recognises: ({ cve }) => isMembers(cve) && 'id' in cve,
  rowsOf: (document) => {
    const cve = membersOf(document['cve'], 'cve')
    const id = nameAt(cve, 'id', 'cve.id')
    const year = /^CVE-(\d{4})-\d+$/.exec(id)?.[1]
    if (year === undefined) throw new RefusedDocument('cve.id is no id such as CVE-2026-12345')
    const descriptions = listAt(cve, 'descriptions', { where: 'descriptions' }).map((item) => membersOf(item, 'descriptions'))
    const links = listAt(cve, 'references', { where: 'references' }).map((item) => {
      const reference = membersOf(item, 'references')
      return { url: reference['url'], type: typeOf(listAt(reference, 'tags', { where: 'references.tags' })) }
    })
    const details = detailsOf(descriptions.find(({ lang }) => lang === 'en') ?? {}, 'value')
    const part = { id, details, references: referencesOf(links), severities: severitiesOf(cve) }
    return [{ kind: 'vulnerabilities', row: vulnerabilityPart({ form: 'nvd', division: year }, part) }]
  },
}
