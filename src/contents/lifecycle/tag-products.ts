import type { Digest } from '../../base/digest.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { DescribedProduct, ImageName, ReadImage } from '../../cache/lists/contents-source.ts'
import type { ProductVersion } from '../../cache/lists/lifecycle-source.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import type { Services } from '../../engine/services.ts'
import type { ProductRule } from '../../gen/taproot/registry/v2/repos_pb.ts'
import { firstImage, heldManifest, isImageRecord } from '../../registry/index.ts'
import { packageOfUrl } from '../package-url.ts'

const title = 'org.opencontainers.image.title'
const version = 'org.opencontainers.image.version'
const baseName = 'org.opencontainers.image.base.name'

/** The most characters of a name or version. Longer ones are no product's. */
const maxLength = 255
/** Number of tags whose manifests are read together. */
const readsAtOnce = 64

/** A tag whose product is looked for. */
export interface ProductTag {
  readonly repo: Uid
  readonly name: string
  /** Empty for a tag that points to nothing. */
  readonly digest: Digest | ''
}

/** What a tag may be a version of. */
export interface TagProduct extends ProductVersion {
  /** True for the base image. */
  readonly isBase: boolean
}

/** Returns what `*` in a glob stands for in a text, or the whole text if the glob has none. Undefined if the text does not match. */
function partMatched(glob: string, text: string): string | undefined {
  const star = glob.indexOf('*')
  if (star < 0) return text === glob ? text : undefined
  const [start, end] = [glob.slice(0, star), glob.slice(star + 1)]
  const isMatch = text.length >= start.length + end.length && text.startsWith(start) && text.endsWith(end)
  return isMatch ? text.slice(start.length, text.length - end.length) : undefined
}

/** Returns what a tag is a version of by the first rule for it; undefined if there is none. */
export function productByRules(rules: readonly Pick<ProductRule, 'tagGlob' | 'product' | 'version'>[], tag: string): TagProduct | undefined {
  for (const { tagGlob, product, version: template } of rules) {
    const part = partMatched(tagGlob || '*', tag)
    if (part !== undefined) return { product: packageOfUrl(product)?.purl ?? product, version: (template || '*').replace('*', () => part), isBase: false }
  }
  return undefined
}

/** What is known of an image that may say which product it is. */
export interface ProductFacts {
  /** Those of its manifest. */
  readonly annotations: Readonly<Record<string, string>>
  /** What its SBOM is about. */
  readonly described?: DescribedProduct | undefined
}

/** Returns the product and version in a reference of an image, e.g. `docker.io/library/python:3.12-slim`. Undefined without a tag. */
function productOfReference(reference: string): ProductVersion | undefined {
  const [, product = '', tag = ''] = /(?:^|\/)([^/:@]+):([\w][\w.-]*)(?:@[^/]*)?$/.exec(reference) ?? []
  return product === '' ? undefined : { product, version: tag }
}

/** True for a text such as `sha256:0a1b`, which is no version. */
function isDigestText(text: string): boolean {
  return /^[a-z0-9]+:[0-9a-f]{32,}$/.test(text)
}

/** Returns the first text that can be a version; the name of the tag if there is none. */
function versionAmong(texts: readonly string[], tag: string): string {
  return texts.find((text) => text !== '' && !isDigestText(text)) ?? tag
}

/** Returns what an SBOM is about: its package, and its name, which is often a reference of an image. */
function productsDescribed({ name, version: named, purl }: DescribedProduct, tag: string): ProductVersion[] {
  const found = packageOfUrl(purl)
  const inUrl = found?.version ?? ''
  // The URL of an image only has its name and its digest.
  const byUrl = found === undefined || found.type === 'oci' ? [] : [{ product: purl, version: versionAmong([inUrl, named], tag) }]
  if (name.length > maxLength) return byUrl
  const reference = productOfReference(name)
  const [, product = ''] = /([^/@]+)(?:@[^/]*)?$/.exec(name) ?? []
  return [...byUrl, reference ?? { product, version: versionAmong([named, inUrl], tag) }]
}

/** Returns what a tag may be a version of, the best first: what annotations say, what its SBOM is about, and its base image. */
export function productsIn({ annotations, described }: ProductFacts, tag: string): TagProduct[] {
  const { [title]: name = '', [version]: named = '', [baseName]: base = '' } = annotations
  const own = { product: name, version: versionAmong([named], tag) }
  const below = base.length > maxLength ? undefined : productOfReference(base)
  return [
    ...[own, ...(described === undefined ? [] : productsDescribed(described, tag))].map((one) => ({ ...one, isBase: false })),
    ...(below === undefined ? [] : [{ ...below, isBase: true }]),
  ].filter((one) => one.product !== '' && one.product.length <= maxLength && one.version.length <= maxLength)
}

/** What a tag may be a version of, as far as it is known. */
export interface KnownProducts {
  /** The best first. */
  readonly products: readonly TagProduct[]
  /** False for an artifact, which is never read. */
  readonly isImage: boolean
  /** True if its contents are known. */
  readonly isRead: boolean
}

/** What the manifests of a tag say: its own, or else that of the first image of its index. */
interface ManifestFacts {
  readonly annotations: Readonly<Record<string, string>>
  /** Its SHA-256 digest, by which its contents are known. */
  readonly image: Digest
  /** False for an artifact, which is never read. */
  readonly isImage: boolean
}

async function manifestFacts(services: Services, { repo, digest }: ProductTag, signal: AbortSignal): Promise<ManifestFacts | undefined> {
  const record = digest === '' ? undefined : await heldManifest(services, { repo, digest }, signal)
  if (record === undefined) return undefined
  // Casts: records hold checked digests.
  const own: ManifestFacts = { annotations: record.annotations, image: record.upstreamDigest as Digest, isImage: isImageRecord(record) }
  const image = await firstImage(services, { repo, index: record }, signal)
  if (image === undefined) return own
  const hasProduct = productsIn(own, '').length > 0
  return { annotations: hasProduct ? own.annotations : image.annotations, image: image.upstreamDigest as Digest, isImage: isImageRecord(image) }
}

/** False for an image whose SBOM was read before version 2 of the readers. They did not note what it is about, and it is read again. */
function isReadWhole({ source, problem, described }: ReadImage): boolean {
  return source === 'layers' || problem !== '' || described !== undefined
}

/**
 * Resolves with what each tag may be a version of, in the order of the tags. What images contain counts as far as they were read. Rejects with code 14 while
 * this process loads that, and with StoreError.
 */
export async function tagProducts(services: Services, tags: readonly ProductTag[], turn: TaskTurn): Promise<readonly KnownProducts[]> {
  const facts: (ManifestFacts | undefined)[] = []
  for (let at = 0; at < tags.length; at += readsAtOnce)
    facts.push(...(await Promise.all(tags.slice(at, at + readsAtOnce).map((tag) => manifestFacts(services, tag, turn.signal)))))
  const names = tags.flatMap(({ repo }, at): ImageName[] => {
    const known = facts[at]
    return known === undefined ? [] : [{ repo, digest: known.image }]
  })
  const read = (await services.imageContents?.imagesAmong(names, turn)) ?? []
  const images = new Map(read.map((image) => [`${image.repo} ${image.digest}`, image]))
  return tags.map(({ repo, name }, at) => {
    const record = services.cache.tables.get('Repo', repo)
    const ruled = record === undefined ? undefined : productByRules(messageOf(record, 'Repo').productRules, name)
    // What a rule says counts, even if the catalogue does not know it.
    if (ruled !== undefined) return { products: [ruled], isImage: false, isRead: false }
    const known = facts[at]
    if (known === undefined) return { products: [], isImage: false, isRead: false }
    const image = images.get(`${repo} ${known.image}`)
    const { annotations, isImage } = known
    return { products: productsIn({ annotations, described: image?.described }, name), isImage, isRead: image !== undefined && isReadWhole(image) }
  })
}
