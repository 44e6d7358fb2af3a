import type { Timestamp } from '@bufbuild/protobuf/wkt'
import {
  AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive,
  Severity_Type,
  type Severity,
} from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { DocumentFormat } from '../format.ts'
import { isMembers, listAt, membersOf, nameAt, namesAt, optionalNameAt, RefusedDocument, timeAt, type Members } from '../members.ts'
import { productOf, type Product } from './products.ts'
import { severityOf } from './severities.ts'
import { findings, maxStatements, noteAt, noteOf, StatementCollector, vulnerabilityFrom, type Finding } from './statements.ts'

const methods: ReadonlyMap<unknown, Severity_Type> = new Map([
  ['CVSSv2', Severity_Type.CVSS_V2],
  ['CVSSv3', Severity_Type.CVSS_V3],
  ['CVSSv31', Severity_Type.CVSS_V3],
  ['CVSSv4', Severity_Type.CVSS_V4],
])

/** The justifications of CycloneDX (docs/spec/advisories.md#advisories-from-vex). */
const justifications: ReadonlyMap<unknown, FalsePositive> = new Map([
  ['code_not_present', FalsePositive.VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE],
  ['code_not_reachable', FalsePositive.VULNERABLE_CODE_NOT_IN_EXECUTION_PATH],
  ['requires_configuration', FalsePositive.VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY],
  ['requires_dependency', FalsePositive.VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY],
  ['requires_environment', FalsePositive.VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY],
  ['protected_by_compiler', FalsePositive.INLINE_MITIGATIONS_EXIST],
  ['protected_at_runtime', FalsePositive.INLINE_MITIGATIONS_EXIST],
  ['protected_at_perimeter', FalsePositive.INLINE_MITIGATIONS_EXIST],
  ['protected_by_mitigating_control', FalsePositive.INLINE_MITIGATIONS_EXIST],
])

function justificationOf(analysis: Members, otherwise: FalsePositive): FalsePositive {
  if (analysis['justification'] === undefined) return otherwise
  const type = justifications.get(analysis['justification'])
  if (type === undefined) throw new RefusedDocument('vulnerabilities.analysis.justification has an unknown value')
  return type
}

/** Responses that mean that no fix comes. */
const withoutFix: readonly string[] = ['can_not_fix', 'will_not_fix']

/** A row for each state of an analysis. */
const states: ReadonlyMap<unknown, (analysis: Members, note: string) => (component: Product) => Finding[]> = new Map([
  ['resolved', (_: Members, note: string) => (component: Product) => [findings.fixed(component.version, note)]],
  ['resolved_with_pedigree', (_: Members, note: string) => (component: Product) => [findings.patched(component.version, note)]],
  [
    'exploitable',
    (analysis: Members, note: string) => {
      const responses = namesAt(analysis, 'response', 'vulnerabilities.analysis.response')
      const isLeft = responses.some((response) => withoutFix.includes(response))
      return () => [findings.affected(note), ...(isLeft ? [findings.fixNotPlanned(note)] : [])]
    },
  ],
  ['in_triage', () => () => [findings.detected()]],
  [
    'false_positive',
    (analysis: Members, note: string) => {
      const type = justificationOf(analysis, FalsePositive.COMPONENT_VULNERABILITY_MISMATCH)
      return () => [findings.notAffected(type, note)]
    },
  ],
  [
    'not_affected',
    (analysis: Members, note: string) => {
      const type = justificationOf(analysis, FalsePositive.UNSPECIFIED)
      return () => [findings.notAffected(type, note)]
    },
  ],
])

/** The components of a document, by `bom-ref`. */
class Components {
  /** The component that the document is about, if it names one. */
  readonly subject: Product | undefined
  readonly #serial: string
  readonly #byRef = new Map<string, Product>()

  constructor(document: Members) {
    this.#serial = optionalNameAt(document, 'serialNumber', 'serialNumber').replace(/^urn:uuid:/, '')
    const metadata = membersOf(document['metadata'] ?? {}, 'metadata')
    const components = [...listAt(document, 'components', { where: 'components', max: maxStatements })]
    if (metadata['component'] !== undefined) {
      components.push(metadata['component'])
      this.subject = componentOf(membersOf(metadata['component'], 'metadata.component'))
    }
    for (let item = components.pop(), read = 1; item !== undefined; item = components.pop(), read++) {
      if (read > maxStatements) throw new RefusedDocument(`the document has more than ${maxStatements} components`)
      const component = membersOf(item, 'components')
      const ref = optionalNameAt(component, 'bom-ref', 'components.bom-ref')
      if (this.#byRef.has(ref)) throw new RefusedDocument(`the document has two components with the bom-ref ${ref}`)
      if (ref !== '') this.#byRef.set(ref, componentOf(component))
      for (const inner of listAt(component, 'components', { where: 'components.components', max: maxStatements })) components.push(inner)
    }
  }

  /** Returns the component of a reference, or of a link into a document. Throws RefusedDocument. */
  get(ref: string): Product {
    const own = this.#byRef.get(ref)
    if (own !== undefined) return own
    const [, serial, fragment = ''] = /^urn:cdx:([^/#]+)\/[0-9]+#(.+)$/.exec(ref) ?? []
    if (serial === undefined) throw new RefusedDocument(`vulnerabilities.affects names a component that the document does not have: ${ref}`)
    const linked = decoded(fragment)
    const inThis = serial === this.#serial ? this.#byRef.get(linked) : undefined
    return inThis ?? productOf(/^pkg:/.test(linked) ? linked : ref, 'vulnerabilities.affects.ref')
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function componentOf(component: Members): Product {
  const purl = optionalNameAt(component, 'purl', 'components.purl')
  if (purl !== '') return productOf(purl, 'components.purl')
  const name = nameAt(component, 'name', 'components.name')
  const group = optionalNameAt(component, 'group', 'components.group')
  const version = optionalNameAt(component, 'version', 'components.version')
  const fullName = group === '' ? name : `${group}/${name}`
  return { ...productOf(version === '' ? fullName : `${fullName}@${version}`, 'components.name'), name: fullName, type: '', version }
}

/** Returns the organisation or the persons that made the document. A document that names none has the form as its author. */
function issuerOf({ metadata }: Members): string {
  const { supplier, manufacturer, manufacture, authors } = membersOf(metadata ?? {}, 'metadata')
  const [author] = Array.isArray(authors) ? (authors as unknown[]) : [] // Array.isArray makes any[] of it
  const named = [supplier, manufacturer, manufacture, author].filter(isMembers).map((one) => optionalNameAt(one, 'name', 'name in metadata'))
  return named.find((name) => name !== '') ?? 'CycloneDX'
}

function severitiesOf(vulnerability: Members): Severity[] {
  return listAt(vulnerability, 'ratings', { where: 'vulnerabilities.ratings' }).flatMap((item) => {
    const rating = membersOf(item, 'vulnerabilities.ratings')
    const type = methods.get(rating['method'])
    const severity = type === undefined ? undefined : severityOf(type, rating, { vector: 'vector', number: 'score' })
    return severity === undefined ? [] : [severity]
  })
}

function addVulnerability(
  collector: StatementCollector,
  vulnerability: Members,
  { components, time }: { readonly components: Components; readonly time: Timestamp | undefined },
): void {
  const references = listAt(vulnerability, 'references', { where: 'vulnerabilities.references' }).map((item) => membersOf(item, 'vulnerabilities.references'))
  const aliases = references.map((reference) => optionalNameAt(reference, 'id', 'vulnerabilities.references.id')).filter((id) => id !== '')
  const named = vulnerabilityFrom(nameAt(vulnerability, 'id', 'vulnerabilities.id'), aliases, severitiesOf(vulnerability))
  // Without an analysis, the document only says that the vulnerability was found.
  const analysis = membersOf(vulnerability['analysis'] ?? { state: 'in_triage' }, 'vulnerabilities.analysis')
  const findingsFor = states.get(analysis['state'])?.(analysis, noteOf(noteAt(analysis, 'detail', 'vulnerabilities.analysis.detail')))
  if (findingsFor === undefined) throw new RefusedDocument('vulnerabilities.analysis.state has an unknown value')
  const own = timeAt(analysis, 'lastUpdated') ?? timeAt(analysis, 'firstIssued') ?? timeAt(vulnerability, 'updated') ?? timeAt(vulnerability, 'published')
  for (const item of listAt(vulnerability, 'affects', { where: 'vulnerabilities.affects', max: maxStatements })) {
    const component = components.get(nameAt(membersOf(item, 'vulnerabilities.affects'), 'ref', 'vulnerabilities.affects.ref'))
    collector.add({ vulnerability: named, artifact: components.subject ?? component, component, time: own ?? time, findings: findingsFor(component) })
  }
}

/** CycloneDX (https://cyclonedx.org): one advisory for each vulnerability and component (docs/spec/advisories.md#advisories-from-vex). */
export const cyclonedx: DocumentFormat = {
  name: 'CycloneDX',
  recognises: ({ bomFormat }) => bomFormat === 'CycloneDX',
  rowsOf: (document, context) => {
    if (document['vulnerabilities'] === undefined) throw new RefusedDocument('vulnerabilities is missing: this is a list of components without findings')
    const time = timeAt(membersOf(document['metadata'] ?? {}, 'metadata'), 'timestamp')
    const collector = new StatementCollector({ form: 'cyclonedx', issuer: issuerOf(document), group: context.group(), ecosystem: context.ecosystem })
    const components = new Components(document)
    for (const item of listAt(document, 'vulnerabilities', { where: 'vulnerabilities', max: maxStatements })) {
      addVulnerability(collector, membersOf(item, 'vulnerabilities'), { components, time })
    }
    return collector.rows()
  },
}
