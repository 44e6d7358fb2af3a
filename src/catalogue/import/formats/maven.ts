import { Ecosystem } from '../../../gen/taproot/libraries/v2/artifacts_pb.ts'
import type { NewArtifact } from '../../libraries/library-builder.ts'
import type { DocumentFormat } from '../format.ts'
import { checkedName, RefusedDocument } from '../members.ts'
import { childrenOf, textIn, XmlDocument, type XmlElement } from '../xml.ts'
import { artifactName, assertFewVersions } from './artifacts.ts'

/** Returns a group or artifact id. Throws RefusedDocument. */
function idIn(metadata: XmlElement, name: 'groupId' | 'artifactId'): string {
  const id = artifactName(textIn(metadata, name), name)
  if (/[:/]/.test(id)) throw new RefusedDocument(`${name} has a character that no id has`)
  return id
}

/** Returns a time such as `20260131120000`, in UTC, in milliseconds since 1970; undefined if there is none. Throws RefusedDocument. */
function lastUpdated(versioning: XmlElement): number | undefined {
  const text = textIn(versioning, 'lastUpdated')
  if (text === '') return undefined
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)$/.exec(text) ?? []
  const ms = Date.parse(`${year ?? ''}-${month ?? ''}-${day ?? ''}T${hour ?? ''}:${minute ?? ''}:${second ?? ''}Z`)
  if (Number.isNaN(ms) || ms < 0) throw new RefusedDocument('lastUpdated is no time such as 20260131120000')
  return ms
}

function artifactsOf(metadata: XmlElement): NewArtifact[] {
  const [versioning] = childrenOf(metadata, 'versioning')
  const [list] = childrenOf(versioning, 'versions')
  // Metadata of a group or of one snapshot names no versions.
  if (versioning === undefined || list === undefined) return []
  const versions = [...new Set(childrenOf(list, 'version').map(({ text }) => text))].filter((version) => version !== '')
  assertFewVersions(versions.length)
  const latest = textIn(versioning, 'release') || textIn(versioning, 'latest')
  return [
    {
      ecosystem: Ecosystem.JAVA,
      name: checkedName(`${idIn(metadata, 'groupId')}:${idIn(metadata, 'artifactId')}`, 'groupId and artifactId'),
      description: '',
      latest: latest === '' ? undefined : latest,
      updateMs: lastUpdated(versioning),
      cuda: [],
      versions: versions.map((version) => ({
        version: checkedName(version, 'a version'),
        createMs: undefined,
        updateMs: undefined,
        sizeBytes: 0,
        description: '',
        withdrawn: false,
      })),
    },
  ]
}

/** The `maven-metadata.xml` of a Maven repository: one artifact. That of a group or of one snapshot gives none. */
export const maven: DocumentFormat = {
  name: 'maven-metadata.xml',
  recognises: (document) => document instanceof XmlDocument && document.root.name === 'metadata',
  rowsOf: (document) => (document instanceof XmlDocument ? artifactsOf(document.root).map((row) => ({ kind: 'libraries', row })) : []),
}
