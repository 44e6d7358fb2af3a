import { ContentError, type Distribution } from '../package.ts'
import { describedOf, distributionOf, factsOf, partsOfSyft, programType, type SbomForm } from './forms.ts'
import { isObject, objectsAt, objectsIn, shown, textIn, valuesIn, type SbomObject } from './json.ts'

/** Types of components that are no packages, even if they have a package URL. */
const otherTypes: ReadonlySet<unknown> = new Set(['container', 'cryptographic-asset', 'device', 'file', 'operating-system'])

/** The properties that are read. `path` is for all properties of syft such as `syft:location:0:path`. */
const propertyNames = {
  origin: ['syft:metadata:originPackage', 'syft:metadata:source', 'syft:metadata:sourceRpm', 'syft:metadata:basepackage', 'aquasecurity:trivy:SrcName'],
  path: /^(?:syft:location:\d{1,6}:path|aquasecurity:trivy:FilePath)$/,
  type: 'syft:package:type',
  group: 'syft:metadata:pomProperties:groupId',
  distribution: 'syft:distro:id',
  release: 'syft:distro:versionID',
  /** Trivy has this for a lock file: a component that only holds packages. */
  lockFile: 'aquasecurity:trivy:Class',
} as const

/** The properties of a component that have names and values as texts. */
function propertiesOf(component: SbomObject): readonly (readonly [string, string])[] {
  return objectsIn(component['properties']).flatMap(({ name, value }) =>
    typeof name === 'string' && typeof value === 'string' ? [[name, value] as const] : [],
  )
}

function licensesOf({ licenses }: SbomObject): unknown[] {
  return objectsIn(licenses).map(({ expression, license }) => {
    const { id, name } = isObject(license) ? license : {}
    return expression ?? id ?? name
  })
}

/** Returns the places where the component was found, as CycloneDX says since 1.5. */
function occurrencesOf({ evidence }: SbomObject): unknown[] {
  const occurrences = isObject(evidence) ? evidence['occurrences'] : undefined
  return objectsIn(occurrences).map(({ location }) => location)
}

/** Returns a component as a package, or undefined if it is something else. */
function packageOf(component: SbomObject, distribution: Distribution | undefined) {
  if (otherTypes.has(component['type'])) return undefined
  const properties = propertiesOf(component)
  const values = new Map(properties)
  const purl = component['purl']
  const group = component['group'] ?? values.get(propertyNames.group)
  const paths = properties.filter(([name]) => propertyNames.path.test(name)).map(([, value]) => value)
  return {
    purls: [purl],
    parts: partsOfSyft({ type: values.get(propertyNames.type), group, name: component['name'], version: component['version'], distribution }),
    isExempt: values.has(propertyNames.lockFile) || values.get(propertyNames.type) === programType,
    origin: propertyNames.origin.map((name) => values.get(name)).find(Boolean),
    licenses: licensesOf(component),
    locations: [...paths, ...occurrencesOf(component)],
  }
}

/** Yields the components and those within them, without recursion. The metadata's component is not among them, but those within it are. */
function* componentsOf(document: SbomObject, subject: SbomObject): Generator<SbomObject, void, undefined> {
  const left = [objectsAt(subject, 'components'), objectsAt(document, 'components')]
  for (let components = left.pop(); components !== undefined; components = left.pop()) {
    for (const component of components) {
      yield component
      if (component['components'] !== undefined) left.push(objectsAt(component, 'components'))
    }
  }
}

function distributionIn(components: Iterable<SbomObject>): Distribution | undefined {
  for (const component of components) {
    if (component['type'] !== 'operating-system') continue
    const values = new Map(propertiesOf(component))
    const id = values.get(propertyNames.distribution) ?? component['name']
    return distributionOf(id, values.get(propertyNames.release) ?? component['version'])
  }
  return undefined
}

/** CycloneDX in JSON, of all versions 1.2 to 1.x: what is read has not changed since (https://cyclonedx.org/specification/overview/). */
export const cyclonedx: SbomForm<'CycloneDX'> = {
  name: 'CycloneDX',
  recognises: ({ bomFormat }) => bomFormat === 'CycloneDX',
  read(document, packages) {
    const version = textIn(document['specVersion'])
    if (!/^1\.\d{1,2}$/.test(version)) throw new ContentError('UNSUPPORTED_FORM', `CycloneDX ${shown(version, 'of this version')} is not read: 1.4 to 1.6 are`)
    const { metadata } = document
    const [subject = {}] = isObject(metadata) ? valuesIn(metadata['component']).filter(isObject) : []
    const distribution = distributionIn(componentsOf(document, subject))
    for (const component of componentsOf(document, subject)) {
      const found = packageOf(component, distribution)
      if (found !== undefined) packages.add(found)
    }
    return factsOf(distribution, describedOf({ name: subject['name'], version: subject['version'], purl: subject['purl'] }))
  },
}
