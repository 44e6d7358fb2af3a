import { expect, test } from 'vitest'
import { eolStatuses } from '../../../src/contents/lifecycle/life-cycles.ts'
import { productByRules, productsIn } from '../../../src/contents/lifecycle/tag-products.ts'
import { EolTag_GraceStatus as Grace, EolTag_TagStatus as Status } from '../../../src/gen/taproot/registry/v2/eol_tags_pb.ts'

const today = '2026-06-15'
const [past, future, now] = [{ day: '2026-06-14' }, { day: '2026-12-31' }, { day: today }]

// docs/spec/registry.md#life-cycle-of-tags
test.each([
  ['a tag without a cycle', undefined, 'TAG_UNKNOWN', 'GRACE_NOT_ELIGIBLE'],
  ['a cycle without an end of life', {}, 'TAG_UNKNOWN', 'GRACE_NOT_ELIGIBLE'],
  ['a cycle whose end is far', { lifeEnd: future }, 'TAG_ACTIVE', 'GRACE_NOT_ELIGIBLE'],
  ['a cycle on its last day', { lifeEnd: now }, 'TAG_ACTIVE', 'GRACE_NOT_ELIGIBLE'],
  ['a cycle that has not ended, without a day', { lifeEnd: { hasCome: false } }, 'TAG_ACTIVE', 'GRACE_NOT_ELIGIBLE'],
  ['a cycle with extended support to come', { lifeEnd: now, extendedEnd: future }, 'TAG_ACTIVE', 'GRACE_ELIGIBLE'],
  ['a cycle in extended support', { lifeEnd: past, extendedEnd: future }, 'TAG_IN_GRACE', 'GRACE_ACTIVE'],
  ['a cycle on the last day of extended support', { lifeEnd: past, extendedEnd: now }, 'TAG_IN_GRACE', 'GRACE_ACTIVE'],
  ['a cycle whose extended support has ended', { lifeEnd: past, extendedEnd: past }, 'TAG_INACTIVE', 'GRACE_EXPIRED'],
  ['a cycle that has ended, without extended support', { lifeEnd: { hasCome: true } }, 'TAG_INACTIVE', 'GRACE_NOT_ELIGIBLE'],
] as const)('%s', (_, cycle, tagStatus, graceStatus) => {
  expect(eolStatuses(cycle, today)).toEqual({ tagStatus: Status[tagStatus], graceStatus: Grace[graceStatus] })
})

const prefix = 'org.opencontainers.image.'

test.each([
  ['nothing', {}, []],
  ['a title and a version', { title: 'python', version: '3.12.4' }, [{ product: 'python', version: '3.12.4', isBase: false }]],
  ['a title alone: the tag is the version', { title: 'python' }, [{ product: 'python', version: '3.12', isBase: false }]],
  ['a title, and a digest as version', { title: 'python', version: `sha256:${'0a'.repeat(32)}` }, [{ product: 'python', version: '3.12', isBase: false }]],
  ['a version alone', { version: '3' }, []],
  ['a base image', { 'base.name': 'docker.io/library/python:3.12-slim' }, [{ product: 'python', version: '3.12-slim', isBase: true }]],
  ['a base image of a registry with a port', { 'base.name': 'localhost:5000/node:22' }, [{ product: 'node', version: '22', isBase: true }]],
  ['a base image with a digest', { 'base.name': `debian:12@sha256:${'0'.repeat(64)}` }, [{ product: 'debian', version: '12', isBase: true }]],
  ['a base image without a tag', { 'base.name': 'localhost:5000/node' }, []],
  [
    'a title before the base image',
    { title: 'shop', version: '1', 'base.name': 'node:22' },
    [
      { product: 'shop', version: '1', isBase: false },
      { product: 'node', version: '22', isBase: true },
    ],
  ],
  ['texts that are too long', { title: 'x'.repeat(256), 'base.name': `node:${'2'.repeat(300)}` }, []],
] as const)('products of a tag: %s', (_, annotations, products) => {
  const named = Object.fromEntries(Object.entries(annotations).map(([key, value]) => [`${prefix}${key}`, value]))
  expect(productsIn({ annotations: named }, '3.12')).toEqual(products)
})

const digest = `sha256:${'0a'.repeat(32)}`
const described = { name: '', version: '', purl: '' }

test.each([
  ['a name, and the digest as version: the tag is the version', { name: 'python', version: digest }, [['python', '3.12']]],
  ['a name and a version', { name: 'python', version: '3.11.2' }, [['python', '3.11.2']]],
  ['a reference of an image', { name: 'docker.io/library/python:3.13-slim', version: digest }, [['python', '3.13-slim']]],
  ['a reference by digest', { name: `registry.example.com/acme/python@${digest}`, version: digest }, [['python', '3.12']]],
  ['a folder', { name: '/src/shop' }, [['shop', '3.12']]],
  ['the package URL of an image', { name: 'python', version: digest, purl: `pkg:oci/python@${encodeURIComponent(digest)}` }, [['python', '3.12']]],
  [
    'a package URL with a version',
    { name: 'django', version: '5', purl: 'pkg:pypi/django@4.2.1' },
    [
      ['pkg:pypi/django@4.2.1', '4.2.1'],
      ['django', '5'],
    ],
  ],
  ['a text that is too long', { name: 'x'.repeat(256), version: '1' }, []],
  ['a name without a product', { name: '/' }, []],
] as const)('products that an SBOM is about: %s', (_, about, products) => {
  const found = productsIn({ annotations: {}, described: { ...described, ...about } }, '3.12')
  expect(found).toEqual(products.map(([product, version]) => ({ product, version, isBase: false })))
})

test('annotations count before the SBOM, and the SBOM before the base image', () => {
  const annotations = { [`${prefix}title`]: 'shop', [`${prefix}base.name`]: 'node:22' }
  const found = productsIn({ annotations, described: { ...described, name: 'python' } }, '1')
  expect(found.map(({ product }) => product)).toEqual(['shop', 'python', 'node'])
})

test.each([
  ['no rules', [], '3.12', undefined],
  ['a rule for all tags', [{}], '3.12', '3.12'],
  ['a part of the tag', [{ tagGlob: 'v*-slim' }], 'v3.12-slim', '3.12'],
  ['a version made of that part', [{ tagGlob: 'py*', version: '3.*-lts' }], 'py12', '3.12-lts'],
  ['a fixed version', [{ tagGlob: '*-lts', version: '3.12' }], 'new-lts', '3.12'],
  ['a tag by its name', [{ tagGlob: 'latest', version: '3.13' }], 'latest', '3.13'],
  ['a tag by its name, and a star in the version', [{ tagGlob: '12', version: '3.*' }], '12', '3.12'],
  ['a part that is a replacement pattern', [{ tagGlob: '*' }], '$&', '$&'],
  ['a tag that is shorter than its two ends', [{ tagGlob: 'ab*ba' }], 'aba', undefined],
  ['a tag that no rule matches', [{ tagGlob: 'v*' }, { tagGlob: 'w' }], 'ww', undefined],
  ['the first rule of several', [{ tagGlob: 'v*' }, {}], 'v3', '3'],
] as const)('rules on products: %s', (_, rules, tag, version) => {
  const found = productByRules(
    rules.map((rule) => ({ tagGlob: '', version: '', product: 'python', ...rule })),
    tag,
  )
  expect(found).toEqual(version === undefined ? undefined : { product: 'python', version, isBase: false })
})

test('a package URL in a rule is found in any spelling', () => {
  const [found, same] = ['pkg:PyPI/Django', 'pkg:pypi/django'].map((product) => productByRules([{ tagGlob: '', version: '', product }], '4'))
  expect(found).toEqual(same)
})
