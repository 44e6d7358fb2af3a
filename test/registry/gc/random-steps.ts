import fc from 'fast-check'
import { digestOf } from '../../../src/base/digest.ts'
import { descriptorOf, imageType, indexType, manifestOf, type TestManifest } from '../oci/oci-client.ts'

/** The tags in use. */
export const tags = ['a', 'b', 'c'] as const
export type TagText = (typeof tags)[number]

/** An action of a client; content is given by its index in the pool. */
export type Action =
  | { readonly kind: 'push'; readonly item: number; readonly tag: TagText | undefined; readonly looksFirst: boolean }
  | { readonly kind: 'move' | 'restore'; readonly item: number; readonly tag: TagText }
  | { readonly kind: 'untag'; readonly tag: TagText }
  | { readonly kind: 'remove'; readonly item: number }
  | { readonly kind: 'upload'; readonly step: 'start' | 'go on' | 'finish' }
  | { readonly kind: 'trim' }

/** The steps in a repo, in order. `within` starts an action during garbage collection; `killed` ends a collection at some call of the store. */
export type Step =
  | Action
  | { readonly kind: 'wait'; readonly hours: number }
  | { readonly kind: 'collect'; readonly at: number; readonly within?: Action; readonly killed?: boolean }

/** An item to push, and its parts. */
export interface Item {
  readonly manifest: TestManifest
  readonly blobs: readonly Buffer[]
  readonly children: readonly Item[]
  readonly subject?: Item
}

const itemCount = 7

/** Images with and without a shared layer, nested indexes of them, and a referrer of an image. The content differs from that of all other repos. */
export function poolFor(name: string): Item[] {
  const image = (config: string, layers: readonly string[], subject?: Item): Item => {
    const [bytes = Buffer.alloc(0), ...parts] = [`${name} ${config}`, ...layers.map((layer) => `${name} ${layer}`)].map((text) => Buffer.from(text))
    const part = (blob: Buffer, type: string): object => ({ mediaType: `application/vnd.oci.image.${type}`, digest: digestOf(blob), size: blob.length })
    const manifest = manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      config: part(bytes, 'config.v1+json'),
      layers: parts.map((layer) => part(layer, 'layer.v1.tar')),
      ...(subject === undefined ? {} : { subject: descriptorOf(subject.manifest), artifactType: 'application/example' }),
    })
    return { manifest, blobs: [bytes, ...parts], children: [], ...(subject === undefined ? {} : { subject }) }
  }
  const index = (...children: Item[]): Item => ({
    manifest: manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: children.map((child) => descriptorOf(child.manifest)) }),
    blobs: [],
    children,
  })
  const [first, second, third] = [image('{"0":0}', ['base', 'one']), image('{"1":1}', ['base', 'two']), image('{"2":2}', ['three'])]
  const both = index(first, second)
  const signature = image('{"3":3}', ['four'], third)
  return [first, second, third, both, index(both, third), signature, image('{"4":4}', ['base'], signature)]
}

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('push' as const),
      item: fc.nat(itemCount - 1),
      tag: fc.option(fc.constantFrom(...tags), { nil: undefined }),
      looksFirst: fc.boolean(),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constantFrom('move' as const, 'restore' as const), item: fc.nat(itemCount - 1), tag: fc.constantFrom(...tags) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('untag' as const), tag: fc.constantFrom(...tags) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('remove' as const), item: fc.nat(itemCount - 1) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('upload' as const), step: fc.constantFrom('start' as const, 'go on' as const, 'finish' as const) }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'trim' as const }) },
)

/** Any of these. */
export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: action },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), hours: fc.constantFrom(1, 12, 23, 25, 60) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('collect' as const), at: fc.constant(0) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('collect' as const), at: fc.nat(30), within: action }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('collect' as const), at: fc.nat(30), killed: fc.constant(true) }) },
)
