import { parseDigest, type Digest } from '../../base/digest.ts'
import { isRepositoryName } from '../records/repo-paths.ts'
import { RegistryError } from '../registry-error.ts'

/** The tag or digest of a manifest in a path. `malformed` is neither, so no manifest has it. */
export type ManifestReference =
  { readonly kind: 'tag'; readonly tag: string } | { readonly kind: 'digest'; readonly digest: Digest } | { readonly kind: 'malformed'; readonly text: string }

/** A parsed path below `/v2/`. Other paths are not found. */
export type OciPath =
  | { readonly kind: 'base' }
  | { readonly kind: 'catalog' }
  | { readonly kind: 'manifest'; readonly repository: string; readonly reference: ManifestReference }
  | { readonly kind: 'blob'; readonly repository: string; readonly digest: Digest }
  | { readonly kind: 'uploads'; readonly repository: string }
  | { readonly kind: 'upload'; readonly repository: string; readonly id: string }
  | { readonly kind: 'tags'; readonly repository: string }
  | { readonly kind: 'referrers'; readonly repository: string; readonly digest: Digest }
  | { readonly kind: 'history'; readonly repository: string; readonly tag: string }

/** Kinds of path. */
export type OciPathKind = OciPath['kind']

const tagName = /^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$/
const uploadId = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
/** The colon of a digest in the last segment, in the form of clients that percent-encode path segments. */
const encodedColon = /(?<=\/sha(?:256|512))%3a(?=[0-9a-f]+$)/i
const canonical = /^[A-Za-z0-9._:/+=-]*$/

/** Returns true if the text is a valid tag name (docs/spec/registry.md#tag-names; OCI distribution specification "Pulling manifests"). */
export function isTagName(text: string): boolean {
  return tagName.test(text)
}

function notCanonical(): RegistryError {
  return new RegistryError('NAME_INVALID', 'the path must not have empty, `.` or `..` segments, or percent-encoded characters')
}

function unknownRoute(): RegistryError {
  return new RegistryError('UNSUPPORTED', 'there is no such operation', { status: 404 })
}

function nameOf(segments: readonly string[]): string {
  const name = segments.join('/')
  if (segments.length > 0 && isRepositoryName(name)) return name
  throw new RegistryError('NAME_INVALID', 'the repository name must be lowercase components of letters and digits, joined by `.`, `_`, `__` or `-`')
}

function digestIn(text: string): Digest {
  const digest = parseDigest(text)
  if (digest !== undefined) return digest
  throw new RegistryError('DIGEST_INVALID', 'the digest must be sha256: and 64, or sha512: and 128 lowercase hex digits')
}

function referenceIn(text: string): ManifestReference {
  if (text.includes(':')) return { kind: 'digest', digest: digestIn(text) }
  return isTagName(text) ? { kind: 'tag', tag: text } : { kind: 'malformed', text }
}

/** Parsers of paths, by their second last segment. */
const routes: Readonly<Record<string, (before: readonly string[], last: string) => OciPath>> = {
  manifests: (before, last) => ({ kind: 'manifest', repository: nameOf(before), reference: referenceIn(last) }),
  blobs: (before, last) => {
    // `uploads` in place of a digest: the path of new uploads, without the final slash.
    if (last === 'uploads') return { kind: 'uploads', repository: nameOf(before) }
    return { kind: 'blob', repository: nameOf(before), digest: digestIn(last) }
  },
  referrers: (before, last) => ({ kind: 'referrers', repository: nameOf(before), digest: digestIn(last) }),
  tags: (before, last) => {
    if (last !== 'list') throw unknownRoute()
    return { kind: 'tags', repository: nameOf(before) }
  },
  uploads: (before, last) => {
    if (before.at(-1) !== 'blobs') throw unknownRoute()
    const repository = nameOf(before.slice(0, -1))
    if (last === '') return { kind: 'uploads', repository }
    if (!uploadId.test(last)) throw new RegistryError('BLOB_UPLOAD_UNKNOWN', 'there is no such upload')
    return { kind: 'upload', repository, id: last }
  },
  history: (before, last) => {
    if (before.at(-1) !== '_service') throw unknownRoute()
    if (!isTagName(last)) throw new RegistryError('MANIFEST_UNKNOWN', 'there is no such tag')
    return { kind: 'history', repository: nameOf(before.slice(0, -1)), tag: last }
  },
}

/**
 * Parses the path in the request line, without the query. Only the colon of a digest may be percent-encoded. All other paths are rejected,
 * so stores and upstreams get only parsed values. Throws RegistryError: NAME_INVALID or DIGEST_INVALID (400), UNSUPPORTED (404) for
 * anything else.
 */
export function parseOciPath(sentPath: string): OciPath {
  const path = sentPath.replace(encodedColon, ':')
  if (path === '/v2/' || path === '/v2') return { kind: 'base' }
  if (!path.startsWith('/v2/')) throw unknownRoute()
  if (!canonical.test(path)) throw notCanonical()
  const segments = path.slice('/v2/'.length).split('/')
  const last = segments.pop() ?? ''
  if (segments.length === 0 && last === '_catalog') return { kind: 'catalog' }
  const isUploads = last === '' && segments.at(-1) === 'uploads'
  if ((last === '' && !isUploads) || [...segments, last].some((segment, at) => segment === '.' || segment === '..' || (segment === '' && at < segments.length)))
    throw notCanonical()
  const name = segments.pop() ?? ''
  const route = Object.hasOwn(routes, name) ? routes[name] : undefined
  if (route === undefined) throw unknownRoute()
  return route(segments, last)
}
