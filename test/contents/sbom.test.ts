import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseDigest, type Digest } from '../../src/base/digest.ts'
import { ContentError, contentLimits } from '../../src/contents/package.ts'
import { packagesOfSbom, type SbomContents } from '../../src/contents/sbom/sbom.ts'
import { isFullTier } from '../support/tier.ts'
import { cyclonedx, imageHex, purls, spdx, spdx3, syft } from './sbom-samples.ts'

const image = digest(imageHex)
const other = digest('b2'.repeat(32))
const bytesOf = (value: unknown) => Buffer.from(JSON.stringify(value))
const read = (value: unknown, digests: readonly Digest[] = [image]) => packagesOfSbom(bytesOf(value), { digests })
const purlsIn = (contents: SbomContents) => contents.packages.map(({ purl }) => purl)
const allPurls = Object.values(purls).sort()

function digest(hex: string): Digest {
  const parsed = parseDigest(`sha256:${hex}`)
  if (parsed === undefined) throw new Error('no digest')
  return parsed
}

/** Returns the problem for which bytes are refused. */
function problemOf(bytes: Uint8Array, digests: readonly Digest[] = [image]): string {
  try {
    packagesOfSbom(bytes, { digests })
    return 'none'
  } catch (error) {
    if (error instanceof ContentError) return error.problem
    throw error
  }
}

/** Returns the package with this package URL. */
function packageIn(contents: SbomContents, purl: string) {
  return contents.packages.find((found) => found.purl === purl)
}

const samples = [
  ['SPDX 2', spdx],
  ['SPDX 3', spdx3],
  ['CycloneDX', cyclonedx],
  ['syft', syft],
] as const

describe('forms', () => {
  test.each(samples)('%s has the packages of the image, its distribution and its name', (form, sample) => {
    const contents = read(sample)
    expect(purlsIn(contents)).toEqual(allPurls)
    expect(contents).toMatchObject({ form, distribution: { id: 'wolfi', version: '20230201' } })
    // The sample of CycloneDX also has a lock file.
    expect(contents.unnamed + contents.exempt).toBe(form === 'CycloneDX' ? 2 : 1)
    expect(contents.described).toMatchObject({ name: 'shop', version: `sha256:${imageHex}` })
  })

  test.each(samples)('%s has names, origins and licences', (_, sample) => {
    const contents = read(sample)
    const names = Object.fromEntries(contents.packages.map(({ name, version, origin }) => [name, [version, origin]]))
    expect(names).toEqual({
      '@babel/core': ['7.24.0', ''],
      'libstdc++6': ['12.2.0-14', 'gcc-12'],
      bash: ['5.1.8-6.el9', ''],
      'golang.org/x/sys': ['v0.20.0', ''],
      libcrypto3: ['3.3.1-r0', 'openssl'],
      'org.apache.commons:commons-text': ['1.10.0', ''],
    })
    expect(packageIn(contents, purls.crypto)?.licenses).toContain('Apache-2.0')
  })

  test.each([
    ['SPDX 2', spdx, ['/lib/apk/db/installed', '/app/node_modules/@babel/core/package.json', '/app/lib/commons-text-1.10.0.jar']],
    ['SPDX 3', spdx3, ['/lib/apk/db/installed', '/app/node_modules/@babel/core/package.json', '/app/lib/commons-text-1.10.0.jar']],
    ['CycloneDX', cyclonedx, ['/lib/apk/db/installed', '/var/lib/dpkg/status.d/libstdc', '/app/node_modules/@babel/core/package.json']],
    ['syft', syft, ['/lib/apk/db/installed', '/app/node_modules/@babel/core/package.json']],
  ])('%s has locations', (_, sample, expected) => {
    const locations = read(sample).packages.flatMap((found) => found.locations)
    expect(locations.sort()).toEqual([...expected].sort())
  })

  test.each([
    ['a byte order mark', Buffer.concat([Buffer.from('\ufeff'), bytesOf(syft)])],
    ['CycloneDX 1.4', bytesOf({ ...cyclonedx, specVersion: '1.4' })],
    ['SPDX 2.2', bytesOf({ ...spdx, spdxVersion: 'SPDX-2.2' })],
  ])('%s is read', (_, bytes) => {
    expect(purlsIn(packagesOfSbom(bytes, { digests: [] }))).toEqual(allPurls)
  })

  test.each([
    ['tag-value', Buffer.from('SPDXVersion: SPDX-2.3\n')],
    ['XML', Buffer.from('<?xml version="1.0"?><bom xmlns="http://cyclonedx.org/schema/bom/1.6"/>')],
    ['a list', Buffer.from('[]')],
    ['other JSON', bytesOf({ matches: [] })],
    ['SPDX 1', bytesOf({ spdxVersion: 'SPDX-1.2' })],
    ['CycloneDX 2', bytesOf({ bomFormat: 'CycloneDX', specVersion: '2.0' })],
    ['SPDX 3 without a graph', bytesOf({ '@context': spdx3['@context'], type: 'SpdxDocument' })],
    ['an empty file', Buffer.alloc(0)],
  ])('%s is refused as UNSUPPORTED_FORM', (_, bytes) => {
    expect(problemOf(bytes)).toBe('UNSUPPORTED_FORM')
  })
})

const predicates = [
  ['https://spdx.dev/Document', spdx],
  ['https://spdx.dev/Document/v2.3', spdx],
  ['https://spdx.dev/Document/v3', spdx3],
  ['https://cyclonedx.org/bom', cyclonedx],
  ['https://cyclonedx.org/bom/v1.6', cyclonedx],
  ['https://syft.dev/bom', syft],
] as const

function statementOf(predicate: unknown, more: object = {}): object {
  const subject = [
    { name: '_', digest: { sha1: 'c3' } },
    { name: 'pkg:docker/shop@1?platform=linux%2Famd64', digest: { sha256: imageHex } },
  ]
  return { _type: 'https://in-toto.io/Statement/v0.1', predicateType: 'https://spdx.dev/Document', subject, predicate, ...more }
}

function envelopeOf(statement: unknown, encoding: 'base64' | 'base64url' = 'base64'): object {
  return { payloadType: 'application/vnd.in-toto+json', payload: bytesOf(statement).toString(encoding), signatures: [{ keyid: '', sig: 'MEUC' }] }
}

function bundleOf(mediaType: string, statement: unknown): object {
  return { mediaType, verificationMaterial: { tlogEntries: [] }, dsseEnvelope: envelopeOf(statement) }
}

const newBundle = 'application/vnd.dev.sigstore.bundle.v0.3+json'

describe('statements', () => {
  test.each(predicates)('the predicate %s is read', (predicateType, sample) => {
    expect(purlsIn(read(statementOf(sample, { predicateType })))).toEqual(allPurls)
    expect(purlsIn(read(statementOf(sample, { predicateType, _type: 'https://in-toto.io/Statement/v1' })))).toEqual(allPurls)
  })

  test.each([
    ['an envelope', envelopeOf(statementOf(spdx))],
    ['an envelope in the alphabet for URLs', envelopeOf(statementOf(spdx), 'base64url')],
    ['a bundle 0.1', bundleOf('application/vnd.dev.sigstore.bundle+json;version=0.1', statementOf(spdx))],
    ['a bundle 0.2', bundleOf('application/vnd.dev.sigstore.bundle+json;version=0.2', statementOf(spdx))],
    ['a bundle 0.3', bundleOf(newBundle, statementOf(spdx))],
    ['a predicate of an older cosign, as an object', envelopeOf(statementOf({ Data: spdx, Timestamp: '2026-01-01T00:00:00Z' }))],
    ['a predicate of an older cosign, as a text', envelopeOf(statementOf({ Data: JSON.stringify(spdx) }))],
    ['a statement without a subject, as of BuildKit', statementOf(spdx, { subject: [] })],
  ])('%s is read', (_, wrapped) => {
    expect(purlsIn(read(wrapped, [other, image]))).toEqual(allPurls)
  })

  test.each([
    ['another digest', statementOf(spdx), [other]],
    ['no digest', statementOf(spdx), []],
    ['no subject within an envelope', envelopeOf(statementOf(spdx, { subject: [] })), [image]],
    ['no list of subjects', statementOf(spdx, { subject: undefined }), [image]],
    ['a subject without a digest', statementOf(spdx, { subject: [{ name: 'shop', digest: imageHex }] }), [image]],
    ['the digest of another algorithm', statementOf(spdx, { subject: [{ digest: { sha512: imageHex } }] }), [image]],
    ['another digest within a bundle', bundleOf(newBundle, statementOf(spdx)), [other]],
  ])('a statement about %s is refused as WRONG_DIGEST', (_, statement, digests) => {
    expect(problemOf(bytesOf(statement), digests)).toBe('WRONG_DIGEST')
  })

  test.each([
    ['a predicate that is no SBOM', statementOf({}, { predicateType: 'https://slsa.dev/provenance/v1' })],
    ['a predicate without a type', statementOf({}, { predicateType: 7 })],
    ['another payload', { payloadType: 'text/plain', payload: '' }],
    ['no statement in the payload', envelopeOf(spdx)],
    ['a new version of bundles', bundleOf('application/vnd.dev.sigstore.bundle.v0.9+json', statementOf(spdx))],
    ['a bundle with a bare signature', { mediaType: newBundle, messageSignature: {} }],
  ])('%s is refused as UNSUPPORTED_FORM', (_, document) => {
    expect(problemOf(bytesOf(document))).toBe('UNSUPPORTED_FORM')
  })

  test.each([
    ['a payload that is not base64', { payloadType: 'application/vnd.in-toto+json', payload: '{"_type":""}' }],
    ['subjects that are no list', statementOf(spdx, { subject: 'shop' })],
    ['a predicate that is no object', statementOf('spdx')],
    ['an envelope that is no object', { mediaType: newBundle, dsseEnvelope: 'x' }],
  ])('%s is refused as UNREADABLE', (_, document) => {
    expect(problemOf(bytesOf(document))).toBe('UNREADABLE')
  })
})

function spdx3Element(more: object): object {
  return { spdxId: 'a', creationInfo: '_:creation', name: 'a', ...more }
}

function component(purl: unknown, more: object = {}): object {
  return { type: 'library', name: 'x', purl, ...more }
}

const bom = (...components: unknown[]) => ({ bomFormat: 'CycloneDX', specVersion: '1.6', components })

describe('packages', () => {
  test('spellings of one package URL are one package, with at most 10 locations', () => {
    const places = (from: number) => ({ evidence: { occurrences: Array.from({ length: 8 }, (_, at) => ({ location: `./p/${from + at}` })) } })
    const { packages } = read(bom(component('pkg:PyPI/Foo_Bar@1', places(0)), component('pkg:pypi/foo-bar@1', places(5)), component('pkg://pypi/foo-bar@1')))
    expect(packages).toHaveLength(1)
    expect(packages[0]).toMatchObject({ purl: 'pkg:pypi/foo-bar@1', type: 'pypi', name: 'foo-bar', version: '1' })
    expect(packages[0]?.locations).toEqual(Array.from({ length: 10 }, (_, at) => `/p/${at}`))
  })

  test.each([
    ['no text', 7],
    ['null', null],
    ['no package URL', 'https://example.com/x'],
    ['no name', 'pkg:npm'],
    ['a control character', 'pkg:npm/a\nb@1'],
    ['an escaped control character', 'pkg:npm/a%00b@1'],
    ['an escaped control character in a qualifier', 'pkg:npm/a@1?x=%1b%5b0m'],
    ['a broken escape', 'pkg:npm/a%ff@1'],
    ['half a character', 'pkg:npm/a\ud800@1'],
    ['a name of an object', 'pkg:constructor'],
    ['a very long name', `pkg:npm/${'a'.repeat(5_000)}`],
  ])('a package URL with %s makes no package', (_, purl) => {
    expect(read(bom(component(purl), component('pkg:npm/good@1')))).toMatchObject({ unnamed: 1, packages: [{ purl: 'pkg:npm/good@1' }] })
  })

  test('names of objects are names like others', () => {
    const names = ['constructor', '__proto__', 'hasOwnProperty']
    const items = names.map((name) => component(`pkg:npm/${name}@1?__proto__=1`, { type: name, licenses: [{ license: { id: name } }] }))
    const { packages } = packagesOfSbom(Buffer.from(JSON.stringify(bom(...items)).replaceAll('"x"', '"__proto__"')), { digests: [] })
    expect(packages.map(({ name }) => name).sort()).toEqual([...names].map((name) => name.toLowerCase()).sort())
    expect(Object.getPrototypeOf({})).toBe(Object.prototype)
  })

  test.each([
    ['the described root', { SPDXID: 'a' }, 0],
    ['a second root', { SPDXID: 'b' }, 1],
    ['a lock file of an older trivy', { primaryPackagePurpose: 'APPLICATION', attributionTexts: ['Class: lang-pkgs'] }, 0],
    ['a lock file of trivy', { primaryPackagePurpose: 'APPLICATION', annotations: [{ comment: 'Class: lang-pkgs' }] }, 0],
    ['another application', { primaryPackagePurpose: 'APPLICATION' }, 1],
    ['a program of syft', { SPDXID: 'SPDXRef-Package-binary-cli-0123' }, 0],
  ])('%s without a package URL', (_, element, unnamed) => {
    const packages = [
      { SPDXID: 'a', name: 'shop' },
      { name: 'x', ...element },
    ].slice('SPDXID' in element && element.SPDXID === 'a' ? 1 : 0)
    expect(read({ spdxVersion: 'SPDX-2.3', packages, documentDescribes: ['a', 'b'] })).toMatchObject({ packages: [], unnamed })
  })

  test('images and their layers are no packages', () => {
    expect(read(bom(component('pkg:oci/base@sha256:1'), component('pkg:docker/base@1')))).toMatchObject({ packages: [], unnamed: 0 })
  })

  test.each([
    ['one distribution', ['debian-12', 'debian-12'], { id: 'debian', version: '12' }],
    ['a distribution with a dash', ['opensuse-leap-15.6'], { id: 'opensuse-leap', version: '15.6' }],
    ['a release alone', ['3.20.1'], { id: 'debian', version: '3.20.1' }],
    ['a distribution alone', ['debian'], { id: 'debian', version: '' }],
    ['two distributions', ['debian-12', 'debian-11'], undefined],
    ['none', [], undefined],
  ])('package URLs that name %s say which one the image has', (_, names, expected) => {
    const items = names.map((name, at) => component(`pkg:deb/debian/p${at}@1?distro=${name}`))
    expect(read(bom(...items, component('pkg:npm/a@1?distro=x-1'))).distribution).toEqual(expected)
  })

  test('values of other types are left out', () => {
    const wrong = { licenses: 7, properties: [null, { name: 1 }], evidence: [], version: {}, group: [] }
    expect(read(bom(component('pkg:npm/a@1', wrong))).packages).toMatchObject([{ purl: 'pkg:npm/a@1', licenses: [], locations: [] }])
  })
})

describe('limits', () => {
  const nested = (depth: number) => Buffer.from(`{"bomFormat":"CycloneDX","specVersion":"1.6","x":${'['.repeat(depth)}${']'.repeat(depth)}}`)

  test('deep nesting is refused', () => {
    expect(problemOf(nested(100))).toBe('none')
    expect(problemOf(nested(1_000_000))).toBe('TOO_LARGE')
  })

  test('a document that is too large is refused before it is read', () => {
    expect(problemOf(new Uint8Array(contentLimits.documentBytes + 1))).toBe('TOO_LARGE')
  })

  test.each([
    ['packages', (at: number) => `{"purl":"pkg:npm/a@${at}"}`],
    ['spellings of one package URL', (at: number) => `{"purl":"pkg:npm/a?x${at}="}`],
    ['packages without a package URL', () => '{}'],
  ])('too many %s are refused', (_, item) => {
    const items = Array.from({ length: contentLimits.packages + 1 }, (__, at) => item(at)).join(',')
    expect(problemOf(Buffer.from(`{"bomFormat":"CycloneDX","specVersion":"1.6","components":[${items}]}`))).toBe('TOO_LARGE')
  })

  test('a long path that all packages share is refused', () => {
    const packages = Array.from({ length: 20_000 }, (_, at) => ({
      SPDXID: at,
      externalRefs: [{ referenceType: 'purl', referenceLocator: `pkg:npm/a@${at}` }],
    }))
    const relationships = packages.map(({ SPDXID }) => ({
      spdxElementId: SPDXID,
      relatedSpdxElement: 'f',
      relationshipType: 'OTHER',
      comment: 'evident-by: f',
    }))
    const files = [{ SPDXID: 'f', fileName: 'f'.repeat(4_000) }]
    expect(problemOf(bytesOf({ spdxVersion: 'SPDX-2.3', packages, relationships, files }))).toBe('TOO_LARGE')
  })

  test('packages with the same id take linear time', () => {
    const many = <Item>(item: Item) => Array.from({ length: 50_000 }, () => item)
    const evident = { spdxElementId: 'a', relatedSpdxElement: 'f', relationshipType: 'OTHER', comment: 'evident-by: f' }
    const same = { SPDXID: 'a', externalRefs: [{ referenceType: 'purl', referenceLocator: 'pkg:npm/a@1' }] }
    const files = [{ SPDXID: 'f', fileName: 'f' }]
    expect(read({ spdxVersion: 'SPDX-2.3', packages: many(same), relationships: many(evident), files }).packages).toMatchObject([{ locations: ['/f'] }])
    const elements = many(spdx3Element({ type: 'software_Package', software_packageUrl: 'pkg:npm/a@1' }))
    const relations = many({ type: 'Relationship', from: 'a', relationshipType: 'hasDeclaredLicense', to: ['https://spdx.org/licenses/MIT'] })
    expect(read({ ...spdx3, '@graph': [...elements, ...relations] }).packages).toMatchObject([{ licenses: ['MIT'] }])
  })

  test.each([
    ['a payload', (long: string) => ({ payloadType: 'application/vnd.in-toto+json', payload: long }), 'UNREADABLE'],
    ['a predicate type', (long: string) => statementOf({}, { predicateType: `https://spdx.dev/Document/${long}` }), 'UNSUPPORTED_FORM'],
    ['a context', (long: string) => ({ '@context': `https://spdx.org/${long}` }), 'UNSUPPORTED_FORM'],
    ['a text about the source', (long: string) => ({ ...spdx, packages: [{ sourceInfo: `acquired package info from x: /${long}` }] }), 'none'],
    ['a package URL', (long: string) => bom(component(`pkg:npm/${long}`, { name: long, properties: [{ name: long, value: long }] })), 'none'],
  ])('%s of many MiB ends no regular expression', (_, make, expected) => {
    expect(problemOf(bytesOf(make('a'.repeat(15 * 1024 * 1024))))).toBe(expected)
  })

  test.each([
    ['invalid UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])],
    ['JSON that is cut off', bytesOf(syft).subarray(0, 100)],
    ['components that are no list', bytesOf({ ...bom(), components: {} })],
    ['a component that is no object', bytesOf(bom('x'))],
    ['packages that are no list', bytesOf({ ...spdx, packages: 'x' })],
    ['a graph that is no list', bytesOf({ ...spdx3, '@graph': {} })],
    ['artifacts that are no list', bytesOf({ ...syft, artifacts: null })],
  ])('%s is refused as UNREADABLE', (_, bytes) => {
    expect(problemOf(bytes)).toBe('UNREADABLE')
  })
})

/** A value to put into a sample: of any type, and with the names that readers look for. */
const strange = fc.oneof(
  fc.constantFrom<unknown>(null, true, 0, -1, 1e308, '', '__proto__', 'constructor', 'pkg:npm/a@1', 'pkg:maven/a', 'NOASSERTION', '\u0000', '\ud800', 'a/b/c'),
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.jsonValue({ maxDepth: 3 }),
)

/** Returns the sample with some of its values replaced, chosen by the numbers. */
function spoiled(sample: unknown, choices: readonly (readonly [number, unknown])[]): unknown {
  const copy: unknown = structuredClone(sample)
  for (const [choice, value] of choices) {
    const places: [Record<string, unknown>, string][] = []
    const open = [copy]
    for (let item = open.pop(); item !== undefined; item = open.pop()) {
      if (typeof item !== 'object' || item === null) continue
      const members = item as Record<string, unknown> // lists have keys as well
      for (const key of Object.keys(members)) {
        places.push([members, key])
        open.push(members[key])
      }
    }
    const [members, key] = places[choice % places.length] ?? [{}, 'x']
    members[key] = value
  }
  return copy
}

test('any JSON is read within the limits, or refused with a ContentError', () => {
  const choices = fc.array(fc.tuple(fc.nat({ max: 10_000 }), strange), { minLength: 1, maxLength: 6 })
  const wraps = fc.constantFrom(
    (value: unknown) => value,
    statementOf,
    (value: unknown) => bundleOf(newBundle, statementOf(value)),
  )
  const sample = fc.constantFrom<unknown>(spdx, spdx3, cyclonedx, syft, {})
  fc.assert(
    fc.property(sample, choices, wraps, choices, (value, inner, wrap, outer) => {
      let contents: SbomContents
      try {
        contents = read(spoiled(wrap(spoiled(value, inner)), outer.slice(1)))
      } catch (error) {
        if (!(error instanceof ContentError)) throw error
        expect(error.message).toMatch(/^[\x20-\x7e]{1,600}$/)
        return
      }
      const found = purlsIn(contents)
      expect(found).toEqual([...new Set(found)].sort())
      for (const { purl, type, name, version, origin, licenses, locations } of contents.packages) {
        expect(purl.startsWith(`pkg:${type}/`)).toBe(true)
        for (const text of [purl, name, version, origin, ...licenses, ...locations]) expect(text).toMatch(/^[^\p{Cc}]{0,4097}$/u)
        expect(locations.length).toBeLessThanOrEqual(10)
        expect(locations.every((location) => location.startsWith('/'))).toBe(true)
      }
    }),
    { numRuns: isFullTier ? 20_000 : 1_000 },
  )
})
