import { errorMessage } from '../../base/error-text.ts'
import { ContentError, contentLimits, type ContentProblem, type Distribution } from '../package.ts'
import type { LayerPackage } from './layer-package.ts'
import type { LayerFile } from './layer-file.ts'

/** Reads one kind of file. */
export interface Reader {
  /** Returns whether the reader reads a file with this path. */
  wants(path: string, isExecutable: boolean): boolean
  /** Adds what the file says. Rejects with any error if the file cannot be read: what was added before counts. */
  read(file: LayerFile, findings: Findings): Promise<void>
}

/** The longest name, version or other text of a package, in characters. */
const maxText = 512
/** The most licences of a package. */
const maxLicenses = 20
/** Types of packages whose files need not say a version. */
const versionless: readonly LayerPackage['type'][] = ['golang', 'maven']
/** The most problems of a file. */
const maxProblems = 20

/** Returns the text without a reference to the larger text that it was cut from. */
function copied(text: string): string {
  return Buffer.from(text).toString()
}

function copiedFields(fields: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [copied(key), copied(value)]))
}

/** Why a part of a file could not be read. */
export interface FileProblem {
  readonly problem: ContentProblem
  /** For people. */
  readonly message: string
}

/** What a file says. The number and size of packages are bounded. */
export class Findings {
  readonly packages: LayerPackage[] = []
  readonly problems: FileProblem[] = []
  distribution: Distribution | undefined

  /** Adds a package. Ignores one without a name, or without the version that its ecosystem requires. Throws ContentError TOO_LARGE if there are too many, or if a text is too long. */
  add({ type, name, version, url = {}, origin = '', licenses = [] }: LayerPackage): void {
    if (name === '' || (version === '' && !versionless.includes(type))) return
    if (this.packages.length >= contentLimits.packages) throw new ContentError('TOO_LARGE', `a file names more than ${contentLimits.packages} packages`)
    const { qualifiers = {}, ...parts } = url
    const texts = [name, version, origin, ...Object.values(parts), ...Object.values(qualifiers)]
    if (texts.some((text) => text.length > maxText)) throw new ContentError('TOO_LARGE', `a package has a text of more than ${maxText} characters`)
    const kept = licenses.filter((text) => text !== '' && text.length <= maxText).slice(0, maxLicenses)
    this.packages.push({
      type,
      name: copied(name),
      version: copied(version),
      url: { ...copiedFields(parts), qualifiers: copiedFields(qualifiers) },
      origin: copied(origin),
      licenses: kept.map(copied),
    })
  }

  /** Adds a reason why packages may be missing. Ignores all after the first 20. */
  addProblem(error: unknown, part = ''): void {
    if (this.problems.length >= maxProblems) return
    const problem = error instanceof ContentError ? error.problem : 'UNREADABLE'
    const message = part === '' ? errorMessage(error) : `${part}: ${errorMessage(error)}`
    this.problems.push({ problem, message: copied(message.slice(0, maxText)) })
  }
}
