import { createHash, X509Certificate, createPrivateKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { SettingError, withSetting } from '../setting-error.ts'

/** What a file of the configuration holds. */
type FileKind = 'certificate' | 'key' | 'authorities' | 'text'

const pemCertificate = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----/g

/** When each certificate of a PEM file expires, in milliseconds. Throws where it holds none, or one that can't be read. */
function expiryTimes(content: Buffer): number[] {
  const blocks = content.toString('latin1').match(pemCertificate) ?? []
  if (blocks.length === 0) throw new Error('it contains no certificate (PEM)')
  return blocks.map((block) => new X509Certificate(block).validToDate.getTime())
}

/**
 * Reads the content of each kind: returns when it expires, in milliseconds, or undefined where it never does; throws where it can't be used. A chain ends with the
 * first of its certificates, a bundle of authorities with the last: it may hold old ones.
 */
const expiryOf = {
  certificate: (content) => Math.min(...expiryTimes(content)),
  authorities: (content) => Math.max(...expiryTimes(content)),
  key(content) {
    createPrivateKey(content)
    return undefined
  },
  text(content) {
    if (content.toString('utf8').trim() === '') throw new Error('it is empty')
    return undefined
  },
} as const satisfies Record<FileKind, (content: Buffer) => number | undefined>

/** A file that a setting names. */
export interface SettingFile {
  readonly setting: string
  readonly path: string
  readonly kind: FileKind
}

/** The contents of files, by the same names. */
export type Contents<N extends string> = Readonly<Record<N, Buffer>>

/** The contents in use: the last ones that could be used. */
export interface Reloaded<N extends string> {
  readonly current: Contents<N>
  /** Calls `use` with all later contents, for what can't ask for `current` each time. */
  onChange(use: (contents: Contents<N>) => void): void
}

/** How a file is doing. */
export interface FileState extends SettingFile {
  /** When the content in use expires, in milliseconds; undefined where it never does. */
  readonly expiresAtMs: number | undefined
  /** True while the file can't be used and the content from before it is in use. */
  readonly isUnusable: boolean
}

/** Files that only work together, as a certificate and its key do: all of them are replaced at once, or none. */
export class FileGroup<N extends string> implements Reloaded<N> {
  readonly #files: Readonly<Record<N, SettingFile>>
  readonly #log: Log
  readonly #listeners: ((contents: Contents<N>) => void)[] = []
  #current: Contents<N>
  /** Fingerprint of the contents, or the error, that were refused last; undefined while the files are what is in use. */
  #refused: string | undefined

  /** Reads the files. Throws SettingError where one can't be read or used. */
  constructor(files: Readonly<Record<N, SettingFile>>, log: Log) {
    this.#files = files
    this.#log = log
    const all = Object.values<SettingFile>(files)
    this.#current = this.#named(all.map(({ setting, path }) => withSetting(setting, path, () => readFileSync(path))))
    check(all, Object.values(this.#current))
  }

  get current(): Contents<N> {
    return this.#current
  }

  /** The state of each file. */
  get states(): readonly FileState[] {
    return Object.entries<SettingFile>(this.#files).map(([name, file]) => {
      const content = this.#current[name as N] // a cast: both have the same names
      return { ...file, expiresAtMs: expiryOf[file.kind](content), isUnusable: this.#refused !== undefined }
    })
  }

  onChange(use: (contents: Contents<N>) => void): void {
    this.#listeners.push(use)
  }

  /** Reads the files again and uses what has changed. Never rejects: what can't be used is logged once and stays out of use. */
  async lookAgain(): Promise<void> {
    // Between two reads the files may be replaced: what is still the same the second time was no mixture.
    for (let time = 0; time < 2; time++) {
      const found = await this.#read()
      if (found instanceof Error) {
        if (time > 0) this.#refuse(errorText(found), found)
        continue
      }
      if (Object.values<Buffer>(this.#current).every((content, at) => content.equals(found[at] ?? Buffer.alloc(0)))) {
        this.#refused = undefined
        return
      }
      try {
        return this.#use(found)
      } catch (error) {
        if (time > 0) this.#refuse(fingerprintOf(found), error)
      }
    }
  }

  async #read(): Promise<Buffer[] | Error> {
    try {
      return await Promise.all(Object.values<SettingFile>(this.#files).map(({ path }) => readFile(path)))
    } catch (error) {
      return error instanceof Error ? error : new Error(errorText(error))
    }
  }

  #use(found: readonly Buffer[]): void {
    check(Object.values<SettingFile>(this.#files), found)
    const contents = this.#named(found)
    for (const use of this.#listeners) use(contents)
    this.#current = contents
    this.#refused = undefined
    this.#log.info('configuration files were replaced: new connections use the new content', { files: this.#paths() })
  }

  #refuse(what: string, error: unknown): void {
    if (this.#refused === what) return
    this.#refused = what
    this.#log.error('new configuration files are invalid: the previous content stays in use', {
      files: this.#paths(),
      error: errorText(error),
    })
  }

  #named(contents: readonly Buffer[]): Contents<N> {
    return Object.fromEntries(Object.keys(this.#files).map((name, at) => [name, contents[at]])) as Contents<N> // a cast: each name has its content
  }

  #paths(): readonly string[] {
    return Object.values<SettingFile>(this.#files).map(({ path }) => path)
  }
}

/** Throws SettingError for the first file whose content can't be used, or whose key is not that of the certificate. */
function check(files: readonly SettingFile[], contents: readonly Buffer[]): void {
  const found: Partial<Record<FileKind, Buffer>> = {}
  for (const [at, { setting, path, kind }] of files.entries()) {
    const content = contents[at] ?? Buffer.alloc(0)
    withSetting(setting, path, () => expiryOf[kind](content))
    found[kind] = content
  }
  const { certificate, key } = found
  const file = files.find(({ kind }) => kind === 'key')
  if (certificate === undefined || key === undefined || file === undefined) return
  if (!new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key)))
    throw new SettingError(file.setting, file.path, new Error('it is not the key of the certificate'))
}

function fingerprintOf(contents: readonly Buffer[]): string {
  const hash = createHash('sha256')
  for (const content of contents) hash.update(`${content.length}:`).update(content)
  return hash.digest('hex')
}
