import { describe, expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import type { CycleAnswer, ProductVersion } from '../../src/cache/lists/lifecycle-source.ts'
import { LifecycleThread } from '../../src/catalogue/lifecycle/lifecycle-thread.ts'
import type { RowCounts } from '../../src/catalogue/import/run-import.ts'
import { zipOf } from './archives.ts'
import { fileOf, fileOfKind, importPaths } from './documents.ts'

/** The older form: a list of cycles. */
const older = [
  {
    cycle: '3.12',
    releaseDate: '2026-01-02',
    eol: '2028-10-31',
    support: '2027-04-02',
    latest: '3.12.4',
    latestReleaseDate: '2026-02-03',
    lts: false,
    link: 'https://example.com/3.12.4',
  },
  { cycle: '3.1', releaseDate: '2020-06-26', eol: true, support: false, extendedSupport: true, latest: '3.1.5', lts: '2021-01-01' },
  { cycle: '4', codename: 'Jammy Jellyfish', eol: false, support: true, extendedSupport: false, latest: 4.1, lts: true },
]

function productOf(name: string, more: JsonObject = {}): JsonObject {
  return {
    name,
    label: name.toUpperCase(),
    category: 'lang',
    aliases: [`${name}-lang`],
    identifiers: [
      { type: 'purl', id: `pkg:docker/library/${name}@latest?arch=amd64` },
      { type: 'purl', id: 'no package URL' },
      { type: 'cpe', id: `cpe:2.3:a:example:${name}` },
    ],
    releases: [
      {
        name: '1.1.1',
        label: '1.1.1 (LTS)',
        codename: null,
        releaseDate: '2026-01-02',
        isLts: true,
        ltsFrom: null,
        isEoas: true,
        eoasFrom: '2026-01-31',
        isEol: false,
        eolFrom: null,
        isEoes: null,
        isMaintained: true,
        latest: { name: '1.1.1w', date: '2026-01-20', link: 'javascript:alert(1)' },
      },
      { name: '1.1', label: '1.1', releaseDate: null, isLts: false, isEol: true, eolFrom: '2024-02-29', isMaintained: false, latest: null },
    ],
    ...more,
  }
}

const single = (product: JsonObject): string => JSON.stringify({ schema_version: '1.2.0', result: product })
const full = (...products: JsonObject[]): string => JSON.stringify({ schema_version: '1.2.0', total: products.length, result: products })

async function imported(files: Readonly<Record<string, string>>, options: { target?: string; replace?: boolean } = {}): ReturnType<typeof importPaths> {
  const paths = await Promise.all(Object.entries(files).map(([name, content]) => fileOf(name, content)))
  // Life cycles belong to no group.
  return importPaths(paths, { ...options, group: undefined })
}

const countsOf = ({ rows }: Awaited<ReturnType<typeof importPaths>>): RowCounts | undefined => rows.get('lifecycle')

async function cyclesIn(target: string, ...versions: (readonly [product: string, version: string])[]): Promise<readonly CycleAnswer[]> {
  const thread = await LifecycleThread.open(fileOfKind(target, 'lifecycle'))
  try {
    const wanted = versions.map(([product, version]): ProductVersion => ({ product, version }))
    return await thread.cyclesOf(wanted, { key: 'tests', signal: AbortSignal.timeout(60_000) })
  } finally {
    await thread.close()
  }
}

async function namesIn(target: string, ...versions: (readonly [product: string, version: string])[]): Promise<string[]> {
  return (await cyclesIn(target, ...versions)).map((found) =>
    found === undefined ? 'none' : found === 'unknown version' ? found : `${found.product} ${found.cycle}`,
  )
}

describe('dates of products', () => {
  test('come from the older form, whose file names the product', async () => {
    const { target, refusals } = await imported({ 'python.json': JSON.stringify(older, undefined, 1) })
    expect(refusals).toEqual([])
    expect(await cyclesIn(target, ['python', '3.12.1'], ['python', '3.1'], ['python', '4.0.1'])).toEqual([
      {
        product: 'python',
        cycle: '3.12',
        label: '3.12',
        codename: '',
        releaseDay: '2026-01-02',
        isLts: false,
        supportEnd: { day: '2027-04-02' },
        lifeEnd: { day: '2028-10-31' },
        latest: '3.12.4',
        latestDay: '2026-02-03',
        link: 'https://example.com/3.12.4',
      },
      {
        product: 'python',
        cycle: '3.1',
        label: '3.1',
        codename: '',
        releaseDay: '2020-06-26',
        isLts: true,
        ltsDay: '2021-01-01',
        supportEnd: { hasCome: true },
        lifeEnd: { hasCome: true },
        extendedEnd: { hasCome: false },
        latest: '3.1.5',
        link: '',
      },
      {
        product: 'python',
        cycle: '4',
        label: '4',
        codename: 'Jammy Jellyfish',
        isLts: true,
        supportEnd: { hasCome: false },
        lifeEnd: { hasCome: false },
        latest: '4.1',
        link: '',
      },
    ])
  })

  test.each([
    ['one product', { 'any name': single(productOf('ssl')) }],
    ['all products', { 'full.json': full(productOf('other'), productOf('ssl')) }],
    ['all products, line by line', { 'full.json': JSON.stringify(JSON.parse(full(productOf('other'), productOf('ssl'))), undefined, 2) }],
    // Larger files are read one by one.
    ['a large list of products', { 'full.json': full(productOf('other', { notes: 'x'.repeat(1_200_000) }), productOf('ssl')) }],
  ])('come from the API: %s', async (_, files) => {
    const { target, refusals } = await imported(files)
    expect(refusals).toEqual([])
    expect(await cyclesIn(target, ['ssl', '1.1.1k'], ['ssl', '1.1'])).toEqual([
      {
        product: 'ssl',
        cycle: '1.1.1',
        label: '1.1.1 (LTS)',
        codename: '',
        releaseDay: '2026-01-02',
        isLts: true,
        supportEnd: { day: '2026-01-31' },
        lifeEnd: { hasCome: false },
        latest: '1.1.1w',
        latestDay: '2026-01-20',
        link: '',
      },
      { product: 'ssl', cycle: '1.1', label: '1.1', codename: '', isLts: false, lifeEnd: { day: '2024-02-29' }, latest: '', link: '' },
    ])
  })

  test('belong to the longest cycle that a version begins with, up to the end of a part', async () => {
    const cycles = ['3.1', '3.12', '3', 'v5', 'edge', '1.1.1'].map((cycle) => ({ cycle, eol: false }))
    const { target } = await imported({ 'a.json': JSON.stringify([...cycles, { cycle: '22.04', codename: 'Jammy Jellyfish', eol: false }]) })
    const found = await namesIn(
      target,
      ...[
        '3.12.4',
        '3.12',
        '3.1',
        '3.1-rc1',
        '3.11',
        'v3.12-slim',
        '31',
        '5.0',
        'V5',
        'edge',
        'edges',
        'edge-2',
        '1.1.1w',
        '',
        'jammy',
        'JAMMY jellyfish',
        'jam',
      ].map((version) => ['a', version] as const),
    )
    const expected = ['3.12', '3.12', '3.1', '3.1', '3', '3.12', '', 'v5', 'v5', 'edge', '', 'edge', '1.1.1', '', '22.04', '22.04', '']
    expect(found).toEqual(expected.map((cycle) => (cycle === '' ? 'unknown version' : `a ${cycle}`)))
  })

  test('are found by name, alias and package URL; a name wins over an alias', async () => {
    const { target } = await imported({ 'full.json': full(productOf('ssl'), productOf('ssl-lang', { aliases: [] }), productOf('tls', { aliases: ['ssl'] })) })
    expect(
      await namesIn(
        target,
        ['SSL', '1.1'],
        ['ssl-lang', '1.1'],
        ['pkg:docker/library/tls', '1.1'],
        ['pkg:docker/library/tls@1.1?arch=arm64#x', '1.1'],
        ['pkg:docker/library/none', '1.1'],
        ['constructor', '1.1'],
        ['tls', '2'],
      ),
    ).toEqual(['ssl 1.1', 'ssl-lang 1.1', 'tls 1.1', 'tls 1.1', 'none', 'none', 'unknown version'])
  })
})

describe('an import of life cycles', () => {
  test('changes nothing the second time, and keeps what other files say', async () => {
    const files = { 'python.json': JSON.stringify(older), 'full.json': full(productOf('ssl')) }
    const first = await imported(files)
    expect(countsOf(first)).toMatchObject({ added: 5, changed: 0, unchanged: 0, removed: 0 })
    expect(countsOf(await imported(files, { target: first.target }))).toMatchObject({ added: 0, changed: 0, unchanged: 5 })
    const changed = await imported({ 'ssl.json': JSON.stringify([{ cycle: '1.1', eol: true }]) }, { target: first.target })
    expect(countsOf(changed)).toMatchObject({ added: 0, changed: 1, removed: 0 })
    // The file says nothing about the product as a whole.
    expect(await namesIn(first.target, ['ssl-lang', '1.1'], ['python', '4'])).toEqual(['ssl 1.1', 'python 4'])
  })

  test('with replace, has only what its files have', async () => {
    const { target } = await imported({ 'python.json': JSON.stringify(older), 'full.json': full(productOf('ssl')) })
    expect(countsOf(await imported({ 'python.json': JSON.stringify(older.slice(1)) }, { target, replace: true }))).toMatchObject({ unchanged: 2, removed: 3 })
    expect(await namesIn(target, ['python', '3.12.1'], ['ssl', '1.1'], ['python', '3.1'])).toEqual(['unknown version', 'none', 'python 3.1'])
  })

  test('takes the name of the product from a file in an archive', async () => {
    const path = await fileOf('all.zip', zipOf([{ name: 'api/nodejs.json', content: JSON.stringify(older) }]))
    const { target } = await importPaths([path], { group: undefined })
    expect(await namesIn(target, ['nodejs', '3.12.0'])).toEqual(['nodejs 3.12'])
  })

  test.each([
    [
      'a list in a file without a name',
      { 'x.part': JSON.stringify(older.slice(0, 1)) },
      'the document does not name its product: call the file <product>.json',
    ],
    ['a list in a file with another name', { 'my dates.json': JSON.stringify(older.slice(0, 1)) }, 'the document does not name its product'],
    ['a day that does not exist', { 'a.json': JSON.stringify([{ cycle: '1', eol: '2026-02-31' }]) }, 'eol is no day such as 2026-01-31'],
    ['a number for a day', { 'a.json': JSON.stringify([{ cycle: '1', eol: 2026 }]) }, 'eol is no day'],
    ['an empty cycle', { 'a.json': JSON.stringify([{ cycle: '', eol: true }]) }, 'cycle is empty'],
    ['a product without releases', { 'all.json': single(productOf('a', { releases: {} })) }, 'releases is no list'],
    ['the short list of products', { 'all.json': full({ name: 'a', label: 'A', category: 'os' }) }, 'releases is missing: import /api/v1/products/full'],
    ['a product with a path for a name', { 'all.json': full(productOf('../a')) }, 'name is no name of a product'],
    [
      'a release that is there twice',
      { 'all.json': full(productOf('a', { releases: [{ name: '1' }, { name: '1' }] })) },
      'releases has two items with the name 1',
    ],
    ['a control character', { 'all.json': full(productOf('a', { label: 'a\u0000' })) }, 'label has a control character'],
  ])('refuses %s', async (_, files, reason) => {
    const { refusals } = await imported(files)
    expect(refusals.map((refusal) => refusal.reason)).toEqual([expect.stringContaining(reason)])
  })

  test('refuses a cycle that an earlier file has', async () => {
    const { counts, refusals } = await imported({ 'a.json': JSON.stringify([{ cycle: '1', eol: true }]), 'a.yaml': 'cycle: 1\neol: true\n' })
    expect([counts.documents, refusals.map(({ reason }) => reason)]).toEqual([2, ['a 1 was in an earlier document of this import']])
  })
})
