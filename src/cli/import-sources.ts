import { mkdir } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { createSafeFetch, FetchError } from '../auth/safe-fetch.ts'
import { errorMessage } from '../base/error-text.ts'
import { randomHex } from '../base/runtime.ts'
import { isDownloaded, problemOf, readSource, sourceSecrets, type FeedContent, type FeedSettings } from '../catalogue/index.ts'
import { systemClock, systemRandom } from '../server/runtime.ts'
import { UsageError } from './exit-codes.ts'

/** Files, folders and downloads to import, and how to read them. */
export interface ImportSources extends Pick<FeedSettings, 'tokenFile' | 'caFile' | 'allowPrivate' | 'group' | 'ecosystem' | 'replace'> {
  readonly sources: readonly string[]
}

/** The paths to import: given ones, and downloads. */
export interface ImportFiles {
  readonly paths: readonly string[]
  /** Returns the name of a file for people: that of its source if it was downloaded. */
  nameOf(file: string): string
  /** Deletes what was downloaded. */
  remove(): Promise<void>
}

/** Options that the settings of a feed replace. */
const feedOptions = ['group', 'ecosystem', 'replace', 'tokenFile', 'caFile', 'allowPrivate'] as const

/** Returns what the command line names: sources with options, or a feed in the settings. Throws UsageError. */
export function namedSources(
  sources: readonly string[],
  { feed, ...options }: Omit<ImportSources, 'sources'> & { readonly feed?: string },
  feeds: readonly FeedSettings[],
): ImportSources {
  if (feed === undefined) {
    if (sources.length === 0) throw new UsageError('nothing to import: name files, folders, URLs or artifacts, or a feed with --feed')
    return { ...options, sources }
  }
  const found = feeds.find(({ name }) => name === feed)
  const names = feeds.length === 0 ? 'catalogues.feeds is empty' : `the feeds are ${feeds.map(({ name }) => name).join(', ')}`
  if (found === undefined) throw new UsageError(`there is no feed "${feed}": ${names}`)
  if (sources.length > 0 || feedOptions.some((name) => options[name] !== undefined))
    throw new UsageError('with --feed, the settings name source, group and access: give neither paths nor these options')
  return { ...found, sources: [found.source] }
}

/** Returns the source without user name, password and query, which may be secrets. */
function shown(source: string): string {
  return source.replace(/[?#].*$/s, '').replace(/^([a-z+]+:\/\/)[^/]*@/i, '$1')
}

/** Prints the number of bytes of a download from time to time, if standard error is a terminal. */
function downloadProgress(source: string): (bytes: number) => void {
  let printedMs = 0
  return (bytes) => {
    const nowMs = performance.now()
    if (!process.stderr.isTTY || nowMs - printedMs < 500) return
    printedMs = nowMs
    process.stderr.write(`\r\u001b[K${source}: ${(bytes / 1024 / 1024).toFixed(1)} MiB`)
  }
}

/** Downloads what is not on this machine. Rejects with an error for people, an error of the file system, or the signal's reason; then no download stays. */
export async function openSources({ sources, allowPrivate, ...secrets }: ImportSources, dataDir: string, signal: AbortSignal): Promise<ImportFiles> {
  const contents: { readonly source: string; readonly content: FeedContent }[] = []
  const remove = async (): Promise<void> => {
    for (const { content } of contents) await content.remove()
  }
  if (!sources.some(isDownloaded)) return { paths: sources, nameOf: (file) => file, remove }
  const fetch = createSafeFetch({ timeoutMs: 30_000 })
  // The server of the embedded store cleans this folder, and reads files in it.
  const folder = resolve(dataDir, 'catalogues')
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const access = { ...(await sourceSecrets(secrets)), allowPrivate: allowPrivate === true, known: undefined, clock: systemClock }
    const paths: string[] = []
    for (const source of sources) {
      if (!isDownloaded(source)) {
        paths.push(source)
        continue
      }
      const temporary = join(folder, `${randomHex(systemRandom, 16)}.part`)
      const content = await readSource(fetch, { source, temporary, ...access, onBytes: downloadProgress(shown(source)) }, signal).catch((error: unknown) => {
        signal.throwIfAborted()
        if (!(error instanceof FetchError)) throw error
        throw new Error(`${shown(source)}: ${errorMessage(problemOf(error))}`, { cause: error.cause })
      })
      contents.push({ source, content })
      paths.push(...(content.paths ?? []))
    }
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[K')
    const nameOf = (file: string): string => {
      for (const { source, content } of contents)
        for (const path of content.paths ?? []) if (file.startsWith(path)) return `${shown(source)}${file.slice(path.length)}`
      return file
    }
    return { paths, nameOf, remove }
  } catch (error) {
    await remove()
    throw error
  } finally {
    await fetch.close()
  }
}
