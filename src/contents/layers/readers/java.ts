import { posix } from 'node:path'
import { fromBufferPromise, openPromise, type Entry, type ZipFile } from 'yauzl'
import { contentLimits } from '../../package.ts'
import type { LayerPackage } from '../layer-package.ts'
import type { Findings, Reader } from '../reader.ts'
import { fieldsOf, unixLines } from './fields.ts'

const archive = /\.(jar|war|ear|par|sar|nar|kar|jpi|hpi|lpkg)$/i
const maxArchiveBytes = 512 * 1024 * 1024
const maxMetadataBytes = 1024 * 1024
/** How deep archives in archives are read: an application, its libraries, and what these contain. */
const maxDepth = 2
/** The most files of an archive and of all in it, and the most bytes of archives in it. */
const maxEntries = 200_000
const maxNestedBytes = 1024 * 1024 * 1024

const manifestPath = 'META-INF/MANIFEST.MF'
const pomPath = /^META-INF\/maven\/[^/]+\/[^/]+\/pom\.properties$/
/** Fields of a manifest that may name the group or the version, best first. */
const groupFields = ['implementation-vendor-id', 'bundle-symbolicname', 'automatic-module-name', 'extension-name']
const versionFields = ['implementation-version', 'specification-version', 'plugin-version', 'bundle-version']
const nameFields = ['bundle-symbolicname', 'implementation-title', 'extension-name']

/** Work that is left for an archive with all that are in it. */
interface ArchiveBudget {
  entries: number
  nestedBytes: number
}

interface ArchiveFacts {
  readonly poms: LayerPackage[]
  manifest: ReadonlyMap<string, string> | undefined
}

async function entryBytes(zip: ZipFile, entry: Entry, most: number): Promise<Buffer> {
  if (entry.uncompressedSize > most || !entry.canDecodeFileData()) throw new Error(`${entry.fileName} is too large, or encrypted`)
  const pieces: Buffer[] = []
  // The library fails if a file is larger than the archive says. A stream without an encoding has bytes.
  for await (const piece of (await zip.openReadStreamPromise(entry)) as AsyncIterable<Buffer>) pieces.push(piece)
  return Buffer.concat(pieces)
}

function mavenPackage(group: string, artifact: string, version: string): LayerPackage {
  return { type: 'maven', name: `${group}:${artifact}`, version, url: { namespace: group, name: artifact } }
}

function pomPackage(text: string): LayerPackage | undefined {
  const lines = text.split('\n').map((line) => /^\s*(groupId|artifactId|version)\s*[=:]\s*(\S+)/.exec(line))
  const values = new Map(lines.map((line) => [line?.[1], line?.[2]]))
  const [group, artifact, version] = ['groupId', 'artifactId', 'version'].map((key) => values.get(key))
  return group === undefined || artifact === undefined || version === undefined ? undefined : mavenPackage(group, artifact, version)
}

function firstField(manifest: ReadonlyMap<string, string>, names: readonly string[]): string | undefined {
  const values = names.map((name) => manifest.get(name)?.replace(/;.*$/s, '').trim())
  return values.find((value) => value !== undefined && value !== '')
}

/** Returns the package of an archive without a `pom.properties` of its own, from its file name and manifest. */
function packageOfManifest(fileName: string, manifest: ReadonlyMap<string, string>): LayerPackage | undefined {
  const base = fileName.replace(archive, '')
  const [, fileArtifact = base, fileVersion] = /^(.+?)-(\d[\w.+-]*)$/.exec(base) ?? []
  const artifact = fileArtifact === '' ? firstField(manifest, nameFields) : fileArtifact
  const version = fileVersion ?? firstField(manifest, versionFields) ?? ''
  if (artifact === undefined) return undefined
  const groups = groupFields.map((name) => firstField(manifest, [name])).filter((value) => value !== undefined && /^[a-z][\w-]*(\.[\w-]+)+$/.test(value))
  const [group = artifact] = groups
  const suffix = `.${artifact}`.replaceAll('-', '.')
  const isSame = group.replaceAll('-', '.').endsWith(suffix)
  return mavenPackage(isSame ? group.slice(0, -suffix.length) : group, artifact, version)
}

/** Reads an archive and those in it, and closes it. */
async function readArchive(
  zip: ZipFile,
  path: string,
  { findings, depth, budget }: { findings: Findings; depth: number; budget: ArchiveBudget },
): Promise<void> {
  const facts: ArchiveFacts = { poms: [], manifest: undefined }
  try {
    for await (const entry of zip.eachEntry()) {
      if (--budget.entries < 0) throw new Error(`the archive has more than ${maxEntries} files`)
      const name = entry.fileName
      if (name.toUpperCase() === manifestPath)
        [facts.manifest] = [fieldsOf(unixLines(await entryBytes(zip, entry, maxMetadataBytes)).split('\n\n', 1)[0] ?? '', '')]
      else if (pomPath.test(name))
        facts.poms.push(...[pomPackage(unixLines(await entryBytes(zip, entry, maxMetadataBytes)))].filter((pom) => pom !== undefined))
      else if (archive.test(name)) await readNested(zip, entry, { findings, depth: depth + 1, budget })
    }
  } finally {
    zip.close()
  }
  const fileName = posix.basename(path)
  for (const pom of facts.poms) findings.add(pom)
  // An archive may contain others whole. Its own name is that of the file, without a version.
  const [base] = fileName.replace(archive, '').split(/-(?=\d)/)
  if (facts.poms.some(({ url }) => url?.name === base)) return
  const found = facts.manifest === undefined ? undefined : packageOfManifest(fileName, facts.manifest)
  if (found !== undefined) findings.add(found)
}

/** Reads an archive in another one. One that cannot be read is a problem of its own. */
async function readNested(zip: ZipFile, entry: Entry, place: { findings: Findings; depth: number; budget: ArchiveBudget }): Promise<void> {
  const { findings, depth, budget } = place
  try {
    if (depth > maxDepth) throw new Error(`it is deeper than ${maxDepth} archives`)
    budget.nestedBytes -= entry.uncompressedSize
    if (budget.nestedBytes < 0) throw new Error(`archives in the archive have more than ${maxNestedBytes} bytes`)
    const bytes = await entryBytes(zip, entry, contentLimits.parsedFileBytes)
    await readArchive(await fromBufferPromise(bytes), entry.fileName, place)
  } catch (error) {
    findings.addProblem(error, entry.fileName.slice(0, 200))
  }
}

/** Archives of Java: the packages that Maven put into them, else what the manifest says. */
export const java: Reader = {
  wants: (path) => archive.test(path),
  async read(file, findings) {
    const zip = await openPromise(await file.saved(maxArchiveBytes), { autoClose: false })
    await readArchive(zip, file.path, { findings, depth: 0, budget: { entries: maxEntries, nestedBytes: maxNestedBytes } })
  },
}
