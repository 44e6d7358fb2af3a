import { ContentError } from '../../package.ts'
import type { LayerPackage } from '../layer-package.ts'
import type { Findings, Reader } from '../reader.ts'

const elf = Buffer.from('\x7fELF', 'latin1')
const magic = Buffer.from('\xff Go buildinf:', 'latin1')
/** The build information starts at a multiple of this. */
const alignment = 16
/** The length of what is before the two texts: the magic, the size of pointers, flags, and room. */
const headerBytes = 32
const flagsAt = 15
/** The flag of Go 1.18 and later: the texts follow the header. */
const inlineTexts = 2
/** Bytes before and after the list of modules. */
const sentinelBytes = 16
/** The longest text, in bytes. Kubernetes has 30,000. */
const maxTextBytes = 1024 * 1024
/** The most places that look like build information. */
const maxPlaces = 16

/** The version of a module that is not from a tag. */
const unknownVersion = '(devel)'

interface BuildInfo {
  readonly goVersion: string
  readonly modules: string
}

/** Reads a text with its length before it: undefined if more bytes are needed, null if the length is wrong. */
function textAt(bytes: Buffer, at: number): { readonly text: Buffer; readonly end: number } | undefined | null {
  let length = 0
  let next = at
  for (let scale = 1; ; scale *= 128) {
    const byte = bytes[next++]
    if (byte === undefined) return undefined
    length += (byte & 127) * scale
    if (length > maxTextBytes || scale > maxTextBytes) return null
    if (byte < 128) break
  }
  return next + length > bytes.length ? undefined : { text: bytes.subarray(next, next + length), end: next + length }
}

/** Reads the build information at the start: undefined if more bytes are needed, null if there is none. */
function buildInfo(bytes: Buffer): BuildInfo | undefined | null {
  const flags = bytes[flagsAt]
  if (flags === undefined) return undefined
  if ((flags & inlineTexts) === 0) return null
  const version = textAt(bytes, headerBytes)
  if (version === undefined || version === null) return version
  const modules = textAt(bytes, version.end)
  if (modules === undefined || modules === null) return modules
  const isWhole = modules.text.length > 2 * sentinelBytes && modules.text.at(-sentinelBytes - 1) === 0x0a
  const goVersion = version.text.toString('utf8')
  // Other bytes can look like two texts.
  if (!isWhole && !/^(?:go|devel)/.test(goVersion)) return null
  return { goVersion, modules: isWhole ? modules.text.toString('utf8', sentinelBytes, modules.text.length - sentinelBytes) : '' }
}

/** Searches build information in an executable, and keeps only a part of it in memory. The limit of all layers bounds the search. Rejects with ContentError TOO_LARGE. */
async function findBuildInfo(pieces: AsyncIterable<Buffer>): Promise<BuildInfo | undefined> {
  let bytes = Buffer.alloc(0)
  let offset = 0
  let places = 0
  for await (const piece of pieces) {
    bytes = Buffer.concat([bytes, piece])
    if (offset === 0 && !elf.subarray(0, bytes.length).equals(bytes.subarray(0, elf.length))) return undefined
    let start = 0
    for (;;) {
      const at = bytes.indexOf(magic, start)
      if (at < 0) {
        start = Math.max(start, bytes.length - magic.length + 1)
        break
      }
      const isPlace = (offset + at) % alignment === 0
      const found = isPlace ? buildInfo(bytes.subarray(at)) : null
      if (found !== undefined && found !== null) return found
      start = found === undefined ? at : at + 1
      if (found === undefined) break
      if (isPlace && ++places >= maxPlaces)
        throw new ContentError('TOO_LARGE', `more than ${maxPlaces - 1} places look like build information of Go, and are none`)
    }
    bytes = bytes.subarray(start)
    offset += start
  }
  return undefined
}

function goModule(path: string, version: string): LayerPackage {
  const slash = path.lastIndexOf('/')
  return { type: 'golang', name: path, version, url: slash < 0 ? {} : { namespace: path.slice(0, slash), name: path.slice(slash + 1) } }
}

/** Returns the version of a main module that was built from a working copy, as Go names commits without a tag. */
function pseudoVersion(settings: ReadonlyMap<string, string>): string {
  const [revision = '', time = ''] = ['vcs.revision', 'vcs.time'].map((key) => settings.get(key))
  const digits = time.replaceAll(/\D/g, '').slice(0, 14)
  return revision === '' || digits.length < 14 ? '' : `v0.0.0-${digits}-${revision.slice(0, 12)}`
}

/** Returns the modules that the lines name, with those that replace others in their place. */
function modulesOf(lines: readonly (readonly string[])[], settings: ReadonlyMap<string, string>): readonly LayerPackage[] {
  const main = lines.some(([kind]) => kind === 'mod') ? 'mod' : 'path'
  const found: LayerPackage[] = []
  for (const [kind, name = '', written = ''] of lines) {
    const version = written === unknownVersion ? '' : written
    const before = found.at(-1)
    if (kind === 'dep') found.push(goModule(name, version))
    else if (kind === main) found.push(goModule(name, version === '' ? pseudoVersion(settings) : version))
    // The module of the line before is replaced by this one. A folder has no version, and nor has then the module.
    else if (kind === '=>' && before !== undefined) found.splice(-1, 1, version === '' ? { ...before, version } : goModule(name, version))
  }
  return found
}

function addModules({ goVersion, modules }: BuildInfo, findings: Findings): void {
  const [, standard = ''] = /^go(\S+)/.exec(goVersion) ?? []
  const lines = modules.split('\n').map((line) => line.split('\t'))
  const builds = lines.filter(([kind]) => kind === 'build').map(([, text = '']) => text)
  const settings = new Map(builds.map((text) => [text.slice(0, text.indexOf('=')), text.slice(text.indexOf('=') + 1)]))
  for (const found of modulesOf(lines, settings)) findings.add(found)
  if (standard !== '') findings.add({ type: 'golang', name: 'stdlib', version: standard, licenses: ['BSD-3-Clause'] })
}

/** Executables of Go (ELF), which name the modules that they were built from. */
export const go: Reader = {
  wants: (_path, isExecutable) => isExecutable,
  async read(file, findings) {
    const found = await findBuildInfo(file.pieces())
    if (found !== undefined) addModules(found, findings)
  },
}
