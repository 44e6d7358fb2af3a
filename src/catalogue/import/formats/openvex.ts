import type { Timestamp } from '@bufbuild/protobuf/wkt'
import { AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive } from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { DocumentFormat } from '../format.ts'
import { isMembers, listAt, membersOf, nameAt, namesAt, optionalNameAt, RefusedDocument, timeAt, type Members } from '../members.ts'
import { productOf, type Product } from './products.ts'
import {
  findings,
  maxStatements,
  noteAt,
  noteOf,
  StatementCollector,
  vulnerabilityFrom,
  vexJustifications,
  type Finding,
  type NamedVulnerability,
} from './statements.ts'

/** The vulnerability: an object, or only its name as in early versions. Throws RefusedDocument. */
function vulnerabilityOf(statement: Members): NamedVulnerability {
  const { vulnerability } = statement
  if (!isMembers(vulnerability)) return vulnerabilityFrom(nameAt(statement, 'vulnerability', 'statements.vulnerability'), [])
  const name = optionalNameAt(vulnerability, 'name', 'statements.vulnerability.name')
  const id = name === '' ? nameAt(vulnerability, '@id', 'statements.vulnerability.name') : name
  return vulnerabilityFrom(id, namesAt(vulnerability, 'aliases', 'statements.vulnerability.aliases'))
}

/** Reads a product or a part of one: an object, or only its identifier as in early versions. The package URL wins. Throws RefusedDocument. */
function componentOf(item: unknown, where: string): Product {
  const component = typeof item === 'string' ? { '@id': item } : membersOf(item, where)
  const identifiers = component['identifiers'] === undefined ? {} : membersOf(component['identifiers'], `${where}.identifiers`)
  const candidates = [
    optionalNameAt(identifiers, 'purl', `${where}.identifiers.purl`),
    optionalNameAt(component, '@id', `${where}.@id`),
    optionalNameAt(identifiers, 'cpe23', `${where}.identifiers.cpe23`),
    optionalNameAt(identifiers, 'cpe22', `${where}.identifiers.cpe22`),
  ]
  const identifier = candidates.find((candidate) => candidate !== '')
  if (identifier === undefined) throw new RefusedDocument(`${where} has neither @id nor a package URL nor a CPE name`)
  return productOf(identifier, where)
}

/** Returns what the statement says of a component. */
type FindingOf = (component: Product) => Finding

/** A row for each status: reads what the statement adds to it. Throws RefusedDocument. */
const statuses: ReadonlyMap<unknown, (statement: Members, notes: string) => FindingOf> = new Map([
  [
    'not_affected',
    (statement: Members, notes: string) => {
      const { justification } = statement
      const type = justification === undefined ? FalsePositive.UNSPECIFIED : vexJustifications.get(justification)
      if (type === undefined) throw new RefusedDocument('statements.justification has an unknown value')
      const note = noteOf(noteAt(statement, 'impact_statement', 'statements.impact_statement'), notes)
      return () => findings.notAffected(type, note)
    },
  ],
  [
    'affected',
    (statement: Members, notes: string) => {
      const note = noteOf(noteAt(statement, 'action_statement', 'statements.action_statement'), notes)
      return () => findings.affected(note)
    },
  ],
  ['fixed', (_: Members, notes: string) => (component: Product) => findings.fixed(component.version, notes)],
  ['under_investigation', () => () => findings.detected()],
])

function addStatement(collector: StatementCollector, statement: Members, documentTime: Timestamp | undefined): void {
  const vulnerability = vulnerabilityOf(statement)
  const time = timeAt(statement, 'timestamp') ?? documentTime
  const findingFor = statuses.get(statement['status'])?.(statement, noteAt(statement, 'status_notes', 'statements.status_notes'))
  if (findingFor === undefined) throw new RefusedDocument('statements.status has an unknown value')
  const products = listAt(statement, 'products', { where: 'statements.products', max: maxStatements })
  if (products.length === 0) throw new RefusedDocument('statements.products is empty: a statement names its products')
  for (const item of products) {
    const artifact = componentOf(item, 'statements.products')
    const parts = isMembers(item) ? listAt(item, 'subcomponents', { where: 'statements.products.subcomponents', max: maxStatements }) : []
    const components = parts.length === 0 ? [artifact] : parts.map((part) => componentOf(part, 'statements.products.subcomponents'))
    for (const component of components) collector.add({ vulnerability, artifact, component, time, findings: [findingFor(component)] })
  }
}

/** OpenVEX (https://github.com/openvex/spec): one advisory for each vulnerability, product and part of a product (docs/spec/advisories.md#advisories-from-vex). */
export const openvex: DocumentFormat = {
  name: 'OpenVEX',
  recognises: (document) => typeof document['@context'] === 'string' && document['@context'].startsWith('https://openvex.dev/ns'),
  rowsOf: (document, context) => {
    const collector = new StatementCollector({
      form: 'openvex',
      issuer: nameAt(document, 'author', 'author'),
      group: context.group(),
      ecosystem: context.ecosystem,
    })
    const documentTime = timeAt(document, 'timestamp')
    for (const item of listAt(document, 'statements', { where: 'statements', max: maxStatements })) {
      addStatement(collector, membersOf(item, 'statements'), documentTime)
    }
    return collector.rows()
  },
}
