import type { Timestamp } from '@bufbuild/protobuf/wkt'
import {
  AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive,
  Severity_Type,
  type Severity,
} from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { DocumentFormat } from '../format.ts'
import { isMembers, listAt, maxItems, membersOf, nameAt, optionalNameAt, RefusedDocument, timeAt, type Members } from '../members.ts'
import { CsafProducts } from './csaf-products.ts'
import { severityOf } from './severities.ts'
import { findings, maxStatements, noteAt, noteOf, StatementCollector, vexJustifications, vulnerabilityFrom, type Finding } from './statements.ts'

/** What a list of `product_status` says. Lists that are left out say nothing about a vulnerability. */
const statuses = {
  first_affected: 'affected',
  known_affected: 'affected',
  last_affected: 'affected',
  known_not_affected: 'not affected',
  first_fixed: 'fixed',
  fixed: 'fixed',
  under_investigation: 'under investigation',
} as const

type CsafStatus = (typeof statuses)[keyof typeof statuses]

/** Categories of documents with statements about products. */
const categories: ReadonlySet<unknown> = new Set(['csaf_vex', 'csaf_security_advisory'])

/** Remediations that are statements of their own. All others are notes of those who are affected. */
const remediations: ReadonlyMap<unknown, (note: string) => Finding> = new Map([
  ['no_fix_planned', findings.fixNotPlanned],
  ['none_available', findings.pendingUpstreamFix],
])

const scales = { cvss_v2: Severity_Type.CVSS_V2, cvss_v3: Severity_Type.CVSS_V3, cvss_v4: Severity_Type.CVSS_V4 } as const

/** Values by product id. The empty id holds those of all products. */
class ByProduct<Value> {
  readonly #values = new Map<string, Value[]>()

  add(ids: readonly string[], value: Value): void {
    for (const id of ids) {
      const values = this.#values.get(id)
      if (values === undefined) this.#values.set(id, [value])
      else if (values.length >= maxItems) throw new RefusedDocument(`a product has more than ${maxItems} scores, flags, threats or remediations`)
      else values.push(value)
    }
  }

  get(id: string): readonly Value[] {
    const [own = [], shared = []] = [this.#values.get(id), this.#values.get('')]
    return [...own, ...shared]
  }
}

/** What a vulnerability says of its products, besides their status. */
interface ProductFacts {
  readonly justifications: ByProduct<FalsePositive>
  /** Why products are not affected. */
  readonly impacts: ByProduct<string>
  /** What those who are affected can do. */
  readonly actions: ByProduct<string>
  readonly outcomes: ByProduct<Finding>
  readonly severities: ByProduct<Severity>
}

/** Returns the ids that an item names, or the one of all products if it names none. Throws RefusedDocument. */
function scopeOf(products: CsafProducts, item: Members, where: string): readonly string[] {
  const ids = products.idsOf(item, where)
  return ids.length === 0 ? [''] : ids
}

function itemsAt(vulnerability: Members, key: string): Members[] {
  return listAt(vulnerability, key, { where: `vulnerabilities.${key}`, max: maxStatements }).map((item) => membersOf(item, `vulnerabilities.${key}`))
}

function factsOf(vulnerability: Members, products: CsafProducts): ProductFacts {
  const facts: ProductFacts = {
    justifications: new ByProduct(),
    impacts: new ByProduct(),
    actions: new ByProduct(),
    outcomes: new ByProduct(),
    severities: new ByProduct(),
  }
  for (const flag of itemsAt(vulnerability, 'flags')) {
    const type = vexJustifications.get(flag['label'])
    if (type === undefined) throw new RefusedDocument('vulnerabilities.flags.label has an unknown value')
    facts.justifications.add(scopeOf(products, flag, 'vulnerabilities.flags'), type)
  }
  for (const threat of itemsAt(vulnerability, 'threats')) {
    if (threat['category'] !== 'impact') continue
    facts.impacts.add(scopeOf(products, threat, 'vulnerabilities.threats'), noteAt(threat, 'details', 'vulnerabilities.threats.details'))
  }
  for (const remediation of itemsAt(vulnerability, 'remediations')) {
    const ids = scopeOf(products, remediation, 'vulnerabilities.remediations')
    const details = noteAt(remediation, 'details', 'vulnerabilities.remediations.details')
    const outcome = remediations.get(remediation['category'])
    if (outcome === undefined) facts.actions.add(ids, details)
    else facts.outcomes.add(ids, outcome(details))
  }
  for (const score of itemsAt(vulnerability, 'scores')) {
    const ids = products.idsIn(score, 'products', 'vulnerabilities.scores')
    for (const [key, type] of Object.entries(scales)) {
      if (score[key] === undefined) continue
      const severity = severityOf(type, membersOf(score[key], `vulnerabilities.scores.${key}`), { vector: 'vectorString', number: 'baseScore' })
      if (severity !== undefined) facts.severities.add(ids, severity)
    }
  }
  return facts
}

/** Returns the status of each product. Throws RefusedDocument if a product has two that contradict each other. */
function statusesOf(vulnerability: Members, products: CsafProducts): Map<string, CsafStatus> {
  const found = new Map<string, CsafStatus>()
  const lists = membersOf(vulnerability['product_status'] ?? {}, 'vulnerabilities.product_status')
  for (const [key, status] of Object.entries(statuses)) {
    for (const id of products.idsIn(lists, key, 'vulnerabilities.product_status')) {
      const other = found.get(id)
      if (other !== undefined && other !== status) throw new RefusedDocument(`the product ${id} is both ${other} and ${status}`)
      found.set(id, status)
    }
  }
  return found
}

const unique = (texts: readonly string[]): string[] => [...new Set(texts)]

/** Returns what a status says of a product, in the order of events. */
function findingsOf(status: CsafStatus, id: string, { facts, version }: { readonly facts: ProductFacts; readonly version: string }): Finding[] {
  switch (status) {
    case 'affected':
      return [findings.affected(noteOf(...unique(facts.actions.get(id)))), ...facts.outcomes.get(id)]
    case 'not affected':
      return [findings.notAffected(facts.justifications.get(id)[0] ?? FalsePositive.UNSPECIFIED, noteOf(...unique(facts.impacts.get(id))))]
    case 'fixed':
      return [findings.fixed(version)]
    case 'under investigation':
      return [findings.detected()]
  }
}

function addVulnerability(
  collector: StatementCollector,
  vulnerability: Members,
  { products, time }: { readonly products: CsafProducts; readonly time: Timestamp },
): void {
  const ids = itemsAt(vulnerability, 'ids').map((item) => nameAt(item, 'text', 'vulnerabilities.ids.text'))
  const id = optionalNameAt(vulnerability, 'cve', 'vulnerabilities.cve') || ids[0]
  if (id === undefined) throw new RefusedDocument('a vulnerability has neither cve nor ids')
  const named = vulnerabilityFrom(id, ids)
  const facts = factsOf(vulnerability, products)
  for (const [productId, status] of statusesOf(vulnerability, products)) {
    const pair = products.pairOf(productId)
    collector.add({
      vulnerability: { ...named, severities: facts.severities.get(productId) },
      ...pair,
      time,
      findings: findingsOf(status, productId, { facts, version: pair.component.version }),
    })
  }
}

/** CSAF 2.0 (https://docs.oasis-open.org/csaf/csaf/v2.0/): one advisory for each vulnerability and product with a status (docs/spec/advisories.md#advisories-from-vex). */
export const csaf: DocumentFormat = {
  name: 'CSAF',
  recognises: ({ document }) => isMembers(document) && 'csaf_version' in document,
  rowsOf: (members, context) => {
    const document = membersOf(members['document'], 'document')
    if (document['csaf_version'] !== '2.0') throw new RefusedDocument('document.csaf_version is not 2.0')
    if (!categories.has(document['category'])) throw new RefusedDocument(`document.category is not one of ${[...categories].join(', ')}`)
    const publisher = nameAt(membersOf(document['publisher'], 'document.publisher'), 'name', 'document.publisher.name')
    const time = timeAt(membersOf(document['tracking'], 'document.tracking'), 'current_release_date')
    if (time === undefined) throw new RefusedDocument('document.tracking.current_release_date is missing')
    const products = new CsafProducts(membersOf(members['product_tree'] ?? {}, 'product_tree'))
    const collector = new StatementCollector({ form: 'csaf', issuer: publisher, group: context.group(), ecosystem: context.ecosystem })
    for (const vulnerability of itemsAt(members, 'vulnerabilities')) addVulnerability(collector, vulnerability, { products, time })
    return collector.rows()
  },
}
