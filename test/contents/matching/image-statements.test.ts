import { expect, test } from 'vitest'
import type { StatedImage } from '../../../src/cache/lists/contents-source.ts'
import { matchesOf, npmAt, npmRange, vexDocument, type Case } from '../advisories.ts'

const [shopDigest, indexDigest, otherDigest] = ['a', 'b', 'c'].map((digit) => `sha256:${digit.repeat(64)}`) as [string, string, string]
const shop: StatedImage = { digests: [shopDigest, indexDigest], address: 'registry.example.com/acme/shop', architecture: 'amd64' }
const notAffected = { status: 'not_affected', justification: 'component_not_present' }

/** A package with a vulnerability, and a statement about the package in an image. */
function stated(
  product: string,
  { status = notAffected, part = 'pkg:npm/left', image = shop }: { status?: object; part?: string; image?: StatedImage } = {},
): Case {
  return { documents: [npmRange, vexDocument(product, status, part)], found: npmAt('1.1.0'), place: { image } }
}

/** Each row is a sentence: a statement about a package in an image, and the state of the package in `shop`. */
const rows: readonly (readonly [sentence: string, Case, state: string])[] = [
  ['VEX about an image counts in this image', stated(`pkg:oci/shop@${shopDigest}`), 'not_affected'],
  ['VEX about an image: the digest may have escapes', stated(`pkg:oci/shop@${shopDigest.replace(':', '%3A')}`), 'not_affected'],
  ['VEX about an index counts in its images', stated(`pkg:oci/shop@${indexDigest}`), 'not_affected'],
  ['VEX about an image with the version of the package', stated(`pkg:oci/shop@${shopDigest}`, { part: 'pkg:npm/left@1.1.0' }), 'not_affected'],
  ['VEX about an image with another version of the package', stated(`pkg:oci/shop@${shopDigest}`, { part: 'pkg:npm/left@1.0.0' }), 'affected'],
  ['VEX about an image with another package', stated(`pkg:oci/shop@${shopDigest}`, { part: 'pkg:npm/right' }), 'affected'],
  ['VEX about another image does not count', stated(`pkg:oci/shop@${otherDigest}`), 'affected'],
  ['VEX about an image without a digest does not count', stated('pkg:oci/shop'), 'affected'],
  ['VEX about an image by a tag does not count', stated('pkg:oci/shop@1.2?tag=1.2'), 'affected'],
  ['VEX about an image by a short digest does not count', stated(`pkg:oci/shop@${shopDigest.slice(0, 20)}`), 'affected'],
  ['VEX about an image at its address', stated(`pkg:oci/shop@${shopDigest}?repository_url=registry.example.com/acme/shop`), 'not_affected'],
  ['VEX about an image at its address in capitals', stated(`pkg:oci/shop@${shopDigest}?repository_url=Registry.Example.com/acme/shop`), 'not_affected'],
  ['VEX about an image at another path', stated(`pkg:oci/shop@${shopDigest}?repository_url=registry.example.com/other/shop`), 'affected'],
  ['VEX about an image at another host', stated(`pkg:oci/shop@${shopDigest}?repository_url=ghcr.io/acme/shop`), 'affected'],
  ['VEX about an image at a host alone', stated(`pkg:oci/shop@${shopDigest}?repository_url=registry.example.com`), 'affected'],
  ['VEX about an image with another name', stated(`pkg:oci/web@${shopDigest}`), 'affected'],
  ['VEX about an image of its architecture', stated(`pkg:oci/shop@${indexDigest}?arch=amd64`), 'not_affected'],
  ['VEX about an image of another architecture', stated(`pkg:oci/shop@${indexDigest}?arch=arm64`), 'affected'],
  [
    'VEX about an image whose architecture is not known',
    stated(`pkg:oci/shop@${indexDigest}?arch=arm64`, { image: { ...shop, architecture: '' } }),
    'affected',
  ],
  ['VEX about an image of another type', stated(`pkg:docker/shop@${shopDigest}`), 'affected'],
  [
    'VEX about an image as a whole names no package',
    { documents: [npmRange, vexDocument(`pkg:oci/shop@${shopDigest}`, notAffected)], found: npmAt('1.1.0'), place: { image: shop } },
    'affected',
  ],
  ['VEX about an image: a fix', stated(`pkg:oci/shop@${shopDigest}`, { status: { status: 'fixed' } }), 'fixed'],
  [
    'VEX about an image confirms what no range has',
    { ...stated(`pkg:oci/shop@${shopDigest}`, { status: { status: 'affected', action_statement: 'wait' } }), found: npmAt('0.1.0') },
    'affected',
  ],
  ['VEX about an image: an investigation takes no range away', stated(`pkg:oci/shop@${shopDigest}`, { status: { status: 'under_investigation' } }), 'affected'],
  ['VEX about an image counts nowhere else', { ...stated(`pkg:oci/shop@${shopDigest}`), place: {} }, 'affected'],
  [
    'VEX about an image counts more than VEX about the package',
    {
      documents: [
        npmRange,
        vexDocument('pkg:npm/left', { status: 'affected', action_statement: 'wait' }),
        vexDocument(`pkg:oci/shop@${shopDigest}`, notAffected, 'pkg:npm/left'),
      ],
      found: npmAt('1.1.0'),
      place: { image: shop },
    },
    'not_affected',
  ],
]

// docs/spec/advisories.md#statements-about-images
test.each(rows)('%s', (_, given, state) => {
  expect(matchesOf(given).map((match) => match.state)).toEqual([state])
})
