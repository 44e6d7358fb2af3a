import { PackageURL } from 'packageurl-js'
import { distributionTypes } from '../../../base/versions/ecosystems.ts'
import type { ArtifactImage } from '../../advisories/osv-facts.ts'
import { checkedName, RefusedDocument } from '../members.ts'

/** A package, image or component that a document speaks of. */
export interface Product {
  /** Its identifier: a package URL in canonical form, or the text of the document. */
  readonly identifier: string
  readonly name: string
  /** The type of a package URL, e.g. `apk`. Empty for other identifiers. */
  readonly type: string
  /** The namespace of a package URL, e.g. a distribution. Absent if it has none. */
  readonly namespace?: string
  readonly version: string
  readonly architecture: string
  /** Absent if it is no image that is named by its digest. */
  readonly image?: ArtifactImage
}

const imageDigest = /^sha256:[0-9a-f]{64}$/

function nameOf({ type, namespace, name }: PackageURL): string {
  if (!namespace || distributionTypes.has(type)) return name
  return `${namespace}${type === 'maven' ? ':' : '/'}${name}`
}

function imageOf(digest: string, repository: string): ArtifactImage {
  return { digest, ...(repository === '' ? {} : { repository: repository.toLowerCase() }) }
}

function packageOf(text: string, where: string): Product {
  let url: PackageURL
  try {
    url = PackageURL.fromString(text)
  } catch {
    // The package throws errors of several classes.
    throw new RefusedDocument(`${where} is no valid package URL`)
  }
  // Escapes in a package URL can hide control characters.
  const check = (value: string | null | undefined): string => checkedName(value ?? '', where)
  return {
    identifier: check(url.toString()),
    name: check(nameOf(url)),
    type: check(url.type),
    ...(url.namespace ? { namespace: check(url.namespace) } : {}),
    version: check(url.version),
    architecture: check(url.qualifiers?.['arch']),
    ...(url.type === 'oci' && imageDigest.test(url.version ?? '') ? { image: imageOf(check(url.version), check(url.qualifiers?.['repository_url'])) } : {}),
  }
}

/** Returns the product with an identifier: a package URL, or any other text, which is then its name. Throws RefusedDocument. */
export function productOf(identifier: string, where: string): Product {
  const text = checkedName(identifier, where)
  if (text === '') throw new RefusedDocument(`${where} is empty`)
  if (/^pkg:/i.test(text)) return packageOf(text, where)
  return { identifier: text, name: text, type: '', version: '', architecture: '' }
}
