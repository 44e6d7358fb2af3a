import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { orderOf } from '../../../src/cache/lists/order.ts'
import type { FoundVersion } from '../../../src/cache/lists/library-source.ts'
import { LibraryReader } from '../../../src/catalogue/libraries/library-reader.ts'
import { Ecosystem } from '../../../src/gen/taproot/libraries/v2/artifacts_pb.ts'
import { pypiDocument } from '../../support/import-advisories.ts'
import { tarOf } from '../archives.ts'
import { fileOf, fileOfKind, importPaths, temporaryFolder, type ImportOutcome } from '../documents.ts'
import { messagesOf } from './naive-artifacts.ts'

const none = { added: 0, changed: 0, unchanged: 0, removed: 0 }

function libraries({ rows }: ImportOutcome): (typeof none & object) | undefined {
  return rows.get('libraries')
}

/** An artifact of a catalogue, in short, with its versions from the newest to the oldest. */
interface ShortArtifact {
  readonly uid: string
  readonly description: string
  readonly latest: string
  readonly created: number
  readonly updated: number
  readonly versions: readonly Omit<FoundVersion, 'uid'>[]
}

function artifactsIn(target: string, filter: { cuda?: string; remediated?: boolean } = {}): ShortArtifact[] {
  const reader = new LibraryReader(fileOfKind(target, 'libraries'))
  try {
    const { cuda, remediated = false } = filter
    const ecosystems = [Ecosystem.JAVA, Ecosystem.PYTHON, Ecosystem.NPM]
    const page = reader.artifacts({
      filter: { ecosystems, text: '', cuda, remediated },
      order: orderOf([{ field: 'uid', descending: false }]),
      after: undefined,
      skip: 0,
      limit: 1_000,
    })
    return messagesOf(page).map(({ uid, description, latestVersion: latest, createMs: created, updateMs: updated, versionCount }) => {
      const query = { artifact: uid, terms: [{ field: 'version', descending: true } as const, { field: 'uid', descending: false } as const] }
      const found = reader.versions({ ...query, after: undefined, skip: 0, limit: 1_000 })
      expect(found?.total).toBe(versionCount)
      return { uid, description, latest, created, updated, versions: (found?.versions ?? []).map(({ uid: _, ...version }) => version) }
    })
  } finally {
    reader.close()
  }
}

const uidsIn = (target: string): string[] => artifactsIn(target).map(({ uid }) => uid)

const project: JsonObject = {
  info: {
    name: 'Example.Lib',
    summary: 'An\texample\u0007 of\nlines',
    version: '1.10',
    classifiers: ['Environment :: GPU :: NVIDIA CUDA :: 12 :: 12.4', 'Environment :: GPU :: NVIDIA CUDA :: 11.8', 'Environment :: Console'],
  },
  urls: [],
  releases: {
    '1.9': [{ filename: 'a', size: 10, upload_time_iso_8601: '2026-01-02T03:04:05.678901Z' }],
    '1.10': [
      { filename: 'b', size: 20, upload_time_iso_8601: '2026-02-02T03:04:05Z' },
      { filename: 'c', size: 5, upload_time_iso_8601: '2026-02-03T03:04:05Z', yanked: true, yanked_reason: 'broken wheel' },
    ],
    '1.11': [{ filename: 'd', size: 30, upload_time_iso_8601: '2026-03-02T03:04:05Z', yanked: true, yanked_reason: 'broken' }],
    '0.1+cu121': [],
  },
}

const simple: JsonObject = {
  meta: { 'api-version': '1.1' },
  name: 'example-lib',
  versions: ['1.0', '2.0', '3.0'],
  files: [
    { filename: 'example_lib-1.0-py3-none-any.whl', size: 7, 'upload-time': '2026-01-02T03:04:05Z' },
    { filename: 'example-lib-1.0.tar.gz', size: 3, 'upload-time': '2026-01-01T03:04:05Z' },
    { filename: 'Example.Lib-2.0.zip', size: 4, yanked: 'too old' },
    { filename: 'example-lib-extra', size: 9 },
  ],
}

const packument: JsonObject = {
  name: '@example/lib',
  description: 'about the package',
  'dist-tags': { latest: '1.9.0', next: '2.0.0-rc.1' },
  versions: {
    '1.9.0': { description: 'about 1.9', dist: { unpackedSize: 90 } },
    '1.10.0': { dist: { unpackedSize: 100 }, deprecated: 'use 1.9' },
    '2.0.0-rc.1': { dist: {} },
    '1.9.1-remediated.1': {},
  },
  time: { created: '2026-01-01T00:00:00.000Z', '1.9.0': '2026-01-02T00:00:00.000Z', '1.10.0': '2026-01-03T00:00:00.000Z' },
}

const metadata = `<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>org.example</groupId>
  <artifactId>lib</artifactId>
  <!-- a comment -->
  <versioning>
    <latest>2.0-SNAPSHOT</latest>
    <release>1.10</release>
    <versions><version>1.9</version><version>1.10</version><version>2.0-SNAPSHOT</version><version>1.9</version></versions>
    <lastUpdated>20260203040506</lastUpdated>
  </versioning>
</metadata>
`

const version = (of: string, more: Partial<FoundVersion> = {}): Omit<FoundVersion, 'uid'> => ({
  version: of,
  createMs: 0,
  updateMs: 0,
  sizeBytes: 0,
  description: '',
  ...more,
})
const ms = (time: string): number => Date.parse(time)

describe('what each form says', () => {
  test('the JSON of a project on PyPI', async () => {
    const { target, refusals } = await importPaths([await fileOf('one.json', JSON.stringify(project))])
    expect(refusals).toEqual([])
    const description = 'An example of lines'
    const [first, second, third, fourth] = [ms('2026-01-02T03:04:05.678Z'), ms('2026-02-02T03:04:05Z'), ms('2026-02-03T03:04:05Z'), ms('2026-03-02T03:04:05Z')]
    expect(artifactsIn(target)).toEqual([
      {
        uid: 'python:example-lib',
        description,
        latest: '1.10',
        created: first,
        updated: fourth,
        versions: [
          version('1.11', { createMs: fourth, updateMs: fourth, sizeBytes: 30, description: 'yanked: broken' }),
          version('1.10', { createMs: second, updateMs: third, sizeBytes: 25, description }),
          version('1.9', { createMs: first, updateMs: first, sizeBytes: 10, description }),
          version('0.1+cu121', { description }),
        ],
      },
    ])
    const found = ['12.4', '11.8', '12.1', '12.2'].map((cuda) => artifactsIn(target, { cuda }).length)
    expect(found).toEqual([1, 1, 1, 0])
  })

  test('the simple API of Python', async () => {
    const { target, refusals } = await importPaths([await fileOf('one.json', JSON.stringify(simple))])
    expect(refusals).toEqual([])
    const [first, second] = [ms('2026-01-01T03:04:05Z'), ms('2026-01-02T03:04:05Z')]
    expect(artifactsIn(target)).toEqual([
      {
        uid: 'python:example-lib',
        description: '',
        latest: '3.0',
        created: first,
        updated: second,
        versions: [
          version('3.0'),
          version('2.0', { sizeBytes: 4, description: 'yanked: too old' }),
          version('1.0', { createMs: first, updateMs: second, sizeBytes: 10 }),
        ],
      },
    ])
  })

  test('an npm packument', async () => {
    const { target, refusals } = await importPaths([await fileOf('all.jsonl', `${JSON.stringify(packument)}\n`)])
    expect(refusals).toEqual([])
    const [first, second] = [ms('2026-01-02T00:00:00Z'), ms('2026-01-03T00:00:00Z')]
    const description = 'about 1.9'
    expect(artifactsIn(target, { remediated: true })).toEqual([
      {
        uid: 'npm:@example/lib',
        description,
        latest: '1.9.0',
        created: first,
        updated: second,
        versions: [
          version('2.0.0-rc.1', { description }),
          version('1.10.0', { createMs: second, updateMs: second, sizeBytes: 100, description: 'deprecated: use 1.9' }),
          version('1.9.1-remediated.1', { description }),
          version('1.9.0', { createMs: first, updateMs: first, sizeBytes: 90, description }),
        ],
      },
    ])
  })

  test('an npm packument in its short form', async () => {
    const short = { name: 'lib', modified: '2026-01-04T00:00:00.000Z', 'dist-tags': { latest: '2.0.0-rc.1' }, versions: { '2.0.0-rc.1': {}, '1.0.0': {} } }
    const { target } = await importPaths([await fileOf('one.json', JSON.stringify(short))])
    expect(artifactsIn(target)).toMatchObject([{ uid: 'npm:lib', latest: '2.0.0-rc.1', created: 0, updated: ms('2026-01-04T00:00:00Z') }])
  })

  test('a removed npm package gives no artifact, so that a replacing import removes it', async () => {
    const removed = JSON.stringify({ name: '@example/lib', time: { unpublished: { versions: ['1.0.0'] } } })
    const { target } = await importPaths([await fileOf('one.json', JSON.stringify(packument))])
    const other = JSON.stringify({ ...packument, name: 'other' })
    const { refusals } = await importPaths([await fileOf('all.jsonl', `${removed}\n${other}\n`)], { target, replace: true })
    expect([refusals, uidsIn(target)]).toEqual([[], ['npm:other']])
  })

  test('the metadata of a Maven artifact', async () => {
    const { target, refusals } = await importPaths([await fileOf('maven-metadata.xml', metadata)])
    expect(refusals).toEqual([])
    expect(artifactsIn(target)).toEqual([
      {
        uid: 'java:org.example:lib',
        description: '',
        latest: '1.10',
        created: 0,
        updated: ms('2026-02-03T04:05:06Z'),
        versions: [version('2.0-SNAPSHOT'), version('1.10'), version('1.9')],
      },
    ])
  })

  test('the folders of a Maven repository, without other files', async () => {
    const folder = await temporaryFolder()
    const file = async (path: string, content: string): Promise<void> => {
      await mkdir(join(folder, path, '..'), { recursive: true })
      await writeFile(join(folder, path), content)
    }
    await file('org/example/lib/maven-metadata.xml', metadata)
    await file('org/example/lib/maven-metadata.xml.sha1', 'abc')
    await file('org/example/lib/1.9/lib-1.9.pom', '<project/>')
    await file('org/example/lib/1.9/web.xml', '<web/>')
    await file(
      'org/example/lib/2.0-SNAPSHOT/maven-metadata.xml',
      '<metadata><groupId>org.example</groupId><artifactId>lib</artifactId><version>2.0-SNAPSHOT</version><versioning/></metadata>',
    )
    await file('org/example/maven-metadata.xml', '<metadata><plugins/></metadata>')
    await file('org/example/other/maven-metadata.xml', metadata.replace('>lib<', '>other<'))
    const outcome = await importPaths([folder])
    expect([outcome.refusals, outcome.counts.documents]).toEqual([[], 4])
    expect(uidsIn(outcome.target)).toEqual(['java:org.example:lib', 'java:org.example:other'])
    const tar = await importPaths([await fileOf('all.tar', tarOf([{ name: 'org/example/lib/maven-metadata.xml', content: metadata }]))])
    expect(uidsIn(tar.target)).toEqual(['java:org.example:lib'])
  })
})

describe('an import', () => {
  const lines = (documents: readonly JsonObject[]): string => documents.map((document) => `${JSON.stringify(document)}\n`).join('')

  test('of the same documents changes nothing, whatever the order of versions', async () => {
    const { target, ...first } = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('a', ['1.0', '2.0']), packument]))], { group: undefined })
    expect(libraries({ target, ...first })).toEqual({ ...none, added: 2 })
    const { versions } = packument
    const turned = { ...packument, versions: Object.fromEntries(Object.entries(versions as JsonObject).reverse()) }
    const again = await importPaths([await fileOf('all.jsonl', lines([turned, pypiDocument('a', ['1.0', '2.0'])]))], { target })
    expect(libraries(again)).toEqual({ ...none, unchanged: 2 })
    expect(uidsIn(target)).toEqual(['npm:@example/lib', 'python:a'])
  })

  test('of an artifact replaces all of its versions, and keeps other artifacts', async () => {
    const { target } = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('a', ['1.0+cu118', '2.0']), pypiDocument('b', ['1.0'])]))])
    const outcome = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('A', ['3.0'])]))], { target })
    expect(libraries(outcome)).toEqual({ ...none, changed: 1 })
    expect(artifactsIn(target).map(({ uid, versions }) => [uid, versions.map((one) => one.version)])).toEqual([
      ['python:a', ['3.0']],
      ['python:b', ['1.0']],
    ])
    expect(artifactsIn(target, { cuda: '11.8' })).toEqual([])
  })

  test('that replaces removes artifacts of its ecosystems alone', async () => {
    const { target } = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('a', ['1.0']), pypiDocument('b', ['1.0']), packument]))])
    const outcome = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('b', ['1.0'])]))], { target, replace: true })
    expect(libraries(outcome)).toEqual({ ...none, unchanged: 1, removed: 1 })
    expect(uidsIn(target)).toEqual(['npm:@example/lib', 'python:b'])
    const refused = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('c', ['1.0']), {}]))], { target, replace: true })
    expect(libraries(refused)).toEqual({ ...none, added: 1 })
    expect(uidsIn(target)).toEqual(['npm:@example/lib', 'python:b', 'python:c'])
  })

  test('may have artifacts and advisories at once', async () => {
    const osv = { id: 'A-1', modified: '2026-01-01T00:00:00Z', affected: [{ package: { ecosystem: 'PyPI', name: 'a' } }] }
    const outcome = await importPaths([await fileOf('all.jsonl', lines([pypiDocument('a', ['1.0']), osv]))])
    expect(outcome.counts).toMatchObject({ documents: 2, added: 1, refused: 0 })
    expect(libraries(outcome)).toEqual({ ...none, added: 1 })
  })

  test('of 20,000 versions keeps all of them', async () => {
    const releases = Object.fromEntries(Array.from({ length: 20_000 }, (_, at) => [`1.${at}`, []]))
    const { target, refusals } = await importPaths([await fileOf('one.json', JSON.stringify({ ...project, releases }))])
    expect(refusals).toEqual([])
    const reader = new LibraryReader(fileOfKind(target, 'libraries'))
    const terms = [{ field: 'version', descending: true } as const, { field: 'uid', descending: false } as const]
    const page = reader.versions({ artifact: 'python:example-lib', terms, after: undefined, skip: 10_000, limit: 2 })
    reader.close()
    expect([page?.total, page?.versions.map((one) => one.version)]).toEqual([20_000, ['1.9999', '1.9998']])
  })
})

describe('what is refused', () => {
  const good = JSON.stringify(pypiDocument('good', ['1.0']))
  const pypi = (more: JsonObject): string => JSON.stringify({ ...project, ...more })
  const many = (count: number): JsonObject => Object.fromEntries(Array.from({ length: count }, (_, at) => [`1.${at}`, []]))

  test.each([
    ['the same artifact again', JSON.stringify(pypiDocument('Good', ['2.0'])), /^good was in an earlier document/],
    ['a project without a name', pypi({ info: { summary: 'x' } }), /^info.name is missing/],
    ['a name with other letters', pypi({ info: { name: 'exämple' } }), /^info.name has other characters/],
    ['one version of a project', JSON.stringify({ info: { name: 'x' }, urls: [] }), /^releases is missing: import the JSON of the whole project/],
    ['too many versions', pypi({ releases: many(20_001) }), /^the artifact has more than 20000 versions/],
    ['a version with a line break', pypi({ releases: { '1\n': [] } }), /^a version has a control character/],
    ['a version of any length', pypi({ releases: { [`1.${'0'.repeat(600)}`]: [] } }), /^a version has more than 512 characters/],
    ['a wrong time', pypi({ releases: { '1': [{ upload_time_iso_8601: 'yesterday' }] } }), /^upload_time_iso_8601 is no time/],
    ['releases without files', pypi({ releases: { '1': 'none' } }), /^releases is no list/],
    ['a file of the simple API without a name', JSON.stringify({ ...simple, files: [{}] }), /^files has an item without a filename/],
    ['versions of the simple API that are numbers', JSON.stringify({ ...simple, versions: [1] }), /^versions has an item that is no text/],
    ['a packument without a name', JSON.stringify({ ...packument, name: '' }), /^name is missing/],
    ['versions that are texts', JSON.stringify({ ...packument, versions: { '1.0.0': 'x' } }), /^versions is no object/],
    ['a name of a version that objects have anyway', JSON.stringify({ ...packument, versions: { constructor: {} } }), /^constructor is no time/],
  ] as const)('%s', async (_, document, reason) => {
    const { refusals, target } = await importPaths([await fileOf('documents.jsonl', `${good}\n${document}\n`)])
    expect(refusals.map((refusal) => refusal.reason)).toEqual([expect.stringMatching(reason)])
    expect(uidsIn(target)).toEqual(['python:good'])
  })

  const entities = `<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><metadata><groupId>&b;</groupId></metadata>`

  test.each([
    ['entities', entities, /^the XML document has a document type/],
    ['an external entity', '<!DOCTYPE m SYSTEM "file:///etc/passwd"><metadata/>', /^the XML document has a document type/],
    ['an unknown entity', metadata.replace('org.example', '&unknown;'), /^the text is not valid XML: Invalid character entity/],
    ['elements in elements', '<a>'.repeat(100_000), /^the XML document has more than 32 levels/],
    ['elements without end', `<metadata>${'<a/>'.repeat(300_000)}</metadata>`, /^the XML document has more than 200000 elements/],
    ['text of any length', `<metadata>${' '.repeat(9 * 1024 * 1024)}</metadata>`, /^the XML document is larger than 8 MiB/],
    ['XML that ends', metadata.slice(0, 200), /^the text is not valid XML: Unclosed root tag/],
    ['elements that cross', '<metadata><a></metadata></a>', /^the text is not valid XML: Unexpected close tag/],
    ['HTML', '<!doctype html><html></html>', /^the XML document has a document type/],
    ['another kind of XML', '<project/>', /^the document has none of the known forms: .*maven-metadata.xml/],
    ['no group', metadata.replace(/<groupId>.*<\/groupId>/, ''), /^groupId is missing/],
    ['an id with a colon', metadata.replace('org.example', 'org:example'), /^groupId has a character that no id has/],
    ['a time that is none', metadata.replace('20260203040506', '20261303040506'), /^lastUpdated is no time/],
  ] as const)('XML: %s', async (_, document, reason) => {
    const { refusals } = await importPaths([await fileOf('maven-metadata.xml', document)])
    expect(refusals.map((refusal) => refusal.reason)).toEqual([expect.stringMatching(reason)])
  })
})
