import { ContentError } from '../package.ts'
import { describedOf, distributionOf, factsOf, type SbomForm } from './forms.ts'
import { objectsAt, objectsIn, shown, textIn, valuesIn, type SbomObject } from './json.ts'

const documentId = 'SPDXRef-DOCUMENT'
const systemPurpose = 'OPERATING-SYSTEM'
/** Purposes of packages in SPDX that are no packages here. */
const otherPurposes: ReadonlySet<unknown> = new Set(['CONTAINER', 'DEVICE', 'FILE', systemPurpose])
/** The comment of a relationship to the file in which syft found a package. */
export const evidentBy = /^evident-by:/
/** The longest text about the source that is read. */
const maxInfoLength = 65_536

/** Trivy writes this for a lock file or a folder: a package that only holds others. */
const holderClass = /^Class: /

/** The id that syft gives to a program that it recognised by its bytes. */
export const programId = /^SPDXRef[-:]Package-binary-/

/** What tools write into `sourceInfo`: where a package was found (syft, trivy), and what it was built from (trivy). */
const sourceInfo = {
  locations: /^(?:acquired package info from .{1,200}?: (?=\/)|package found in: )(.+)$/,
  origin: /^built package from: (\S+)/,
} as const

function purlsOf(element: SbomObject): unknown[] {
  return objectsIn(element['externalRefs']).flatMap(({ referenceType, referenceLocator }) => (referenceType === 'purl' ? [referenceLocator] : []))
}

/** True for what only holds packages, as trivy writes it: texts in its older versions, annotations in newer ones. */
function isHolder({ primaryPackagePurpose, attributionTexts, annotations }: SbomObject): boolean {
  const texts = [...valuesIn(attributionTexts), ...objectsIn(annotations).map(({ comment }) => comment)]
  return primaryPackagePurpose === 'APPLICATION' && texts.some((text) => typeof text === 'string' && holderClass.test(text))
}

/** Returns the ids of what the document is about. */
function describedIds(document: SbomObject): Set<unknown> {
  const ids = new Set(valuesIn(document['documentDescribes']))
  for (const { spdxElementId, relatedSpdxElement, relationshipType } of objectsAt(document, 'relationships')) {
    if (spdxElementId === documentId && relationshipType === 'DESCRIBES') ids.add(relatedSpdxElement)
    if (relatedSpdxElement === documentId && relationshipType === 'DESCRIBED_BY') ids.add(spdxElementId)
  }
  return ids
}

/** Returns the paths of the files in which each package was found, by its id. */
function evidence(document: SbomObject): Map<unknown, unknown[]> {
  const names = new Map(objectsAt(document, 'files').map(({ SPDXID, fileName }) => [SPDXID, fileName]))
  const found = new Map<unknown, unknown[]>()
  for (const { spdxElementId, relatedSpdxElement, comment } of objectsAt(document, 'relationships')) {
    if (typeof comment !== 'string' || !evidentBy.test(comment) || !names.has(relatedSpdxElement)) continue
    const paths = found.get(spdxElementId)
    if (paths === undefined) found.set(spdxElementId, [names.get(relatedSpdxElement)])
    else paths.push(names.get(relatedSpdxElement))
  }
  return found
}

/** Returns what tools write in a text about the source. A path with a comma and a space is cut: the text does not tell. */
export function sourceOf(value: unknown): { readonly locations: readonly string[]; readonly origin: string } {
  const info = typeof value === 'string' && value.length <= maxInfoLength ? value : ''
  const [, paths = ''] = sourceInfo.locations.exec(info) ?? []
  const [, origin = ''] = sourceInfo.origin.exec(info) ?? []
  return { locations: paths.split(', '), origin }
}

/** SPDX in JSON, 2.2 and 2.3 (https://spdx.github.io/spdx-spec/v2.3/). */
export const spdx: SbomForm<'SPDX 2'> = {
  name: 'SPDX 2',
  recognises: ({ spdxVersion }) => typeof spdxVersion === 'string',
  read(document, packages) {
    const version = textIn(document['spdxVersion'])
    if (!/^SPDX-2\.[23]$/.test(version)) throw new ContentError('UNSUPPORTED_FORM', `${shown(version, 'this version of SPDX')} is not read: SPDX-2.3 is`)
    const elements = objectsAt(document, 'packages')
    const described = describedIds(document)
    const paths = evidence(document)
    const subject = elements.find(({ SPDXID }) => described.has(SPDXID))
    for (const element of elements) {
      const purls = purlsOf(element)
      const isOther = otherPurposes.has(element['primaryPackagePurpose']) || (purls.length === 0 && element === subject)
      if (isOther) continue
      const source = sourceOf(element['sourceInfo'])
      packages.add({
        purls,
        isExempt: isHolder(element) || programId.test(textIn(element['SPDXID'])),
        origin: source.origin,
        licenses: [element['licenseDeclared'], element['licenseConcluded']],
        locations: [...source.locations, ...(paths.get(element['SPDXID']) ?? [])],
      })
      // Many packages can have the same id: only the first one has its paths, else they take quadratic time.
      paths.delete(element['SPDXID'])
    }
    const system = elements.find(({ primaryPackagePurpose }) => primaryPackagePurpose === systemPurpose)
    return factsOf(
      system && distributionOf(system['name'], system['versionInfo']),
      subject && describedOf({ name: subject['name'], version: subject['versionInfo'], purl: purlsOf(subject)[0] }),
    )
  },
}
