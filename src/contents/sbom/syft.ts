import { ContentError } from '../package.ts'
import { describedOf, distributionOf, factsOf, partsOfSyft, programType, type SbomForm } from './forms.ts'
import { isObject, objectsAt, objectsIn, valuesIn, type SbomObject } from './json.ts'

/** Where the metadata of a package names its source package: of apk, deb, rpm and alpm. */
const originKeys = ['originPackage', 'source', 'sourceRpm', 'basepackage'] as const

function membersAt(object: SbomObject, key: string): SbomObject {
  const value = object[key]
  return isObject(value) ? value : {}
}

function originOf(metadata: SbomObject): unknown {
  return originKeys.map((key) => metadata[key]).find((value) => typeof value === 'string' && value !== '')
}

/** Returns the licences. Older documents have texts, newer ones objects. */
function licensesOf({ licenses }: SbomObject): unknown[] {
  return valuesIn(licenses).map((license) => (isObject(license) ? license['spdxExpression'] || license['value'] : license))
}

function isSyft({ descriptor, schema }: SbomObject): boolean {
  const url = isObject(schema) ? schema['url'] : undefined
  return (isObject(descriptor) && descriptor['name'] === 'syft') || (typeof url === 'string' && url.includes('/anchore/syft/'))
}

/** The JSON of syft, in any version that has a package URL in each artifact (https://github.com/anchore/syft/tree/main/schema/json). */
export const syft: SbomForm<'syft'> = {
  name: 'syft',
  recognises: (document) => isSyft(document) && document['artifacts'] !== undefined,
  read(document, packages) {
    if (document['artifacts'] === null) throw new ContentError('UNREADABLE', 'artifacts is no list')
    const { id, name, versionID, version } = membersAt(document, 'distro')
    const distribution = distributionOf(id ?? name, versionID ?? version)
    for (const artifact of objectsAt(document, 'artifacts')) {
      const metadata = membersAt(artifact, 'metadata')
      const group = membersAt(metadata, 'pomProperties')['groupId']
      packages.add({
        purls: [artifact['purl']],
        parts: partsOfSyft({ type: artifact['type'], group, name: artifact['name'], version: artifact['version'], distribution }),
        isExempt: artifact['type'] === programType,
        origin: originOf(metadata),
        licenses: licensesOf(artifact),
        locations: objectsIn(artifact['locations']).map((location) => location['path']),
      })
    }
    const source = membersAt(document, 'source')
    const target = membersAt(source, 'metadata')
    const described = { name: source['name'] || target['userInput'], version: source['version'], purl: undefined }
    return factsOf(distribution, describedOf(described))
  },
}
