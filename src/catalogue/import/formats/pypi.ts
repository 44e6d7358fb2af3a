import { Ecosystem } from '../../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { cudaVersionOf } from '../../libraries/artifact-facts.ts'
import type { NewArtifact, NewVersion } from '../../libraries/library-builder.ts'
import type { DocumentFormat } from '../format.ts'
import { checkedName, isMembers, listAt, membersOf, RefusedDocument, type Members } from '../members.ts'
import { artifactName, assertFewVersions, descriptionOf, maxFiles, msAt, sizeOf } from './artifacts.ts'

/** Returns a project's name as PyPI compares names: lower case, with single hyphens. Throws RefusedDocument. */
function projectName(value: unknown, where: string): string {
  return artifactName(value, where)
    .toLowerCase()
    .replaceAll(/[-_.]+/g, '-')
}

/** What files of a version say about it, added up. */
class VersionFiles {
  readonly #version: string
  #createMs: number | undefined
  #updateMs: number | undefined
  #sizeBytes = 0
  #files = 0
  #yanked = 0
  #reason = ''

  constructor(version: string) {
    this.#version = version
  }

  /** Throws RefusedDocument if a member has a wrong form. */
  add(file: Members, uploadTime: 'upload_time_iso_8601' | 'upload-time'): void {
    const ms = msAt(file, uploadTime)
    if (ms !== undefined) {
      this.#createMs = Math.min(this.#createMs ?? ms, ms)
      this.#updateMs = Math.max(this.#updateMs ?? ms, ms)
    }
    this.#sizeBytes += sizeOf(file['size'])
    this.#files += 1
    const { yanked } = file
    if (yanked !== true && (typeof yanked !== 'string' || yanked === '')) return
    this.#yanked += 1
    this.#reason ||= descriptionOf(typeof yanked === 'string' ? yanked : file['yanked_reason'])
  }

  /** Returns the version. It is withdrawn if all of its files are. */
  version(): NewVersion {
    const withdrawn = this.#files > 0 && this.#yanked === this.#files
    return {
      version: this.#version,
      createMs: this.#createMs,
      updateMs: this.#updateMs,
      sizeBytes: this.#sizeBytes,
      description: withdrawn ? ['yanked', this.#reason].filter((part) => part !== '').join(': ') : '',
      withdrawn,
    }
  }
}

/** Returns the CUDA versions that trove classifiers name: `Environment :: GPU :: NVIDIA CUDA :: 12 :: 12.1`. */
function cudaOf(info: Members): string[] {
  const found = listAt(info, 'classifiers', { where: 'info.classifiers' }).flatMap((item) => {
    const [, cuda] = typeof item === 'string' ? (/^Environment :: GPU :: NVIDIA CUDA :: (?:\d+ :: )?(\d{1,3}(?:\.\d{1,3})?)$/.exec(item) ?? []) : []
    return cuda === undefined ? [] : [cudaVersionOf(cuda)]
  })
  return [...new Set(found)]
}

function projectOf(document: Members): NewArtifact {
  const info = membersOf(document['info'], 'info')
  if (!isMembers(document['releases'])) throw new RefusedDocument('releases is missing: import the JSON of the whole project, not of one version')
  const releases = Object.entries(document['releases'])
  assertFewVersions(releases.length)
  let files = 0
  const versions = releases.map(([version, list]) => {
    const found = new VersionFiles(checkedName(version, 'a version'))
    const all = listAt({ list }, 'list', { where: 'releases', max: maxFiles })
    if ((files += all.length) > maxFiles) throw new RefusedDocument(`the project has more than ${maxFiles} files`)
    for (const file of all) found.add(membersOf(file, 'releases'), 'upload_time_iso_8601')
    return found.version()
  })
  const { version } = info
  return {
    ecosystem: Ecosystem.PYTHON,
    name: projectName(info['name'], 'info.name'),
    description: descriptionOf(info['summary']),
    latest: typeof version === 'string' ? version : undefined,
    updateMs: undefined,
    cuda: cudaOf(info),
    versions,
  }
}

/** The JSON of a project on PyPI (https://docs.pypi.org/api/json/): one artifact. */
export const pypiProject: DocumentFormat = {
  name: 'PyPI project',
  recognises: ({ info, urls, releases }) => isMembers(info) && (Array.isArray(urls) || isMembers(releases)),
  rowsOf: (document) => [{ kind: 'libraries', row: projectOf(document) }],
}

/** Number of hyphens in the version of an old file's name. */
const maxHyphens = 8

/** Returns the version that a file's name has; undefined if it is not a distribution of the project. */
function versionOfFile(filename: string, project: string): string | undefined {
  const wheel = /^[^-]+-([^-]+)-.+\.whl$/.exec(filename)
  if (wheel !== null) return wheel[1]
  const base = /^(.+)\.(?:tar\.gz|zip|tar\.bz2|tgz)$/.exec(filename)?.[1]
  if (base === undefined) return undefined
  // The name may contain hyphens, so the version follows the longest start that is the name.
  for (let at = base.lastIndexOf('-'), tries = 0; at > 0 && tries < maxHyphens; at = base.lastIndexOf('-', at - 1), tries++)
    if (
      base
        .slice(0, at)
        .toLowerCase()
        .replaceAll(/[-_.]+/g, '-') === project
    )
      return base.slice(at + 1)
  return undefined
}

function simpleOf(document: Members): NewArtifact {
  const name = projectName(document['name'], 'name')
  const files = listAt(document, 'files', { where: 'files', max: maxFiles })
  const versions = new Map<string, VersionFiles>()
  for (const item of listAt(document, 'versions', { where: 'versions', max: maxFiles })) {
    if (typeof item !== 'string') throw new RefusedDocument('versions has an item that is no text')
    const version = checkedName(item, 'a version')
    versions.set(version, new VersionFiles(version))
  }
  for (const item of files) {
    const file = membersOf(item, 'files')
    const { filename } = file
    if (typeof filename !== 'string') throw new RefusedDocument('files has an item without a filename')
    const version = filename.length > 1_024 ? undefined : versionOfFile(filename, name)
    if (version === undefined) continue
    const found = versions.get(version) ?? new VersionFiles(checkedName(version, 'a version'))
    versions.set(version, found)
    found.add(file, 'upload-time')
  }
  assertFewVersions(versions.size)
  return {
    ecosystem: Ecosystem.PYTHON,
    name,
    description: '',
    latest: undefined,
    updateMs: undefined,
    cuda: [],
    versions: [...versions.values()].map((found) => found.version()),
  }
}

/** The simple API of Python package indexes in JSON (PEP 691): one artifact. It has no descriptions. */
export const pypiSimple: DocumentFormat = {
  name: 'Python simple API',
  recognises: ({ meta, name, files }) => isMembers(meta) && 'api-version' in meta && typeof name === 'string' && Array.isArray(files),
  rowsOf: (document) => [{ kind: 'libraries', row: simpleOf(document) }],
}
