import { Ecosystem } from '../../../gen/taproot/libraries/v2/artifacts_pb.ts'
import type { NewArtifact, NewVersion } from '../../libraries/library-builder.ts'
import type { DocumentFormat } from '../format.ts'
import { checkedName, isMembers, membersOf, type Members } from '../members.ts'
import { artifactName, assertFewVersions, descriptionOf, msAt, sizeOf } from './artifacts.ts'

function versionOf(version: string, manifest: Members, times: Members): NewVersion {
  const { deprecated, dist, description } = manifest
  const ms = msAt(times, version)
  const withdrawn = deprecated === true || (typeof deprecated === 'string' && deprecated !== '')
  const reason = withdrawn ? descriptionOf(deprecated) : ''
  return {
    version: checkedName(version, 'a version'),
    createMs: ms,
    updateMs: ms,
    sizeBytes: isMembers(dist) ? sizeOf(dist['unpackedSize']) : 0,
    description: withdrawn ? ['deprecated', reason].filter((part) => part !== '').join(': ') : descriptionOf(description),
    withdrawn,
  }
}

function packageOf(document: Members): NewArtifact {
  const name = artifactName(document['name'], 'name')
  const versions = membersOf(document['versions'], 'versions')
  const names = Object.keys(versions)
  assertFewVersions(names.length)
  const times = isMembers(document['time']) ? document['time'] : {}
  const tags = isMembers(document['dist-tags']) ? document['dist-tags'] : {}
  const { latest } = tags
  return {
    ecosystem: Ecosystem.NPM,
    name,
    description: descriptionOf(document['description']),
    latest: typeof latest === 'string' ? latest : undefined,
    // Of the short form, which has no times of versions.
    updateMs: msAt(document, 'modified'),
    cuda: [],
    versions: names.map((version) => versionOf(version, membersOf(versions[version], 'versions'), times)),
  }
}

/** True for what a registry says of a package whose versions were all removed. */
function isRemoved({ time }: Members): boolean {
  return isMembers(time) && isMembers(time['unpublished'])
}

/** A document of an npm registry about one package (a packument), in its full or its short form: one artifact. A removed package gives none. */
export const npm: DocumentFormat = {
  name: 'npm packument',
  recognises: (document) =>
    typeof document['name'] === 'string' && ((isMembers(document['versions']) && isMembers(document['dist-tags'])) || isRemoved(document)),
  rowsOf: (document) => (isRemoved(document) ? [] : [{ kind: 'libraries', row: packageOf(document) }]),
}
