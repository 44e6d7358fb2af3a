import type { Digest } from '../base/digest.ts'
import type { Uid } from '../base/uid.ts'
import type { ProductVersion } from '../cache/lists/lifecycle-source.ts'
import type { Services } from '../engine/services.ts'
import { heldManifest } from '../registry/index.ts'

const title = 'org.opencontainers.image.title'
const version = 'org.opencontainers.image.version'
const baseName = 'org.opencontainers.image.base.name'

/** The most characters of a name or version. Longer ones are no product's. */
const maxLength = 255

/** What a tag may be a version of. */
export interface TagProduct extends ProductVersion {
  /** True for the base image. */
  readonly isBase: boolean
}

/** Returns the product and version in a reference of an image, e.g. `docker.io/library/python:3.12-slim`. Undefined without a tag. */
function productOfReference(reference: string): ProductVersion | undefined {
  const [, product = '', tag = ''] = /(?:^|\/)([^/:@]+):([\w][\w.-]*)(?:@[^/]*)?$/.exec(reference) ?? []
  return product === '' ? undefined : { product, version: tag }
}

/** Returns what annotations say that a tag is a version of, the best first. */
export function productsIn(annotations: Readonly<Record<string, string>>, tag: string): TagProduct[] {
  const { [title]: name = '', [version]: named = '', [baseName]: base = '' } = annotations
  const own = { product: name, version: named === '' ? tag : named, isBase: false }
  const below = base.length > maxLength ? undefined : productOfReference(base)
  return [own, ...(below === undefined ? [] : [{ ...below, isBase: true }])].filter(
    (one) => one.product !== '' && one.product.length <= maxLength && one.version.length <= maxLength,
  )
}

/** Resolves with what a tag may be a version of: by the annotations of its manifest, or else of the first image of its index. */
export async function tagProducts(
  services: Services,
  { repo, name, digest }: { readonly repo: Uid; readonly name: string; readonly digest: Digest },
  signal: AbortSignal,
): Promise<readonly TagProduct[]> {
  const record = await heldManifest(services, { repo, digest }, signal)
  const own = productsIn(record?.annotations ?? {}, name)
  const [first] = record?.children ?? []
  if (own.length > 0 || first === undefined) return own
  const image = await heldManifest(services, { repo, digest: first.digest as Digest }, signal) // of a parsed index
  return productsIn(image?.annotations ?? {}, name)
}
