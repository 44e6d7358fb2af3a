import { ContentError } from '../package.ts'
import { describedOf, distributionOf, factsOf, type SbomForm } from './forms.ts'
import { isObject, objectsAt, objectsIn, textIn, valuesIn, type SbomObject } from './json.ts'
import { evidentBy, programId, sourceOf } from './spdx.ts'

const packageType = 'software_Package'
const systemPurpose = 'operatingSystem'
/** Purposes of packages in SPDX that are no packages here. */
const otherPurposes: ReadonlySet<unknown> = new Set(['container', 'device', 'diskImage', 'file', 'filesystemImage', systemPurpose])
/** The relationships to licences. */
const licenseRelations: ReadonlySet<unknown> = new Set(['hasDeclaredLicense', 'hasConcludedLicense'])
const licenseList = /^https?:\/\/spdx\.org\/licenses\/([\w.+-]{1,100})$/
const contexts = /^https?:\/\/spdx\.(?:org|github\.io)\/.*\b3\.\d+/

function typeOf(element: SbomObject): unknown {
  return element['type'] ?? element['@type']
}

/** True for a relationship to a file in which a package was found: by the specification, or as syft writes it. */
function isEvidence({ relationshipType, comment }: SbomObject): boolean {
  return relationshipType === 'hasEvidence' || (relationshipType === 'other' && typeof comment === 'string' && evidentBy.test(comment))
}

function idOf(element: SbomObject): unknown {
  return element['spdxId'] ?? element['@id']
}

/** Returns the package URLs of an element: its own member, and its external identifiers. */
function purlsOf(element: SbomObject): unknown[] {
  const identifiers = objectsIn(element['externalIdentifier']).filter(({ externalIdentifierType }) => externalIdentifierType === 'packageUrl')
  return [...valuesIn(element['software_packageUrl']), ...identifiers.map(({ identifier }) => identifier)]
}

/** The elements of a document by id, and their relationships. */
class Graph {
  readonly elements: readonly SbomObject[]
  readonly #byId = new Map<unknown, SbomObject>()
  readonly #relations = new Map<unknown, SbomObject[]>()

  constructor(document: SbomObject) {
    this.elements = objectsAt(document, '@graph')
    for (const element of this.elements) {
      const id = idOf(element)
      if (typeof id === 'string') this.#byId.set(id, element)
      if (element['relationshipType'] === undefined) continue
      const from = element['from']
      const known = this.#relations.get(from)
      if (known === undefined) this.#relations.set(from, [element])
      else known.push(element)
    }
  }

  /** Returns an element by a reference. An element that is written in its place is returned itself. */
  get(reference: unknown): SbomObject | undefined {
    return isObject(reference) ? reference : this.#byId.get(reference)
  }

  /** Returns the first root of an element. */
  rootOf(element: SbomObject | undefined): SbomObject | undefined {
    return element && this.get(valuesIn(element['rootElement'])[0])
  }

  /** Returns the licences of an element, and where it was found. Of elements with the same id, only the first one has them, else they take quadratic time. */
  take(element: SbomObject): { readonly licenses: readonly unknown[]; readonly locations: readonly unknown[] } {
    const relations = this.#relations.get(idOf(element)) ?? []
    this.#relations.delete(idOf(element))
    const licenses = relations.filter(({ relationshipType }) => licenseRelations.has(relationshipType)).flatMap(({ to }) => valuesIn(to))
    const places = relations.filter(isEvidence).flatMap(({ to }) => valuesIn(to))
    return { licenses: licenses.map((reference) => this.#licenseOf(reference)), locations: places.map((reference) => this.get(reference)?.['name']) }
  }

  /** Returns an expression or a name. Licences of the list of SPDX need no element. */
  #licenseOf(reference: unknown): unknown {
    const license = this.get(reference)
    if (license !== undefined) return license['simplelicensing_licenseExpression'] ?? license['name']
    return typeof reference === 'string' ? licenseList.exec(reference)?.[1] : undefined
  }
}

function isContext(value: unknown): boolean {
  return contexts.test(textIn(value))
}

/** SPDX 3.0 in JSON-LD, as one graph (https://spdx.github.io/spdx-spec/v3.0.1/). */
export const spdx3: SbomForm<'SPDX 3'> = {
  name: 'SPDX 3',
  recognises: (document) => valuesIn(document['@context']).some(isContext),
  read(document, packages) {
    if (document['@graph'] === undefined) throw new ContentError('UNSUPPORTED_FORM', 'the document has no @graph: SPDX 3.0 is read as one list of elements')
    const graph = new Graph(document)
    const elements = graph.elements.filter((element) => typeOf(element) === packageType)
    // The root of the document is an SBOM, whose root is the package; or it is the package.
    const root = graph.rootOf(graph.elements.find((element) => typeOf(element) === 'SpdxDocument'))
    const subject = graph.rootOf(root) ?? root
    for (const element of elements) {
      const purls = purlsOf(element)
      if (otherPurposes.has(element['software_primaryPurpose']) || (purls.length === 0 && element === subject)) continue
      const source = sourceOf(element['software_sourceInfo'])
      const { licenses, locations } = graph.take(element)
      packages.add({ purls, isExempt: programId.test(textIn(idOf(element))), origin: source.origin, licenses, locations: [...source.locations, ...locations] })
    }
    const system = elements.find((element) => element['software_primaryPurpose'] === systemPurpose)
    return factsOf(
      system && distributionOf(system['name'], system['software_packageVersion']),
      subject && describedOf({ name: subject['name'], version: subject['software_packageVersion'], purl: purlsOf(subject)[0] }),
    )
  },
}
