import { createHash } from 'node:crypto'
import { opendir, readFile, rm, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { FetchError, type FetchErrorReason, type SafeFetch } from '../../auth/safe-fetch.ts'
import type { Clock } from '../../base/runtime.ts'
import type { ContentVersion, FeedSettings } from './feed-state.ts'
import { isArtifact, readArtifact } from './oci-source.ts'

/** The content of a source: paths to import, or undefined if it has not changed. `remove` deletes what was downloaded. */
export interface FeedContent {
  readonly paths: readonly string[] | undefined
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
  readonly credential: string | undefined
  readonly ca: string | undefined
  readonly allowPrivate: boolean
  /** Says when a token of a registry expires. */
  readonly clock: Clock
  /** Receives the number of bytes of a file that were downloaded so far. */
  readonly onBytes?: (bytes: number) => void
}

/** Free space that a download leaves for others, in bytes. */
const reservedBytes = 1024 * 1024 * 1024
/** The largest number of redirects to follow. */
const maxRedirects = 5

/** True if the source is an HTTP URL. */
export function isUrl(source: string): boolean {
  return /^https?:\/\//i.test(source)
}

/** True if the source is downloaded: a URL, or an artifact in a registry. */
export function isDownloaded(source: string): boolean {
  return isUrl(source) || isArtifact(source)
}

/** Resolves with the content of a source. Rejects with FetchError, an error of the file system, or the signal's reason. */
export async function readSource(fetch: SafeFetch, request: FeedRequest, signal: AbortSignal): Promise<FeedContent> {
  if (isArtifact(request.source)) return artifact(fetch, request, signal)
  return isUrl(request.source) ? download(fetch, request, signal) : mounted(request, signal)
}

/** Reads the files that a source is read with: its credential and its CA certificate. */
export async function sourceSecrets({ tokenFile, caFile }: Pick<FeedSettings, 'tokenFile' | 'caFile'>): Promise<Pick<FeedRequest, 'credential' | 'ca'>> {
  return {
    credential: tokenFile === undefined ? undefined : (await readFile(tokenFile, 'utf8')).trim(),
    ca: caFile === undefined ? undefined : await readFile(caFile, 'utf8'),
  }
}

/** Returns the number of bytes that a download may have. */
async function freeBytes(temporary: string): Promise<number> {
  const { bavail, bsize } = await statfs(dirname(temporary))
  return Math.max(0, bavail * bsize - reservedBytes)
}

async function artifact(fetch: SafeFetch, request: FeedRequest, signal: AbortSignal): Promise<FeedContent> {
  const { source, known, temporary: folder, credential, ca, allowPrivate, clock, onBytes } = request
  const remove = (): Promise<void> => rm(folder, { force: true, recursive: true })
  try {
    const maxBytes = await freeBytes(folder)
    const { manifest, paths } = await readArtifact(
      fetch,
      { source, known: known?.manifest, folder, credential, ca, allowPrivate, maxBytes, maxRedirects, onBytes, clock },
      signal,
    )
    return { paths, version: { manifest }, remove }
  } catch (error) {
    await remove()
    throw error
  }
}

async function download(
  fetch: SafeFetch,
  { source, known, temporary, credential, ca, allowPrivate, onBytes }: FeedRequest,
  signal: AbortSignal,
): Promise<FeedContent> {
  const headers = credential === undefined ? {} : { authorization: `Bearer ${credential}` }
  const conditions = {
    ...(known?.etag === undefined ? {} : { 'if-none-match': known.etag }),
    ...(known?.lastModified === undefined ? {} : { 'if-modified-since': known.lastModified }),
  }
  const request = { url: source, headers: { ...headers, ...conditions, accept: '*/*' }, allowPrivate, ...(ca === undefined ? {} : { ca }) }
  const maxBytes = await freeBytes(temporary)
  const remove = (): Promise<void> => rm(temporary, { force: true })
  try {
    const { isModified, etag, lastModified } = await fetch.download(
      request,
      { path: temporary, maxBytes, maxRedirects, ...(onBytes === undefined ? {} : { onBytes }) },
      signal,
    )
    const version = { ...(etag === undefined ? {} : { etag }), ...(lastModified === undefined ? {} : { lastModified }) }
    return isModified ? { paths: [temporary], version, remove } : { paths: undefined, version: known ?? version, remove }
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
  return { paths: files === known?.files ? undefined : [source], version: { files }, remove: () => Promise.resolve() }
}

/** What is wrong, and what to do. */
const problems: Readonly<Record<FetchErrorReason, string>> = {
  refused_url: 'only https is allowed, without a user name in the URL: allow http with --allow-private, or allowPrivate of the feed',
  refused_address: 'the host has a private address: allow it with --allow-private, or allowPrivate of the feed',
  unresolved: 'the host name does not exist',
  unreachable: 'the connection failed or broke: try again',
  untrusted: 'the certificate is not trusted: name its CA with --ca-file, or caFile of the feed',
  timeout: 'the server sent nothing for too long: try again',
  redirect: 'the server redirects too often',
  status: 'the server refused the request',
  too_large: 'the content is larger than the free space, or than its manifest says',
  unreadable: 'the registry sent a token that is not valid JSON',
}

/** Returns an error for people: of a fetch that failed, what is wrong and what to do. */
export function problemOf(error: unknown): unknown {
  if (!(error instanceof FetchError)) return error
  const status = error.status === undefined ? '' : ` (status ${error.status})`
  return new Error(`${problems[error.reason]}${status}`, { cause: error.cause })
}
