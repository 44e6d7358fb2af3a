import { isDigest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { RegistryExchange, HeaderLines } from './exchange.ts'
import { annotationsOf, indexMediaType } from './manifests/manifest-parser.ts'
import { enterRepo, type OciHost } from './oci-host.ts'
import { isTagName, type OciPath } from './oci-path.ts'
import { referrersOf } from '../records/manifests.ts'
import { tagNames } from '../records/tags.ts'
import { RegistryError } from '../registry-error.ts'

/** Maximum number of items on a page, even if `n` is larger. */
export const maxPageItems = 1000

/**
 * Parses the parameter `n`, the maximum number of items on a page; `maxPageItems` if absent. Throws UNSUPPORTED (400) if it is not a
 * number, 0 or more.
 */
export function parsePageLimit(query: URLSearchParams): number {
  const text = query.get('n')
  if (text === null) return maxPageItems
  if (!/^\d{1,15}$/.test(text)) throw new RegistryError('UNSUPPORTED', 'n must be a number, 0 or more', { status: 400 })
  return Math.min(Number(text), maxPageItems)
}

/** Returns the `Link` header with the URL of the next page (RFC 8288). */
export function nextLink(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, value)
  return `<${path}?${query.toString()}>; rel="next"`
}

type TagsPath = Extract<OciPath, { kind: 'tags' }>
type ReferrersPath = Extract<OciPath, { kind: 'referrers' }>

function sendJson(exchange: RegistryExchange, answer: { body: unknown; mediaType: string; headers: HeaderLines }): void {
  const text = `${JSON.stringify(answer.body)}\n`
  exchange.send(200, ['Content-Type', answer.mediaType, 'Content-Length', Buffer.byteLength(text), ...answer.headers], text)
}

/** Handles GET of tags: returns one page. */
export async function listTags(host: OciHost, exchange: RegistryExchange, path: TagsPath): Promise<void> {
  const { repository } = path
  const { repo } = await enterRepo(host, exchange, { repository, action: 'pull' })
  const n = parsePageLimit(exchange.query)
  const last = exchange.query.get('last')
  if (last !== null && !isTagName(last)) throw new RegistryError('UNSUPPORTED', 'last must be a tag', { status: 400 })
  const { names, more } = n === 0 ? { names: [], more: false } : await tagNames(host.services.cache.tables, repo, { n, ...(last === null ? {} : { last }) })
  const headers = more ? ['Link', nextLink(`/v2/${repository}/tags/list`, { n: String(n), last: names.at(-1) })] : []
  sendJson(exchange, { body: { name: repository, tags: names }, mediaType: 'application/json', headers })
}

/** Maximum number of referrers on a page, and maximum number that are read to fill one. */
const maxReferrers = 100
const maxReferrersSeen = 1_000
/** Maximum number of bytes of the descriptors on a page: clients accept an index of at most 4 MiB. */
const maxReferrersBytes = 2 * 1024 * 1024

interface ReferrersPage {
  readonly manifests: readonly object[]
  /** The last digest that was read, if more may follow. */
  readonly next: string | undefined
}

/**
 * Handles GET of the manifests that refer to a digest, as an index. The index is empty for an unknown digest or repository. A 404 would say that the API does
 * not exist (OCI distribution specification, "Listing Referrers").
 */
export async function listReferrers(host: OciHost, exchange: RegistryExchange, path: ReferrersPath): Promise<void> {
  const { repository, digest } = path
  const repo = await repoIfThere(host, exchange, repository)
  const { query } = exchange
  const artifactType = query.get('artifactType') || undefined
  const after = query.get('after') ?? undefined
  if (after !== undefined && !isDigest(after)) throw new RegistryError('UNSUPPORTED', 'after must be a digest', { status: 400 })
  const { signal } = exchange
  const page = repo === undefined ? emptyPage : await referrersPage(host, { repo, subject: digest, after, artifactType, signal })
  const filters = artifactType === undefined ? [] : ['OCI-Filters-Applied', 'artifactType']
  const link = page.next === undefined ? [] : ['Link', nextLink(`/v2/${repository}/referrers/${digest}`, { after: page.next, artifactType })]
  const body = { schemaVersion: 2, mediaType: indexMediaType, manifests: page.manifests }
  sendJson(exchange, { body, mediaType: indexMediaType, headers: [...filters, ...link] })
}

const emptyPage: ReferrersPage = { manifests: [], next: undefined }

/** Returns the repo. Returns undefined if it does not exist and the caller may know that. */
async function repoIfThere(host: OciHost, exchange: RegistryExchange, repository: string): Promise<Uid | undefined> {
  try {
    return (await enterRepo(host, exchange, { repository, action: 'pull' })).repo
  } catch (error) {
    if (error instanceof RegistryError && error.code === 'NAME_UNKNOWN') return undefined
    throw error
  }
}

async function referrersPage(
  host: OciHost,
  query: { repo: Uid; subject: ReferrersPath['digest']; after: string | undefined; artifactType: string | undefined; signal: AbortSignal },
): Promise<ReferrersPage> {
  const { repo, subject, artifactType, signal } = query
  const manifests: object[] = []
  let bytes = 0
  let after = query.after
  for (let seen = 0; seen < maxReferrersSeen;) {
    const found = await referrersOf(host.services, { repo, subject, limit: maxReferrers, ...(after === undefined ? {} : { after }) }, signal)
    for (const [at, { digest, record }] of found.items.entries()) {
      after = digest
      if (artifactType !== undefined && record.artifactType !== artifactType) continue
      const annotations = await annotationsOf(record, async () => {
        const held = await (host.cache.at({ repo, digest }) ?? host.cache.get({ repo, digest }, signal))
        // Manifests that were read for their annotations count toward the size limit too.
        bytes += held?.bytes.length ?? 0
        return held?.bytes
      })
      const descriptor = descriptorOf(digest, record, annotations)
      manifests.push(descriptor)
      bytes += JSON.stringify(descriptor).length
      const isLast = !found.more && at === found.items.length - 1
      if (!isLast && (manifests.length === maxReferrers || bytes > maxReferrersBytes)) return { manifests, next: digest }
    }
    if (!found.more) return { manifests, next: undefined }
    seen += found.items.length
  }
  return { manifests, next: after }
}

function descriptorOf(digest: string, record: ManifestRecord, annotations: Readonly<Record<string, string>>): object {
  const { mediaType, artifactType } = record
  return {
    mediaType,
    digest,
    size: Number(record.size),
    ...(artifactType === '' ? {} : { artifactType }),
    ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
  }
}
