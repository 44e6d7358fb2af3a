import { createHash } from 'node:crypto'
import { opendir, rm, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { SafeFetch } from '../../auth/safe-fetch.ts'
import type { ContentVersion } from './feed-state.ts'

/** The content of a source: a path to import, or undefined if it has not changed. `remove` deletes what was downloaded. */
export interface FeedContent {
  readonly path: string | undefined
  readonly version: ContentVersion
  remove(): Promise<void>
}

/** What is read, and how. */
export interface FeedRequest {
  readonly source: string
  /** The version that was imported last; undefined to read in any case. */
  readonly known: ContentVersion | undefined
  /** A path for a download, which does not exist yet. */
  readonly temporary: string
  readonly headers: Readonly<Record<string, string>>
  readonly ca: string | undefined
  readonly allowPrivate: boolean
}

/** Free space that a download leaves for others, in bytes. */
const reservedBytes = 1024 * 1024 * 1024
/** The largest number of redirects to follow. */
const maxRedirects = 5

/** True if the source is an HTTP URL. */
export function isUrl(source: string): boolean {
  return /^https?:\/\//i.test(source)
}

/** Resolves with the content of a source. Rejects with FetchError, an error of the file system, or the signal's reason. */
export async function readSource(fetch: SafeFetch, request: FeedRequest, signal: AbortSignal): Promise<FeedContent> {
  return isUrl(request.source) ? download(fetch, request, signal) : mounted(request, signal)
}

async function download(fetch: SafeFetch, { source, known, temporary, headers, ca, allowPrivate }: FeedRequest, signal: AbortSignal): Promise<FeedContent> {
  const { bavail, bsize } = await statfs(dirname(temporary))
  const conditions = {
    ...(known?.etag === undefined ? {} : { 'if-none-match': known.etag }),
    ...(known?.lastModified === undefined ? {} : { 'if-modified-since': known.lastModified }),
  }
  const request = { url: source, headers: { ...headers, ...conditions, accept: '*/*' }, allowPrivate, ...(ca === undefined ? {} : { ca }) }
  const maxBytes = Math.max(0, bavail * bsize - reservedBytes)
  const remove = (): Promise<void> => rm(temporary, { force: true })
  try {
    const { isModified, etag, lastModified } = await fetch.download(request, { path: temporary, maxBytes, maxRedirects }, signal)
    const version = { ...(etag === undefined ? {} : { etag }), ...(lastModified === undefined ? {} : { lastModified }) }
    return isModified ? { path: temporary, version, remove } : { path: undefined, version: known ?? version, remove }
  } catch (error) {
    await remove()
    throw error
  }
}

/** Adds names, sizes and times of all files to the hash, in the order of names. */
async function addFiles(hash: ReturnType<typeof createHash>, path: string, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  const found = await stat(path)
  if (!found.isDirectory()) {
    hash.update(JSON.stringify([path, found.size, found.mtimeMs]))
    return
  }
  const names: string[] = []
  for await (const entry of await opendir(path)) if (entry.isDirectory() || entry.isFile()) names.push(entry.name)
  for (const name of names.sort()) await addFiles(hash, join(path, name), signal)
}

async function mounted({ source, known }: FeedRequest, signal: AbortSignal): Promise<FeedContent> {
  const hash = createHash('sha256')
  await addFiles(hash, source, signal)
  const files = hash.digest('hex')
  return { path: files === known?.files ? undefined : source, version: { files }, remove: () => Promise.resolve() }
}
