import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ReadEntry } from 'tar'
import { ContentError, isSystemError, type Distribution, type ImagePackage } from '../package.ts'
import { FileLinks } from './file-links.ts'
import { FileTree } from './file-tree.ts'
import { imagePackage } from './layer-package.ts'
import { entriesOfLayer, LayerBudget } from './layer-entries.ts'
import { EntryFile } from './layer-file.ts'
import { Findings, type FileProblem, type Reader } from './reader.ts'
import { go } from './readers/go.ts'
import { osReleasePaths } from './readers/os-release.ts'
import { readers } from './readers/readers.ts'

/** A file in the layers that could not be read, or not whole. */
export interface SkippedFile extends FileProblem {
  readonly path: string
}

/** What the layers of an image contain. */
export interface LayerContents {
  readonly distribution: Distribution | undefined
  /** Sorted by package URL, each once. */
  readonly packages: readonly ImagePackage[]
  /** At most 100. If there are any, packages may be missing. */
  readonly skipped: readonly SkippedFile[]
}

interface KeptFile {
  readonly reader: Reader
  readonly findings: Findings
}

/** What is known of the file that a hard link names. */
interface LinkedFile {
  readonly kept: KeptFile | undefined
  /** The reader that found nothing in it. */
  readonly silent: Reader | undefined
  /** Set if it is a symbolic link. */
  readonly target: string | undefined
}

const maxSkipped = 100
const maxLocations = 10
/** The longest path, and the most names in it. */
const maxPath = 4096
const maxNames = 100
const whiteout = '.wh.'
/** Names that start like this are for the runtime. Only the opaque whiteout has a meaning. */
const reserved = '.wh..wh.'
const opaqueWhiteout = '.wh..wh..opq'
const anyExecute = 0o111

/** Returns the names in a path of a tar, or undefined if it leads upwards, or is too long. */
function namesOf(path: string): readonly string[] | undefined {
  if (path.length > maxPath) return undefined
  const names = path.split('/').filter((name) => name !== '' && name !== '.')
  return names.includes('..') || names.length > maxNames ? undefined : names
}

/** Returns whether an entry is a file, or another name of one. */
function isFile({ type }: ReadEntry): boolean {
  return type === 'Link' || type.endsWith('File')
}

/** Returns whether a reader wants the file at this path of a tar. */
function wants(path: string, mode: number): boolean {
  const name = namesOf(path)?.join('/')
  return name !== undefined && readers.some((reader) => reader.wants(name, (mode & anyExecute) !== 0))
}

/** Reads the layers of one image, one after the other. */
class LayerReader {
  readonly #tree = new FileTree<KeptFile>()
  readonly #links = new FileLinks()
  /** Files whose paths no reader looks at. */
  readonly #lost: SkippedFile[] = []
  readonly #budget = new LayerBudget()
  readonly #folder: string
  readonly #signal: AbortSignal
  #layer = 0

  constructor(folder: string, signal: AbortSignal) {
    this.#folder = folder
    this.#signal = signal
  }

  async read(layer: AsyncIterable<Uint8Array>): Promise<void> {
    this.#layer += 1
    for await (const entry of entriesOfLayer(layer, { budget: this.#budget, wants }, this.#signal)) {
      const names = namesOf(entry.path)
      const name = names?.at(-1)
      if (names === undefined) this.#lose(entry)
      else if (name === undefined) continue
      else if (name.startsWith(whiteout)) this.#whiteout(names.slice(0, -1), name)
      else await this.#entry(entry, names)
    }
  }

  contents(): LayerContents {
    const packages = new Map<string, ImagePackage>()
    const skipped: SkippedFile[] = [...this.#lost]
    for (const { path, real } of this.#links.databasesElsewhere())
      skipped.push({ path: `/${path}`, problem: 'UNREADABLE', message: `it is at /${real.slice(0, 512)}, where symbolic links lead, and is not read there` })
    const distribution = osReleasePaths.map((path) => this.#tree.get(path.split('/'))?.value.findings.distribution).find((found) => found !== undefined)
    for (const { path: name, value } of this.#tree.files()) {
      const path = `/${name}`
      for (const found of value.findings.packages) {
        try {
          const one = imagePackage(found, distribution, [path])
          const known = packages.get(one.purl) ?? one
          if (known.locations.includes(path) || known.locations.length >= maxLocations) packages.set(one.purl, known)
          else packages.set(one.purl, { ...known, locations: [...known.locations, path] })
        } catch (error) {
          value.findings.addProblem(error, `${found.name} ${found.version}`)
        }
      }
      if (skipped.length < maxSkipped) skipped.push(...value.findings.problems.map((problem) => ({ path, ...problem })))
    }
    const sorted = [...packages.values()].sort((one, other) => (one.purl < other.purl ? -1 : 1))
    return { distribution, packages: sorted, skipped: skipped.slice(0, maxSkipped) }
  }

  #lose(entry: ReadEntry): void {
    if (!isFile(entry) || this.#lost.length >= maxSkipped) return
    this.#lost.push({ path: entry.path.slice(0, 512), problem: 'UNREADABLE', message: 'the path leads upwards, or is too long, and is not read' })
  }

  #whiteout(folder: readonly string[], name: string): void {
    const hidden = name.slice(whiteout.length)
    const trees = [this.#tree, this.#links]
    if (name === opaqueWhiteout) for (const tree of trees) tree.hideBelow(folder, this.#layer)
    else if (!name.startsWith(reserved) && !['', '.', '..'].includes(hidden)) for (const tree of trees) tree.hide([...folder, hidden], this.#layer)
  }

  async #entry(entry: ReadEntry, names: readonly string[]): Promise<void> {
    const path = names.join('/')
    const isExecutable = ((entry.mode ?? 0) & anyExecute) !== 0
    const linked = entry.type === 'Link' ? this.#linked(entry) : undefined
    const target = entry.type === 'SymbolicLink' ? entry.linkpath : linked?.target
    for (const tree of [this.#tree, this.#links]) tree.replace(names, entry.type === 'Directory')
    this.#links.keep(names, { target, isFile: isFile(entry) }, this.#layer)
    const reader = isFile(entry) && target === undefined ? readers.find(({ wants }) => wants(path, isExecutable)) : undefined
    if (reader === undefined) return
    if (linked === undefined) this.#keep(names, { reader, findings: await this.#findings(entry, path, reader) })
    else this.#keepLink(names, { reader, linked, to: entry.linkpath ?? '' })
  }

  /** Returns what is known of the file that a hard link names. A hard link to a symbolic link is one itself. */
  #linked({ linkpath = '' }: ReadEntry): LinkedFile {
    const names = namesOf(linkpath) ?? []
    return { kept: this.#tree.get(names)?.value, silent: this.#links.silentAt(names), target: this.#links.targetAt(names) }
  }

  /** Keeps what is known of the file as another reader would. The file itself is behind in the layer, or in one before. */
  #keepLink(names: readonly string[], { reader, linked, to }: { readonly reader: Reader; readonly linked: LinkedFile; readonly to: string }): void {
    const { kept, silent } = linked
    if (kept?.reader === reader) this.#keep(names, kept)
    else if (silent === reader) this.#links.keep(names, { silent }, this.#layer)
    // What another reader has read is no executable.
    else if (reader !== go || (kept ?? silent) === undefined) {
      const findings = new Findings()
      findings.addProblem(new ContentError('UNREADABLE', `it is a link to /${to.slice(0, 512)}, which was not read`))
      this.#keep(names, { reader, findings })
    }
  }

  async #findings(entry: ReadEntry, path: string, reader: Reader): Promise<Findings> {
    const findings = new Findings()
    const file = new EntryFile(entry, { path, folder: this.#folder })
    try {
      await reader.read(file, findings)
    } catch (error) {
      if (isSystemError(error)) throw error
      // If the layer itself ended, the next entry says so.
      findings.addProblem(error)
    } finally {
      await file.close()
    }
    return findings
  }

  #keep(names: readonly string[], file: KeptFile): void {
    const { packages, problems, distribution } = file.findings
    if (packages.length === 0 && problems.length === 0 && distribution === undefined) this.#links.keep(names, { silent: file.reader }, this.#layer)
    else this.#tree.keep(names, file, { packages: Math.max(1, packages.length), layer: this.#layer })
  }
}

/**
 * Reads the packages of an image from its layers, in order from the base. Each layer is a tar, which gzip or zstd may compress.
 * Reads each layer once and to its end. The base comes first, so that memory holds only files with findings: an entry replaces what is known at its path.
 * With the top first, the paths of all files had to be remembered.
 * Rejects with ContentError UNREADABLE or TOO_LARGE if a layer is damaged or the image passes a limit. Rejects with UNSUPPORTED_FORM at a sparse file that a reader wants.
 * Rejects with the error of a stream that rejects, and with the reason of the signal.
 * `skipped` lists files that cannot be read. Needs room for one file on the disk, at most 512 MiB.
 */
export async function packagesOfLayers(
  layers: Iterable<AsyncIterable<Uint8Array>> | AsyncIterable<AsyncIterable<Uint8Array>>,
  signal: AbortSignal,
): Promise<LayerContents> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-layers-'))
  try {
    const reader = new LayerReader(folder, signal)
    for await (const layer of layers) await reader.read(layer)
    return reader.contents()
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
