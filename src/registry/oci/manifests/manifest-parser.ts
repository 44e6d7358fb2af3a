import { create, toBinary } from '@bufbuild/protobuf'
import { JsonBoundsError, parseBoundedJson, repeatedKey, type JsonBounds } from '../../../base/bounded-json.ts'
import { algorithmOf, digestOf, isDigest, type Digest } from '../../../base/digest.ts'
import {
  ChildManifestSchema,
  ManifestRecordSchema,
  type BlobReference,
  type ChildManifest,
  type ManifestRecord,
} from '../../../gen/taproot/store/v1/registry_pb.ts'
import { RegistryError } from '../../registry-error.ts'
import {
  assertPlainKeys,
  descriptorIn,
  digestIn,
  digestsWithin,
  invalidManifest,
  optionalText,
  textMap,
  textsIn,
  type Descriptor,
  type JsonRecord,
} from './descriptors.ts'

/** Maximum size of a manifest, in bytes (OCI distribution specification, "Pushing manifests"). */
export const maxManifestBytes = 4 * 1024 * 1024

/** Maximum size of a manifest's record, in bytes. This is most of what one transaction of the store accepts. */
export const maxRecordBytes = 1024 * 1024

/** Maximum size of annotations to keep in the record, in bytes, for lists of referrers. Larger ones are read from the manifest itself. */
const maxKeptAnnotationBytes = 256 * 1024

/** Limits for the JSON of a manifest. They allow more descriptors than fit in its record. */
const manifestBounds: JsonBounds = { maxDepth: 64, maxValues: 262_144, maxKeys: 262_144 }

/** The media type of an OCI image index. Lists of referrers have this form. */
export const indexMediaType = 'application/vnd.oci.image.index.v1+json'

/** How to read a manifest of a supported media type. */
type ManifestForm = 'image' | 'index'

const dockerManifest = 'application/vnd.docker.distribution.manifest.v2+json'

const forms: Readonly<Record<string, ManifestForm>> = {
  'application/vnd.oci.image.manifest.v1+json': 'image',
  [indexMediaType]: 'index',
  [dockerManifest]: 'image',
  'application/vnd.docker.distribution.manifest.list.v2+json': 'index',
}

/** Media types of Docker's first manifest format, which is refused: its digest is not the digest of its bytes. */
const refusedTypes: ReadonlySet<string> = new Set([
  'application/vnd.docker.distribution.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v1+prettyjws',
])

const foreignLayer = /^application\/vnd\.(?:docker\.image\.rootfs\.foreign\.diff|oci\.image\.layer\.nondistributable)\b/
const imageConfigs: ReadonlySet<string> = new Set(['application/vnd.oci.image.config.v1+json', 'application/vnd.docker.container.image.v1+json'])

/** True for the media type of layers that clients do not push. Their bytes are stored elsewhere, so the repo need not hold them. */
export function isForeignLayer(mediaType: string): boolean {
  return foreignLayer.test(mediaType)
}

/** True for the media type of configs that name the architecture of an image. */
export function isImageConfig(mediaType: string): boolean {
  return imageConfigs.has(mediaType)
}

const imageLayer = /^application\/vnd\.(?:oci\.image\.layer|docker\.image\.rootfs)\./

/** True for the media type of layers with files of an image. */
export function isImageLayer(mediaType: string): boolean {
  return imageLayer.test(mediaType)
}

/** True for the media types of an image. Signatures and attestations can have the config of an image, but their layers are not those of images. */
export function isImage({ config, layers }: { readonly config: string; readonly layers: readonly string[] }): boolean {
  return isImageConfig(config) && (layers.length === 0 || layers.some(isImageLayer))
}

/** Further media types of the config of an image in Docker's manifest. Docker Engine runs these, whatever the types of the layers. */
const dockerConfigs: ReadonlySet<string> = new Set(['', 'application/octet-stream', 'application/json', 'text/html'])
/** Media types that say nothing about a layer. */
const generic: ReadonlySet<string> = new Set(['', 'application/octet-stream'])

/**
 * True if a container can be made from a manifest of this media type that is no index, by any known client. Clients may compare media types without regard to
 * case.
 */
export function runsAsImage(manifest: Uint8Array, mediaType: string): boolean {
  const { config, layers } = bodyOf(manifest)
  const typeOf = (descriptor: unknown): string => {
    const type = typeof descriptor === 'object' && descriptor !== null ? (descriptor as JsonRecord)['mediaType'] : undefined // a cast: see digestIn
    return typeof type === 'string' ? type.toLowerCase() : ''
  }
  const [configType, layerTypes] = [typeOf(config), Array.isArray(layers) ? layers.map(typeOf) : []]
  if (mediaType.toLowerCase() === dockerManifest) return isImageConfig(configType) || dockerConfigs.has(configType)
  return isImage({ config: configType, layers: layerTypes }) || (isImageConfig(configType) && layerTypes.some((type) => generic.has(type)))
}

const mediaTypePattern = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/

/** Manifests have a JSON media type. Other types are refused, so that no browser treats a manifest as a page or script. */
const isJsonType = /^application\/(?:json|.+\+json)$/i

/** A manifest as the client sent it. */
export interface SentManifest {
  readonly bytes: Uint8Array
  /** The `Content-Type` header, with or without parameters. */
  readonly contentType: string | undefined
  /** The digest in the path of a push by digest. */
  readonly digest?: Digest
}

/** A parsed manifest. */
export interface ParsedManifest {
  /** The digest that the client named; SHA-256 if it named none. */
  readonly digest: Digest
  /** The SHA-256 digest, under which the upstream stores the manifest. */
  readonly upstreamDigest: Digest
  /** The record, without the architecture and times. */
  readonly record: ManifestRecord
  /** The config of an image, which names the architecture. */
  readonly imageConfig: BlobReference | undefined
  /** Digests of layers in the record that the repo need not hold. */
  readonly foreignLayers: ReadonlySet<string>
}

/** Returns the media type of a manifest. Throws if the header and the body differ. */
function mediaTypeOf(contentType: string | undefined, body: JsonRecord): string {
  const header = contentType?.split(';', 1)[0]?.trim().toLowerCase() || undefined
  const own = optionalText(body, 'mediaType', '')
  if (header !== undefined && own !== '' && header !== own.toLowerCase())
    throw invalidManifest(`Content-Type ${header} is not the mediaType of the body, ${own}`)
  const mediaType = header ?? own
  if (mediaType === '') throw invalidManifest('the manifest has no mediaType and the request no Content-Type')
  if (!mediaTypePattern.test(mediaType.toLowerCase())) throw invalidManifest('the media type is invalid')
  if (refusedTypes.has(mediaType.toLowerCase()) || body['schemaVersion'] === 1)
    throw invalidManifest('manifests of Docker schema 1 are not supported: push the image with a current client')
  if (!isJsonType.test(mediaType)) throw invalidManifest(`the media type ${mediaType} is not a JSON type: use application/json or application/<name>+json`)
  return mediaType
}

function bodyOf(bytes: Uint8Array): JsonRecord {
  return objectIn(textOf(bytes))
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (error) {
    throw invalidManifest('the manifest is not JSON', error)
  }
}

function objectIn(text: string): JsonRecord {
  let value: unknown
  try {
    value = parseBoundedJson(text, manifestBounds)
  } catch (error) {
    throw invalidManifest(error instanceof JsonBoundsError ? `the manifest ${error.message}` : 'the manifest is not JSON', error)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidManifest('the manifest is not a JSON object')
  return value as JsonRecord // a cast: what is no array and not null is an object of JSON
}

function listIn(body: JsonRecord, field: string): readonly unknown[] {
  const list = body[field]
  if (Array.isArray(list)) return list as readonly unknown[] // a cast: elements are checked one by one
  throw invalidManifest(`${field} must be a list of descriptors`)
}

function reference({ digest, size }: Descriptor): BlobReference {
  return { $typeName: 'taproot.store.v1.BlobReference', digest, size: BigInt(size) }
}

/** Returns a child of an index with its digest and architecture. The other fields are only in the manifest itself. */
function childOf(value: unknown, at: number): ChildManifest {
  const field = `manifests[${at}]`
  const { digest, fields } = descriptorIn(value, field)
  const platform = fields['platform'] ?? {}
  if (typeof platform !== 'object' || Array.isArray(platform)) throw invalidManifest(`${field}.platform must be an object`)
  assertPlainKeys(platform as JsonRecord, 'platform', `${field}.platform.`) // a cast: it is no array and not null
  const text = (name: string): string => optionalText(platform as JsonRecord, name, `${field}.platform.`)
  for (const name of ['os', 'variant']) text(name)
  return create(ChildManifestSchema, { digest, architecture: text('architecture') })
}

/** Returns the annotations to keep in the record: all of them, or none if they are too large. */
function keptAnnotations(annotations: Record<string, string>): Record<string, string> {
  return Buffer.byteLength(JSON.stringify(annotations)) > maxKeptAnnotationBytes ? {} : annotations
}

/** Returns the annotations of a held manifest. They come from its record, or from its bytes if it is too large for its record to keep them. */
export async function annotationsOf(record: ManifestRecord, read: () => Promise<Uint8Array | undefined>): Promise<Readonly<Record<string, string>>> {
  if (Object.keys(record.annotations).length > 0 || Number(record.size) <= maxKeptAnnotationBytes) return record.annotations
  const bytes = await read()
  return bytes === undefined ? {} : (textsIn(bodyOf(bytes)['annotations']) ?? {})
}

/**
 * Fills `record` from a manifest of an unknown media type. Anything in it that looks like a descriptor may be needed, so it is kept as
 * long as the manifest. The repo need not hold it. `subject`, `artifactType` and `annotations` have their usual meaning if they have the
 * usual form.
 */
function readOther(body: JsonRecord, record: ManifestRecord): void {
  const { subject, ...rest } = body
  record.subject = digestIn(subject) ?? ''
  record.mentions = [...digestsWithin(record.subject === '' ? body : rest)]
  if (typeof body['artifactType'] === 'string') record.artifactType = body['artifactType'].toWellFormed()
  record.annotations = keptAnnotations(textsIn(body['annotations']) ?? {})
}

/** Fills `record` with the fields that only this form of manifest has. */
function readReferences(form: ManifestForm, body: JsonRecord, record: ManifestRecord): Pick<ParsedManifest, 'imageConfig' | 'foreignLayers'> {
  const foreignLayers = new Set<string>()
  if (body['schemaVersion'] !== 2) throw invalidManifest('schemaVersion must be 2')
  // Rejects a document that is both an image and an index, because clients would read it differently.
  const other = form === 'image' ? ['manifests'] : ['config', 'layers']
  for (const field of other) if (body[field] !== undefined) throw invalidManifest(`a manifest of media type ${record.mediaType} has no ${field}`)
  record.artifactType = optionalText(body, 'artifactType', '')
  record.annotations = keptAnnotations(textMap(body['annotations'], 'annotations'))
  if (body['subject'] !== undefined && body['subject'] !== null) record.subject = descriptorIn(body['subject'], 'subject').digest
  if (form === 'index') {
    record.children = listIn(body, 'manifests').map(childOf)
    return { imageConfig: undefined, foreignLayers }
  }
  const config = descriptorIn(body['config'], 'config')
  record.config = reference(config)
  if (record.artifactType === '') record.artifactType = config.mediaType
  const layers = listIn(body, 'layers').map((value, at) => descriptorIn(value, `layers[${at}]`))
  for (const { digest, mediaType } of layers) if (isForeignLayer(mediaType)) foreignLayers.add(digest)
  record.layers = layers.map(reference)
  record.isImage = isImage({ config: config.mediaType, layers: layers.map(({ mediaType }) => mediaType) })
  return { imageConfig: isImageConfig(config.mediaType) ? record.config : undefined, foreignLayers }
}

/** Throws if the record is too large to be written in one transaction with the move of a tag. The manifest itself is stored in the upstream. */
function assertKeepable(record: ManifestRecord): void {
  const { length } = toBinary(ManifestRecordSchema, record)
  if (length <= maxRecordBytes) return
  throw invalidManifest(`the digests and annotations of the manifest have ${length} bytes: ${maxRecordBytes} at most are allowed`)
}

/**
 * Parses a manifest: an OCI image manifest or index, or one of Docker's second schema. Accepts JSON of any other media type (`application/json`,
 * `application/<name>+json`) as it is, and keeps what its descriptors name with it. Throws RegistryError: SIZE_INVALID (413), DIGEST_INVALID if the digest does
 * not match the bytes, MANIFEST_INVALID with the fault.
 */
export function parseManifest(sent: SentManifest): ParsedManifest {
  const { bytes } = sent
  if (bytes.length > maxManifestBytes) throw new RegistryError('SIZE_INVALID', `a manifest may have ${maxManifestBytes} bytes at most`)
  const upstreamDigest = digestOf(bytes)
  const digest = sent.digest === undefined || algorithmOf(sent.digest) === 'sha256' ? upstreamDigest : digestOf(bytes, algorithmOf(sent.digest))
  if (sent.digest !== undefined && sent.digest !== digest)
    throw new RegistryError('DIGEST_INVALID', 'the manifest does not match the digest', { detail: { digest: sent.digest } })
  const text = textOf(bytes)
  const body = objectIn(text)
  const doubled = repeatedKey(text)
  if (doubled !== undefined) throw invalidManifest(`the manifest has the key ${JSON.stringify(doubled)} twice in one object`)
  assertPlainKeys(body, 'manifest')
  const mediaType = mediaTypeOf(sent.contentType, body)
  const form = Object.hasOwn(forms, mediaType) ? forms[mediaType] : undefined
  const record = create(ManifestRecordSchema, { mediaType, size: BigInt(bytes.length), upstreamDigest })
  if (form === undefined) readOther(body, record)
  const references = form === undefined ? { imageConfig: undefined, foreignLayers: new Set<string>() } : readReferences(form, body, record)
  assertKeepable(record)
  return { digest, upstreamDigest, record, ...references }
}

/** Returns the architecture in an image's config; empty if there is none. */
export function architectureIn(config: Uint8Array): string {
  try {
    const { architecture } = bodyOf(config)
    return typeof architecture === 'string' && /^[a-z0-9_.-]{1,64}$/i.test(architecture) ? architecture : ''
  } catch (error) {
    if (error instanceof RegistryError) return ''
    throw error
  }
}

/** The digests that a repo must hold before it can hold the manifest. */
export function referencesOf(record: ManifestRecord): Digest[] {
  const all = [
    ...record.children.map(({ digest }) => digest),
    ...(record.config === undefined ? [] : [record.config.digest]),
    ...record.layers.map(({ digest }) => digest),
  ]
  return [...new Set(all)].filter(isDigest)
}
