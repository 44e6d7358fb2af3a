import { create } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import {
  annotationsOf,
  architectureIn,
  maxManifestBytes,
  parseManifest,
  referencesOf,
  type ParsedManifest,
} from '../../../../src/registry/oci/manifests/manifest-parser.ts'
import { ChildManifestSchema } from '../../../../src/gen/taproot/store/v1/registry_pb.ts'
import { RegistryError } from '../../../../src/registry/registry-error.ts'

const oci = 'application/vnd.oci.image.manifest.v1+json'
const ociIndex = 'application/vnd.oci.image.index.v1+json'
const docker = 'application/vnd.docker.distribution.manifest.v2+json'
const dockerList = 'application/vnd.docker.distribution.manifest.list.v2+json'
const imageConfig = 'application/vnd.oci.image.config.v1+json'
/** Media type of a release candidate of OCI 1.1, which older versions of oras and notation push. */
const artifact = 'application/vnd.oci.artifact.manifest.v1+json'

function digestOfText(text: string): Digest {
  return digestOf(Buffer.from(text))
}

function descriptor(text: string, more: object = {}): Record<string, unknown> {
  return { mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest: digestOfText(text), size: text.length, ...more }
}

const image = { schemaVersion: 2, mediaType: oci, config: descriptor('config', { mediaType: imageConfig }), layers: [descriptor('one'), descriptor('two')] }
const index = {
  schemaVersion: 2,
  mediaType: ociIndex,
  manifests: [descriptor('m1', { mediaType: oci, platform: { architecture: 'arm64', os: 'linux', variant: 'v8' } })],
}

function parse(body: unknown, more: { contentType?: string | undefined; digest?: Digest } = {}): ParsedManifest {
  const bytes = typeof body === 'string' ? Buffer.from(body) : Buffer.from(JSON.stringify(body))
  return parseManifest({ bytes, contentType: 'contentType' in more ? more.contentType : (body as { mediaType?: string }).mediaType, ...more })
}

function refusalOf(work: () => unknown): string {
  try {
    work()
  } catch (error) {
    if (error instanceof RegistryError) return `${error.status} ${error.code}: ${error.message}`
    throw error
  }
  return 'taken'
}

describe('the parsed manifest', () => {
  test('the parsed manifest of an image has config, layers in order, and the artifact type of its config', () => {
    const { record, imageConfig: config, digest, upstreamDigest } = parse(image)
    expect(record.mediaType).toBe(oci)
    expect(record.artifactType).toBe(imageConfig)
    expect(record.config).toMatchObject({ digest: digestOfText('config'), size: 6n })
    expect(record.layers.map((layer) => layer.digest)).toEqual([digestOfText('one'), digestOfText('two')])
    expect(config).toBe(record.config)
    expect([digest, record.upstreamDigest]).toEqual([upstreamDigest, upstreamDigest])
    expect(referencesOf(record)).toEqual([digestOfText('config'), digestOfText('one'), digestOfText('two')])
  })

  test('the parsed manifest of an index has children with their architectures, in order', () => {
    const { record } = parse(index)
    expect(record.children).toEqual([create(ChildManifestSchema, { digest: digestOfText('m1'), architecture: 'arm64' })])
    expect([record.artifactType, record.config]).toEqual(['', undefined])
  })

  test('the parsed manifest of a referrer has subject, artifact type and annotations', () => {
    const { record, imageConfig: config } = parse({
      ...image,
      artifactType: 'application/vnd.example.sbom',
      config: descriptor('{}', { mediaType: 'application/vnd.oci.empty.v1+json' }),
      subject: descriptor('subject', { mediaType: oci }),
      annotations: { 'org.example.a': '1', __proto__x: '2' },
    })
    expect(record.subject).toBe(digestOfText('subject'))
    expect(record.artifactType).toBe('application/vnd.example.sbom')
    expect(record.annotations).toEqual({ 'org.example.a': '1', __proto__x: '2' })
    expect(config).toBeUndefined()
  })

  test('the parsed manifest may be a Docker image or list, a manifest without layers, or an index without manifests', () => {
    expect(parse({ ...image, mediaType: docker }).record.layers).toHaveLength(2)
    expect(parse({ ...index, mediaType: dockerList }).record.children).toHaveLength(1)
    expect(parse({ ...image, layers: [] }).record.layers).toEqual([])
    expect(parse({ ...index, manifests: [] }).record.children).toEqual([])
  })

  test('the parsed manifest has the media type of the header, without parameters, or of the body', () => {
    const { mediaType: _, ...bare } = image
    expect(parse(bare, { contentType: `${oci}; charset=utf-8` }).record.mediaType).toBe(oci)
    expect(parse(image, { contentType: undefined }).record.mediaType).toBe(oci)
  })

  test('the parsed manifest of another media type names the content of its descriptors at any depth, which may be missing', () => {
    const { record } = parse({
      mediaType: artifact,
      artifactType: 'application/vnd.example.signature',
      subject: descriptor('subject', { mediaType: oci }),
      blobs: [descriptor('one'), descriptor('two'), descriptor('one')],
      more: { deep: [[{ within: descriptor('three', { mediaType: undefined }) }]] },
      annotations: { 'org.example.a': '1' },
    })
    expect([...record.mentions].sort()).toEqual(['one', 'two', 'three'].map(digestOfText).sort())
    expect(referencesOf(record)).toEqual([])
    expect(record).toMatchObject({
      subject: digestOfText('subject'),
      artifactType: 'application/vnd.example.signature',
      annotations: { 'org.example.a': '1' },
    })
  })

  test('the parsed manifest of another media type is accepted whatever its fields mean', () => {
    const { record } = parse({
      mediaType: 'application/vnd.example.thing+json',
      layers: 'x',
      subject: digestOfText('subject'),
      artifactType: 1,
      annotations: { a: 1 },
      things: [null, descriptor('x', { size: -1 }), descriptor('x', { size: '1' }), descriptor('x', { digest: 'md5:00' }), { digest: digestOfText('x') }],
    })
    expect(record).toMatchObject({ mentions: [], subject: '', artifactType: '', annotations: {} })
  })

  test('the parsed manifest of another media type may be nested 60 levels deep, and a million levels are refused', () => {
    const nested = (depth: number): string => `{"mediaType":"${artifact}","a":${'['.repeat(depth)}${JSON.stringify(descriptor('deep'))}${']'.repeat(depth)}}`
    expect(parse(nested(60), { contentType: artifact }).record.mentions).toEqual([digestOfText('deep')])
    expect(refusalOf(() => parse(nested(1_000_000), { contentType: artifact }))).toMatch(/^400 MANIFEST_INVALID: .*64 levels/)
  })

  test('the parsed manifest marks layers that clients do not push', () => {
    const mediaType = 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip'
    const { foreignLayers } = parse({
      ...image,
      mediaType: docker,
      layers: [descriptor('here'), descriptor('away', { mediaType, urls: ['https://example.com/x'] })],
    })
    expect([...foreignLayers]).toEqual([digestOfText('away')])
  })

  test('the parsed manifest under a sha512 digest is stored upstream under its sha256 digest', () => {
    const bytes = Buffer.from(JSON.stringify(image))
    const digest = digestOf(bytes, 'sha512')
    const parsed = parseManifest({ bytes, contentType: oci, digest })
    expect([parsed.digest, parsed.upstreamDigest]).toEqual([digest, digestOf(bytes)])
  })

  test('the parsed manifest has the architecture of its config, if it has one', () => {
    const read = (text: string): string => architectureIn(Buffer.from(text))
    expect([read('{"architecture":"arm64"}'), read('{}'), read('[]'), read('no json'), read('{"architecture":7}'), read('{"architecture":"a\\nb"}')]).toEqual([
      'arm64',
      '',
      '',
      '',
      '',
      '',
    ])
  })
})

describe('a manifest is refused:', () => {
  const invalid = '400 MANIFEST_INVALID'
  const rows: [string, () => unknown, string][] = [
    ['text that is not JSON', () => parse('{', { contentType: oci }), invalid],
    ['bytes that are not UTF-8', () => parseManifest({ bytes: Buffer.from([0x7b, 0xff, 0x7d]), contentType: oci }), invalid],
    ['an empty body', () => parse('', { contentType: oci }), invalid],
    ['a list', () => parse('[]', { contentType: oci }), invalid],
    ['null', () => parse('null', { contentType: oci }), invalid],
    ['a header with another media type than the body', () => parse(image, { contentType: docker }), invalid],
    ['no media type', () => parse({ schemaVersion: 2 }, { contentType: undefined }), invalid],
    ['a media type with a line break', () => parse({ ...image, mediaType: 'a/b\r\nX: y' }, { contentType: undefined }), invalid],
    ['Docker schema 1', () => parse({ schemaVersion: 1 }, { contentType: 'application/vnd.docker.distribution.manifest.v1+prettyjws' }), invalid],
    ['an HTML page', () => parse({ ...image, mediaType: undefined }, { contentType: 'text/html' }), invalid],
    ['an SVG picture', () => parse({ mediaType: 'image/svg+xml' }, { contentType: undefined }), invalid],
    ['a generic binary type', () => parse({}, { contentType: 'application/octet-stream' }), invalid],
    ['another schema version', () => parse({ ...image, schemaVersion: 1 }), invalid],
    ['an image with the fields of an index', () => parse({ ...image, manifests: [] }), invalid],
    ['an index with the fields of an image', () => parse({ ...index, layers: [] }), invalid],
    ['an image without a config', () => parse({ ...image, config: undefined }), invalid],
    ['an image without a list of layers', () => parse({ ...image, layers: undefined }), invalid],
    ['an index without manifests', () => parse({ ...index, manifests: undefined }), invalid],
    ['a layer without a digest', () => parse({ ...image, layers: [descriptor('x', { digest: undefined })] }), invalid],
    ['a layer under an unknown algorithm', () => parse({ ...image, layers: [descriptor('x', { digest: 'md5:00' })] }), invalid],
    ['a layer with a negative size', () => parse({ ...image, layers: [descriptor('x', { size: -1 })] }), invalid],
    ['a layer with a fractional size', () => parse({ ...image, layers: [descriptor('x', { size: 0.5 })] }), invalid],
    ['a layer without a media type', () => parse({ ...image, layers: [descriptor('x', { mediaType: undefined })] }), invalid],
    ['a layer that is null', () => parse({ ...image, layers: [null] }), invalid],
    ['a subject that is a string', () => parse({ ...image, subject: digestOfText('x') }), invalid],
    ['annotations that are not strings', () => parse({ ...image, annotations: { a: 1 } }), invalid],
    ['an artifact type that is not a string', () => parse({ ...image, artifactType: 1 }), invalid],
    ['a platform that is a string', () => parse({ ...index, manifests: [descriptor('x', { platform: 'linux' })] }), invalid],
    ['other bytes than those of the digest', () => parse(image, { digest: digestOfText('other') }), '400 DIGEST_INVALID'],
    ['more bytes than allowed', () => parseManifest({ bytes: Buffer.alloc(maxManifestBytes + 1, 32), contentType: oci }), '413 SIZE_INVALID'],
  ]
  test.each(rows)('%s', (_, work, refusal) => {
    expect(refusalOf(work)).toMatch(new RegExp(`^${refusal}: `))
  })

  const twice = (text: string, key: string): string => text.replace(/\{/, `{"${key}":null,`)
  const ambiguous: [string, () => unknown, string][] = [
    ['a key twice', () => parse(twice(JSON.stringify(image), 'layers'), { contentType: oci }), 'the key "layers" twice'],
    ['a key twice, once escaped', () => parse(twice(JSON.stringify(image), '\\u006cayers'), { contentType: oci }), 'the key "layers" twice'],
    ['an annotation twice', () => parse('{"mediaType":"application/json","annotations":{"a":"1","b":"]{","a":"2"}}', {}), 'the key "a" twice'],
    [
      'a layer with a digest twice',
      () => parse(JSON.stringify(image).replace('"size":3', '"size":3,"digest":"x"'), { contentType: oci }),
      'the key "digest" twice',
    ],
    ['layers in another case', () => parse({ ...image, Layers: [] }), 'Layers must be written as layers'],
    ['a field in another case, in another media type', () => parse({ mediaType: 'application/json', subJect: {} }), 'subJect must be written as subject'],
    ['a descriptor field in another case', () => parse({ ...image, layers: [descriptor('x', { DIGEST: 'y' })] }), 'layers[0].DIGEST must be written as digest'],
    ['a letter whose lower case is s', () => parse({ ...image, ſubject: {} }), 'must be written as subject'],
    [
      'a platform field in another case',
      () => parse({ ...index, manifests: [descriptor('x', { platform: { OS: 'linux' } })] }),
      'platform.OS must be written as os',
    ],
  ]
  test.each(ambiguous)('%s, which clients parse differently', (_, work, sentence) => {
    expect(refusalOf(work)).toMatch(/^400 MANIFEST_INVALID: /)
    expect(refusalOf(work)).toContain(sentence)
  })

  test('annotations may differ in case only, and one key may be in several objects', () => {
    expect(refusalOf(() => parse({ ...image, annotations: { Digest: 'a', digest: 'b', Layers: 'c' } }))).toBe('taken')
  })

  const schema1 = 'application/vnd.docker.distribution.manifest.v1'
  test.each([`${schema1}+prettyjws`, `${schema1}+json`, `${schema1}+PrettyJWS`, 'application/json', docker])(
    'Docker schema 1, sent as %s, and the message names it',
    (contentType) => {
      const body = { schemaVersion: 1, name: 'org/app', tag: 'v1', architecture: 'amd64', fsLayers: [], history: [], signatures: [] }
      expect(refusalOf(() => parse(body, { contentType }))).toBe(
        '400 MANIFEST_INVALID: manifests of Docker schema 1 are not supported: push the image with a current client',
      )
    },
  )

  test('with an error that names the fault', () => {
    expect(refusalOf(() => parse({ ...image, layers: [descriptor('x'), descriptor('y', { size: '1' })] }))).toContain(
      'layers[1].size must be a number of bytes',
    )
  })

  const kept = 'have \\d+ bytes: 1048576 at most are allowed'
  const many = (count: number, more: object = {}): object[] => Array.from({ length: count }, (_, at) => descriptor(String(at), more))
  const large: [string, () => unknown][] = [
    ['20,000 layers', () => parse({ ...image, layers: many(20_000) })],
    ['20,000 descriptors of another type', () => parse({ mediaType: artifact, blobs: many(20_000) })],
    ['20,000 children', () => parse({ ...index, manifests: many(20_000) })],
  ]
  test.each(large)('too large to record: %s', (_, work) => {
    expect(refusalOf(work)).toMatch(new RegExp(kept))
    expect(refusalOf(work)).toMatch(new RegExp(`^${invalid}: `))
  })

  test('8,000 children with platforms and 8,000 layers are accepted', () => {
    const platform = { architecture: 'amd64', os: 'linux', variant: 'v3', 'os.version': '10.0.20348.2227' }
    expect(parse({ ...index, manifests: many(8_000, { platform }) }).record.children).toHaveLength(8_000)
    expect(parse({ ...image, layers: many(8_000) }).record.layers).toHaveLength(8_000)
  })

  test('4 MB of annotations are accepted: they are read from the bytes, not stored in the record', async () => {
    const annotations = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`a${at}`, 'x'.repeat(100_000)]))
    const body = { ...image, annotations }
    const { record } = parse(body)
    expect(record.annotations).toEqual({})
    expect(await annotationsOf(record, () => Promise.resolve(Buffer.from(JSON.stringify(body))))).toEqual(annotations)
    const small = parse({ ...image, annotations: { a: 'x'.repeat(200_000) } }).record
    expect((await annotationsOf(small, () => Promise.reject(new Error('not needed'))))['a']).toHaveLength(200_000)
  })

  test('a manifest of the maximum size is accepted', () => {
    const padded = Buffer.alloc(maxManifestBytes, 32)
    padded.write(JSON.stringify(image))
    expect(parseManifest({ bytes: padded, contentType: oci }).record.size).toBe(BigInt(maxManifestBytes))
  })
})
