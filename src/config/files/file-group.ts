import { createHash, X509Certificate, createPrivateKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { errorText } from '../../base/error-text.ts'
import type { Log } from '../../base/log.ts'
import { SettingError, withSetting } from '../setting-error.ts'

/** The type of content that a file of the configuration must have. */
type FileKind = 'certificate' | 'key' | 'authorities' | 'text' | 'trustedRoot'

const pemCertificate = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----/g

/** Returns when each certificate in a PEM file expires, in milliseconds since 1970. Throws if there is no certificate, or one that cannot be read. */
function expiryTimes(content: Buffer): number[] {
  const blocks = content.toString('latin1').match(pemCertificate) ?? []
  if (blocks.length === 0) throw new Error('the file contains no certificate (PEM)')
  return blocks.map((block) => new X509Certificate(block).validToDate.getTime())
}

/**
 * For each type of file, a function that checks the content. It returns when the content expires, in milliseconds since 1970, or undefined if it never does.
 * It throws if the content cannot be used. A certificate chain expires with the first of its certificates. A bundle of CA certificates expires with the last,
 * because it may contain old ones.
 */
const expiryOf = {
  certificate: (content) => Math.min(...expiryTimes(content)),
  authorities: (content) => Math.max(...expiryTimes(content)),
  key(content) {
    createPrivateKey(content)
    return undefined
  },
  text(content) {
    if (content.toString('utf8').trim() === '') throw new Error('the file is empty')
    return undefined
  },
  trustedRoot(content) {
    const { mediaType } = JSON.parse(content.toString('utf8')) as { readonly mediaType?: unknown } // only this field is looked at
    if (typeof mediaType === 'string' && mediaType.startsWith('application/vnd.dev.sigstore.trustedroot')) return undefined
    throw new Error('the file is no trusted root of sigstore')
  },
} as const satisfies Record<FileKind, (content: Buffer) => number | undefined>

/** A file that a setting of the configuration names. */
export interface SettingFile {
  readonly setting: string
  readonly path: string
  readonly kind: FileKind
}

/** The contents of a group of files, by the names of the files. */
export type Contents<N extends string> = Readonly<Record<N, Buffer>>

/** The contents of a group of files, which change when the files are replaced by usable ones. */
export interface Reloaded<N extends string> {
  readonly current: Contents<N>
  /** Calls `use` with all later contents. It is for users that cannot read `current` each time. */
  onChange(use: (contents: Contents<N>) => void): void
}

/** The state of a file. */
export interface FileState extends SettingFile {
  /** When the content in use expires, in milliseconds since 1970; undefined if it never does. */
  readonly expiresAtMs: number | undefined
  /** True if the file now has a content that cannot be used, so that its previous content stays in use. */
  readonly isUnusable: boolean
}

/** Files that are only valid together, such as a certificate and its key. They are replaced together. */
export class FileGroup<N extends string> implements Reloaded<N> {
  readonly #files: Readonly<Record<N, SettingFile>>
  readonly #log: Log
  readonly #listeners: ((contents: Contents<N>) => void)[] = []
  #current: Contents<N>
  /** The content that was refused last, as a hash, or the error of reading it. Undefined while the content of the files is in use. */
  #refused: string | undefined

  /** Reads the files. Throws SettingError if one cannot be read or used. */
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

  /** Returns the state of each file. */
  get states(): readonly FileState[] {
    return Object.entries<SettingFile>(this.#files).map(([name, file]) => {
      const content = this.#current[name as N] // Both objects have the same keys.
      return { ...file, expiresAtMs: expiryOf[file.kind](content), isUnusable: this.#refused !== undefined }
    })
  }

  onChange(use: (contents: Contents<N>) => void): void {
    this.#listeners.push(use)
  }

  /** Reads the files again, and uses their content if it has changed. Never rejects: an unusable content is logged once, and is not used. */
  async lookAgain(): Promise<void> {
    // Try twice: if the files are replaced during the first read, it may return old and new contents that do not belong together.
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
    return Object.fromEntries(Object.keys(this.#files).map((name, at) => [name, contents[at]])) as Contents<N> // Each key gets its content.
  }

  #paths(): readonly string[] {
    return Object.values<SettingFile>(this.#files).map(({ path }) => path)
  }
}

/** Throws SettingError for the first file whose content cannot be used, or if the private key does not belong to the certificate. */
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
    throw new SettingError(file.setting, file.path, new Error('the private key does not belong to the certificate'))
}

function fingerprintOf(contents: readonly Buffer[]): string {
  const hash = createHash('sha256')
  for (const content of contents) hash.update(`${content.length}:`).update(content)
  return hash.digest('hex')
}
