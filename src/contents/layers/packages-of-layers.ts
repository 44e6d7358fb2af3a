import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ReadEntry } from 'tar'
import { isSystemError, type Distribution, type ImagePackage } from '../package.ts'
import { FileTree } from './file-tree.ts'
import { imagePackage } from './layer-package.ts'
import { entriesOfLayer, LayerBudget } from './layer-entries.ts'
import { EntryFile } from './layer-file.ts'
import { Findings, type FileProblem, type Reader } from './reader.ts'
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

/** Returns the names in a path of a tar, or undefined if it leads out of the root, or is too long. */
function namesOf(path: string): readonly string[] | undefined {
  if (path.length > maxPath) return undefined
  const names = path.split('/').filter((name) => name !== '' && name !== '.')
  return names.includes('..') || names.length > maxNames ? undefined : names
}

/** Returns whether a reader wants the file at this path of a tar. */
function wants(path: string, mode: number): boolean {
  const name = namesOf(path)?.join('/')
  return name !== undefined && readers.some((reader) => reader.wants(name, (mode & anyExecute) !== 0))
}

/** Reads the layers of one image, one after the other. */
class LayerReader {
  readonly #tree = new FileTree<KeptFile>()
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
      if (names === undefined || name === undefined) continue
      if (name.startsWith(whiteout)) this.#whiteout(names.slice(0, -1), name)
      else await this.#entry(entry, names)
    }
  }

  contents(): LayerContents {
    const packages = new Map<string, ImagePackage>()
    const skipped: SkippedFile[] = []
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

  #whiteout(folder: readonly string[], name: string): void {
    const hidden = name.slice(whiteout.length)
    if (name === opaqueWhiteout) this.#tree.hideBelow(folder, this.#layer)
    else if (!name.startsWith(reserved) && !['', '.', '..'].includes(hidden)) this.#tree.hide([...folder, hidden], this.#layer)
  }

  async #entry(entry: ReadEntry, names: readonly string[]): Promise<void> {
    const path = names.join('/')
    const isExecutable = ((entry.mode ?? 0) & anyExecute) !== 0
    const isLink = entry.type === 'Link'
    const reader = isLink || entry.type.endsWith('File') ? readers.find(({ wants }) => wants(path, isExecutable)) : undefined
    // The other name of a file that is kept. No link is followed: the file it names was read before, or is not wanted.
    const linked = isLink && reader !== undefined ? this.#tree.get(namesOf(entry.linkpath ?? '') ?? [])?.value : undefined
    this.#tree.replace(names, entry.type === 'Directory')
    if (reader === undefined) return
    if (isLink) {
      if (linked?.reader === reader) this.#keep(names, linked)
    } else this.#keep(names, { reader, findings: await this.#findings(entry, path, reader) })
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
    if (packages.length === 0 && problems.length === 0 && distribution === undefined) return
    this.#tree.keep(names, file, { packages: Math.max(1, packages.length), layer: this.#layer })
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
