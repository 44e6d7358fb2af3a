import fc from 'fast-check'
import { expect, test } from 'vitest'
import { formatOf } from '../../src/catalogue/import/formats/formats.ts'
import { RefusedDocument } from '../../src/catalogue/import/members.ts'
import { parseXml } from '../../src/catalogue/import/xml.ts'
import { isFullTier } from '../support/tier.ts'
import { testGroup } from './documents.ts'

/** Names of members that forms read, so that random documents get far into them. */
const names = fc.constantFrom(
  ...['info', 'urls', 'releases', 'name', 'summary', 'version', 'classifiers', 'meta', 'api-version', 'files', 'versions', 'filename', 'size', 'yanked'],
  ...[
    'upload_time_iso_8601',
    'upload-time',
    'dist-tags',
    'latest',
    'time',
    'modified',
    'dist',
    'unpackedSize',
    'deprecated',
    'description',
    '1.0',
    '__proto__',
  ],
  ...['id', 'affected', 'package', 'ecosystem', 'ranges', 'events', 'fixed', 'severity', 'type', 'score', 'aliases', 'published', 'withdrawn', 'constructor'],
)
const texts = fc.oneof(fc.string({ maxLength: 20 }), fc.constantFrom('1.0', 'x-1.0.tar.gz', 'a-1-b.whl', '2026-01-02T03:04:05Z', 'lib', '\ud800', 'GIT'))
const values = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    texts,
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(names, tie('value'), { maxKeys: 6 }),
  ),
})).value
/** Documents that a form recognises, with any content. */
const documents = fc.oneof(
  values,
  fc.record({ info: fc.dictionary(names, values), urls: fc.constant([]), releases: fc.dictionary(texts, values) }),
  fc.record({ meta: fc.constant({ 'api-version': '1.0' }), name: texts, files: fc.array(fc.dictionary(names, values)), versions: values }),
  fc.record({ name: texts, 'dist-tags': fc.dictionary(names, values), versions: fc.dictionary(texts, values), time: fc.dictionary(texts, values) }),
  fc.record({ id: texts, modified: texts, affected: values }),
)

function refusalOf(work: () => unknown): unknown {
  try {
    work()
    return undefined
  } catch (error) {
    return error
  }
}

function read(value: unknown): void {
  const { format, document } = formatOf(value)
  for (const { kind } of format.rowsOf(document, { group: () => testGroup, nowMs: 0, ecosystem: undefined, file: 'document.json' }))
    expect(kind).toBeTypeOf('string')
}

const numRuns = isFullTier ? 20_000 : 2_000

test('any JSON is read or refused', () => {
  fc.assert(
    fc.property(documents, (value) => {
      // As the parser makes it: `__proto__` is a member like others.
      const error = refusalOf(() => read(JSON.parse(JSON.stringify(value))))
      if (error !== undefined) expect(error).toBeInstanceOf(RefusedDocument)
    }),
    { numRuns },
  )
})

test('any XML is read or refused', () => {
  const pieces = fc.constantFrom(
    ...['<metadata>', '</metadata>', '<groupId>g</groupId>', '<artifactId>a</artifactId>', '<versioning>', '</versioning>', '<versions>', '</versions>'],
    ...[
      '<version>1</version>',
      '<lastUpdated>2026',
      '</lastUpdated>',
      '<!--',
      '-->',
      '<![CDATA[',
      ']]>',
      '&amp;',
      '&#0;',
      '&#x110000;',
      '<?xml?>',
      '<!DOCTYPE x',
    ],
    ...['[<!ENTITY a "b">]>', '>', '<', '&a;', 'a="1"', '<a b="', "<a b='1'/>", '\ud800', ' '],
  )
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 20 }), (parts) => {
      const error = refusalOf(() => read(parseXml(parts.join(''))))
      if (error !== undefined) expect(error).toBeInstanceOf(RefusedDocument)
    }),
    { numRuns },
  )
})
