import { isDigest, type Digest } from '../../../base/digest.ts'
import { errorText } from '../../../base/error-text.ts'
import { DomainError } from '../../../base/errors.ts'
import type { Uid } from '../../../base/uid.ts'
import type { Services } from '../../../engine/services.ts'
import type { BlobRecord, BlobReference, ManifestRecord } from '../../../gen/taproot/store/v1/registry_pb.ts'
import type { AdmittedRequest } from '../../gate.ts'
import { removeTag } from '../../tags/tag-moves.ts'
import { readBody } from '../blobs/request-body.ts'
import type { RegistryExchange } from '../exchange.ts'
import type { CachedManifest } from './manifest-cache.ts'
import { architectureIn, maxManifestBytes, parseManifest, referencesOf, type ParsedManifest } from './manifest-parser.ts'
import { keepManifest } from './put-artifact.ts'
import { enterRepo, enterToPush, mutationOf, repoOfPush, type OciHost } from '../oci-host.ts'
import { isTagName, type OciPath, type ManifestReference } from '../oci-path.ts'
import { reportPull, trafficOf } from '../reports.ts'
import { forgetBlob, heldBlob, type BlobName } from '../../records/blobs.ts'
import type { ManifestName } from '../../records/manifest-keys.ts'
import { touchManifest } from '../../records/manifest-touch.ts'
import { heldManifest, missingReferences, removeManifest } from '../../records/manifests.ts'
import { answeredDigest, tagNamed, tagOf } from '../../records/tags.ts'
import type { PulledManifest } from '../../policies/pull-checks.ts'
import { explained, type PullVerdict } from '../../policies/verdict.ts'
import { RegistryError } from '../../registry-error.ts'
import { readBounded } from '../../upstream/chunk-body.ts'
import { UpstreamError } from '../../upstream/upstream.ts'

/**
 * Returns the `Warning` header for the manifest of a deprecated tag: code 299, agent `-`, a quoted text, no date (OCI distribution
 * specification 1.1, "Warnings"). The text is the same for all tags. Names are plain ASCII without quotes, so nothing needs escaping.
 */
function deprecationWarning(repository: string, tag: string): string {
  return `299 - "tag ${tag} of ${repository} is deprecated (end of life)"`
}

type ManifestPath = Extract<OciPath, { kind: 'manifest' }>

/** Maximum size of a config that is read for the architecture, in bytes. */
const maxConfigBytes = 256 * 1024

function unknownManifest(): RegistryError {
  return new RegistryError('MANIFEST_UNKNOWN', 'there is no such manifest')
}

/**
 * Resolves a tag or digest as of the snapshot. `answered` is the digest in the response: for a tag, the one that its manifest was pushed
 * by.
 */
function resolve(host: OciHost, repo: Uid, reference: ManifestReference): { digest: Digest; answered: Digest; tag: string | undefined; deprecated: boolean } {
  if (reference.kind === 'digest') return { digest: reference.digest, answered: reference.digest, tag: undefined, deprecated: false }
  const record = reference.kind === 'tag' ? tagNamed(host.services.cache.tables, repo, reference.tag) : undefined
  if (record === undefined) throw unknownManifest()
  const { name, digest, deprecated } = tagOf(record)
  if (digest === '') throw unknownManifest()
  return { digest: digest as Digest, answered: answeredDigest(record), tag: name, deprecated } // a cast: digests are checked before they are written
}

/** Returns true if `If-None-Match` shows that the client already has the current content (RFC 9110, 13.1.2). */
export function isUnchanged(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.split(',').some((tag) => ['*', etag].includes(tag.trim().replace(/^W\//, '')))
}

/** Handles GET and HEAD of a manifest by tag or digest. Returns the stored media type and ignores the `Accept` header. */
export async function getManifest(host: OciHost, exchange: RegistryExchange, path: ManifestPath): Promise<void> {
  const { repository, reference } = path
  const content = reference.kind === 'digest' ? reference.digest : undefined
  const { entry, repo } = await enterRepo(host, exchange, { repository, action: 'pull', content })
  const { digest, answered, tag, deprecated } = resolve(host, repo, reference)
  const manifest = host.cache.at({ repo, digest: answered }) ?? (await fetched(host, { repo, digest, answered }, exchange))
  if (manifest === undefined) throw unknownManifest()
  const method = exchange.request.method === 'HEAD' ? 'HEAD' : 'GET'
  const pulled = { repo, digest, tag: tag === undefined ? undefined : { name: tag, deprecated }, bytes: manifest.bytes }
  const asked = host.pullChecks.verdict(pulled, () => exchange.signal)
  const verdict = asked instanceof Promise ? await asked : asked
  const warning = verdict && obeyed(host, exchange, { verdict, pulled, entry })
  // A client that may push does not send an image of an index that it finds here, so the image must stay. A manifest with a tag stays
  // anyway.
  if (method === 'HEAD' && tag === undefined && entry.may('push') && !(await touchManifest(host.services, { repo, digest }, exchange.signal)))
    throw unknownManifest()
  const warnings = deprecated && tag !== undefined ? [deprecationWarning(repository, tag)] : []
  if (warning !== undefined) warnings.push(warning)
  answerManifest(exchange, manifest, warnings)
  reportPull(host, exchange, { entry, repo, digest, tag, type: 'manifest', method })
}

/** Returns the manifest by the digest that is answered, or else by the other one: from the cache, or else from the upstream. */
async function fetched(
  { cache }: OciHost,
  { repo, digest, answered }: ManifestName & { readonly answered: Digest },
  { signal }: RegistryExchange,
): Promise<CachedManifest | undefined> {
  const found = await cache.get({ repo, digest: answered }, signal)
  if (found !== undefined || answered === digest) return found
  return cache.at({ repo, digest }) ?? cache.get({ repo, digest }, signal)
}

/**
 * Does what pull policies say. Throws DENIED if one refuses the pull. Returns the `Warning` header if one warns. A client that may push asks by HEAD what it
 * need not send: it is warned only. So is who may push, and pulls by digest what is not signed: cosign does that before it signs.
 */
function obeyed(
  host: OciHost,
  exchange: RegistryExchange,
  { verdict, pulled, entry }: { readonly verdict: PullVerdict; readonly pulled: PulledManifest; readonly entry: AdmittedRequest },
): string | undefined {
  const { decision, results, lacksOnlySignature } = verdict
  exchange.judged = { digest: pulled.digest, results }
  host.observeVerdict?.(decision)
  if (decision === 'allow') return undefined
  const text = explained(verdict)
  const isPush = exchange.request.method === 'HEAD' && entry.may('push')
  const isSigning = lacksOnlySignature && pulled.tag === undefined && entry.holds('push')
  if (decision === 'deny' && !isPush && !isSigning) throw new RegistryError('DENIED', `a pull policy refuses this: ${text}`)
  return `299 - "${decision === 'deny' ? 'a pull policy refuses a pull of this' : 'a pull policy warns'}: ${text}"`
}

function answerManifest(exchange: RegistryExchange, manifest: CachedManifest, warnings: readonly string[]): void {
  const more = warnings.length === 0 ? [] : warnings.flatMap((warning) => ['Warning', warning])
  if (isUnchanged(exchange.header('if-none-match'), manifest.etag)) {
    exchange.send(304, ['ETag', manifest.etag, ...more])
    return
  }
  exchange.send(200, more.length === 0 ? manifest.headers : [...manifest.headers, ...more], manifest.bytes)
}

/** Maximum number of tags in one request: all move in one transaction. */
const maxTagsAtOnce = 10

/**
 * Returns the tags that a push sets: the tag in the path, or the `tag` parameters of a push by digest. See OCI distribution specification, "Pushing Manifests".
 */
function tagsOf(exchange: RegistryExchange, reference: ManifestReference): string[] {
  const tags = reference.kind === 'tag' ? [reference.tag] : [...new Set(exchange.query.getAll('tag'))]
  if (reference.kind === 'malformed' || !tags.every(isTagName))
    throw new RegistryError('MANIFEST_INVALID', 'a tag has 1 to 128 letters, digits, `_`, `.` and `-`, and starts with a letter, a digit or `_`')
  if (tags.length > maxTagsAtOnce) throw new RegistryError('UNSUPPORTED', `one request can set ${maxTagsAtOnce} tags at most`, { status: 414 })
  return tags
}

/**
 * Handles PUT of a manifest by tag or digest. Stores the bytes in the upstream, then makes the manifest and its tags visible in one
 * transaction.
 */
export async function putManifest(host: OciHost, exchange: RegistryExchange, path: ManifestPath): Promise<void> {
  const entry = await enterToPush(host, exchange, path)
  const { reference } = path
  const tags = tagsOf(exchange, reference)
  const bytes = await readBody(exchange.request, { idleMs: host.idleMs, maxBytes: maxManifestBytes })
  const sent = { bytes, contentType: exchange.header('content-type') }
  const parsed = parseManifest(reference.kind === 'digest' ? { ...sent, digest: reference.digest } : sent)
  assertMayBeNew(entry, parsed)
  const pushed = await repoOfPush(host, exchange, entry)
  await checkAndKeep(host, exchange, { ...pushed, parsed, bytes, tags })
  const headers = ['Location', `/v2/${path.repository}/manifests/${parsed.digest}`, 'Docker-Content-Digest', parsed.digest, 'Content-Length', 0]
  const subject = parsed.record.subject === '' ? [] : ['OCI-Subject', parsed.record.subject]
  const accepted = reference.kind === 'tag' || tags.length === 0 ? [] : ['OCI-Tag', tags.join(', ')]
  exchange.send(201, [...headers, ...subject, ...accepted])
}

/**
 * Refuses a manifest with references if the repo does not exist yet. A new repo holds nothing to refer to, so it is not created for a push that will be
 * refused.
 */
function assertMayBeNew(entry: AdmittedRequest, { record, foreignLayers }: ParsedManifest): void {
  if (entry.target.kind !== 'absent') return
  const missing = referencesOf(record).find((digest) => !foreignLayers.has(digest))
  if (missing !== undefined) throw unknownBlob(missing)
}

function unknownBlob(digest: string): RegistryError {
  return new RegistryError('MANIFEST_BLOB_UNKNOWN', 'the manifest refers to content that is not in the repository: push it first', { detail: { digest } })
}

async function checkAndKeep(
  host: OciHost,
  exchange: RegistryExchange,
  pushed: { entry: AdmittedRequest; repo: Uid; parsed: ParsedManifest; bytes: Uint8Array; tags: readonly string[] },
): Promise<void> {
  const { entry, repo, parsed, bytes, tags } = pushed
  const { digest, record } = parsed
  const { signal } = exchange
  await leaveOutForeign(host, repo, { parsed, signal })
  // Checked before the upstream stores anything, so that a refused manifest leaves no bytes there. The transaction checks it again.
  const [missing] = await missingReferences(host.services, { repo, record }, signal)
  if (missing !== undefined) throw unknownBlob(missing)
  record.architecture = await architectureOf(host, repo, { config: parsed.imageConfig, signal })
  const traffic = { ...trafficOf(host, exchange), repository: entry.repository, digest, type: 'manifest' }
  const mutation = mutationOf(entry, exchange, 'push')
  const store = (): Promise<void> => putUpstream(host, repo, { parsed, bytes, signal })
  await keepManifest(host, mutation, { repo, parsed, traffic, tags, store })
}

/**
 * Puts the manifest upstream. If the upstream refuses it, throws MANIFEST_BLOB_UNKNOWN if the repo lacks something that it refers to, else MANIFEST_INVALID.
 */
async function putUpstream(host: OciHost, repo: Uid, put: { parsed: ParsedManifest; bytes: Uint8Array; signal: AbortSignal }): Promise<void> {
  const { parsed, bytes, signal } = put
  const { mediaType } = parsed.record
  try {
    await host.upstream.putManifest(repo, { digest: parsed.upstreamDigest, mediaType, bytes }, signal)
  } catch (error) {
    if (!(error instanceof UpstreamError && error.kind === 'refused')) throw error
    const missing = await missingReference(host, repo, put)
    if (missing !== undefined) throw unknownBlob(missing)
    host.services.log.warn('the upstream refused a manifest', { repo, digest: parsed.digest, mediaType, error: errorText(error) })
    throw new RegistryError('MANIFEST_INVALID', refusalOf(parsed), { cause: error })
  }
}

/**
 * Returns why the upstream may have refused a manifest. The upstream stores manifests only by SHA-256 digest, so it may fail to find
 * children of an index that have another.
 */
function refusalOf({ record }: ParsedManifest): string {
  const other = record.children.map(({ digest }) => digest).find((digest) => !digest.startsWith('sha256:'))
  if (other === undefined) return `the upstream registry does not accept manifests of media type ${record.mediaType}`
  return `the upstream registry does not accept an index that names ${other}: push its images, and the index, with sha256 digests`
}

/** Returns the digest of some content that the manifest needs and the repo does not hold; undefined if there is none. */
async function missingReference(host: OciHost, repo: Uid, put: { parsed: ParsedManifest; signal: AbortSignal }): Promise<Digest | undefined> {
  const { parsed, signal } = put
  const { record } = parsed
  const isHeld = record.children.length > 0 ? isChild : isThere
  for (const digest of referencesOf(record)) if ((await isHeld(host.services, { repo, digest }, signal)) === undefined) return digest
  return undefined

  async function isChild(services: Services, name: BlobName, among: AbortSignal): Promise<ManifestRecord | BlobRecord | undefined> {
    return (await heldManifest(services, name, among)) ?? isThere(services, name, among)
  }

  /**
   * Returns the record of a blob; undefined if the repo does not hold it. If the upstream has lost the blob, also removes the record, so
   * that the client pushes the blob again.
   */
  async function isThere(services: Services, name: BlobName, among: AbortSignal): Promise<BlobRecord | undefined> {
    const blob = await heldBlob(services, name, among)
    // A cast: the record holds nothing else.
    if (blob === undefined || (await host.upstream.statBlob(repo, blob.upstreamDigest as Digest, among)) !== undefined) return blob
    services.log.error('the upstream has lost a blob', { repo, digest: name.digest })
    await forgetBlob(services, name, among)
    return undefined
  }
}

/** Removes from the record the foreign layers that the client did not push. Pushed ones are kept like other layers. */
async function leaveOutForeign(host: OciHost, repo: Uid, source: { parsed: ParsedManifest; signal: AbortSignal }): Promise<void> {
  const { parsed, signal } = source
  const away = new Set<string>()
  for (const digest of parsed.foreignLayers) {
    if (isDigest(digest) && (await heldBlob(host.services, { repo, digest }, signal)) === undefined) away.add(digest)
  }
  if (away.size > 0) parsed.record.layers = parsed.record.layers.filter(({ digest }) => !away.has(digest))
}

/** Returns the architecture that the config names; empty if the config is too large. Reads it only if the repo holds it. */
async function architectureOf(host: OciHost, repo: Uid, source: { config: BlobReference | undefined; signal: AbortSignal }): Promise<string> {
  const { config, signal } = source
  if (config === undefined || !isDigest(config.digest)) return ''
  const held = await heldBlob(host.services, { repo, digest: config.digest }, signal)
  if (held === undefined) throw unknownBlob(config.digest)
  if (held.size > maxConfigBytes) return ''
  const blob = await host.upstream.readBlob(repo, { digest: held.upstreamDigest as Digest }, signal) // a cast: the record holds nothing else
  if (blob === undefined) throw unknownBlob(config.digest)
  const read = await readBounded(blob.body, maxConfigBytes)
  if (read.kind === 'broken') throw read.cause
  return read.kind === 'whole' ? architectureIn(read.bytes) : ''
}

/** Handles DELETE: by tag, deletes only the tag; by digest, deletes the manifest and all its tags. */
export async function deleteManifest(host: OciHost, exchange: RegistryExchange, path: ManifestPath): Promise<void> {
  const { entry, repo } = await enterRepo(host, exchange, { repository: path.repository, action: 'delete' })
  const { reference } = path
  if (reference.kind === 'malformed') throw unknownManifest()
  const mutation = mutationOf(entry, exchange, 'delete')
  try {
    if (reference.kind === 'tag') await removeTag(host.services, mutation, { repo, name: reference.tag, host: host.registryHost })
    else await removeManifest(host.services, mutation, { repo, digest: reference.digest, host: host.registryHost })
  } catch (error) {
    if (error instanceof DomainError && error.code === 5) throw unknownManifest()
    throw error
  }
  exchange.send(202, ['Content-Length', 0])
}
