import { ContentError } from '../package.ts'
import { FileTree } from './file-tree.ts'
import type { Reader } from './reader.ts'

/** Where package databases can be. Each reader wants these paths. */
const rpmFolders = ['var/lib/rpm', 'usr/lib/sysimage/rpm', 'usr/share/rpm']
const rpmNames = ['rpmdb.sqlite', 'Packages.db', 'Packages']
const filesOfPackages = 'var/lib/dpkg/status.d'
const databases = [
  'lib/apk/db/installed',
  'usr/lib/apk/db/installed',
  'var/lib/dpkg/status',
  filesOfPackages,
  ...rpmFolders.flatMap((folder) => rpmNames.map((name) => `${folder}/${name}`)),
]
const databaseNames: ReadonlySet<string | undefined> = new Set(databases.map((path) => path.split('/').at(-1)))
const folderName = filesOfPackages.split('/').at(-1)

/** Linux follows no more links than this for one path, and allows no longer target, in bytes. */
const maxLinks = 40
const maxTarget = 4096
/** The most characters of the targets of all symbolic links. */
const maxCharacters = 64 * 1024 * 1024
const nothing = { packages: 0 } as const

/** What an entry of a layer is, as far as links are concerned. */
interface LinkEntry {
  /** The reader that read the file and found nothing in it. */
  readonly silent?: Reader | undefined
  /** The target of a symbolic link. */
  readonly target?: string | undefined
  /** True for a file, or another name of one. */
  readonly isFile?: boolean
}

/** The links in the file system of an image, and the files that they may name, as layers are put on it one by one. */
export class FileLinks {
  readonly #targets = new FileTree<string>()
  readonly #databases = new FileTree<true>()
  /** Undefined if there were too many. */
  #silent: FileTree<Reader> | undefined = new FileTree<Reader>()
  #characters = 0

  /** Puts an entry at the path, before `keep` says what it is. */
  replace(path: readonly string[], isFolder: boolean): void {
    for (const tree of this.#trees()) tree.replace(path, isFolder)
  }

  /** Removes what earlier layers have at the path and below. */
  hide(path: readonly string[], layer: number): void {
    for (const tree of this.#trees()) tree.hide(path, layer)
  }

  /** Removes what earlier layers have below the path. */
  hideBelow(path: readonly string[], layer: number): void {
    for (const tree of this.#trees()) tree.hideBelow(path, layer)
  }

  /** Keeps what is known of an entry. Throws ContentError TOO_LARGE if there are too many links. */
  keep(path: readonly string[], { silent, target, isFile = false }: LinkEntry, layer: number): void {
    if (silent !== undefined) this.#keepSilent(path, silent, layer)
    if (isFile && (databaseNames.has(path.at(-1)) || path.at(-2) === folderName)) this.#databases.keep(path, true, { ...nothing, layer })
    // No system has a link with a longer target.
    if (target === undefined || target.length > maxTarget) return
    this.#characters += target.length
    if (this.#characters > maxCharacters) throw new ContentError('TOO_LARGE', `the symbolic links have targets of more than ${maxCharacters} characters`)
    this.#targets.keep(path, target, { ...nothing, layer })
  }

  /** Returns the reader that read the file at the path and found nothing. */
  silentAt(path: readonly string[]): Reader | undefined {
    return this.#silent?.get(path)?.value
  }

  /** Returns the target of the symbolic link at the path. */
  targetAt(path: readonly string[]): string | undefined {
    return this.#targets.get(path)?.value
  }

  /** Yields the package databases that are elsewhere, where no reader looks: their path, and the path that symbolic links lead to. */
  *databasesElsewhere(): Generator<{ readonly path: string; readonly real: string }, void, undefined> {
    for (const path of databases) {
      const names = path.split('/')
      const real = this.#resolved(names)
      if (real === undefined || databases.includes(real.join('/'))) continue
      // Images often have links to folders that are not there, or without a database.
      if (this.targetAt(names) !== undefined || this.#databases.has(real)) yield { path, real: real.join('/') }
    }
  }

  #trees(): readonly Pick<FileTree<unknown>, 'replace' | 'hide' | 'hideBelow'>[] {
    return [this.#targets, this.#databases, ...(this.#silent === undefined ? [] : [this.#silent])]
  }

  #keepSilent(path: readonly string[], reader: Reader, layer: number): void {
    try {
      this.#silent?.keep(path, reader, { ...nothing, layer })
    } catch {
      // Then it is not known of any file that it has no packages.
      this.#silent = undefined
    }
  }

  /** Returns the path with all symbolic links followed; undefined if they go round. */
  #resolved(path: readonly string[]): readonly string[] | undefined {
    const left = path.toReversed()
    let real: string[] = []
    let links = 0
    for (let name = left.pop(); name !== undefined; name = left.pop()) {
      if (name === '..') {
        real.pop()
        continue
      }
      real.push(name)
      const target = this.targetAt(real)
      if (target === undefined) continue
      if (++links > maxLinks) return undefined
      real = target.startsWith('/') ? [] : real.slice(0, -1)
      const names = target.split('/').filter((part) => part !== '' && part !== '.')
      left.push(...names.toReversed())
    }
    return real
  }
}
