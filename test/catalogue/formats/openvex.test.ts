import { expect, test } from 'vitest'
import { advisoriesOf, eventsOf, pairOf } from './rows.ts'
import { samples } from './samples.ts'

const { statements, ...head } = samples.openvex
const purl = 'pkg:apk/example/libpng@1.6.40-r0'

/** A document with one statement about one package. */
const documentOf = (statement: Readonly<Record<string, unknown>>): unknown => ({
  ...head,
  statements: [{ vulnerability: { name: 'CVE-1' }, products: [{ '@id': purl }], status: 'affected', ...statement }],
})

// docs/spec/advisories.md#advisories-from-vex
test('one advisory for each vulnerability, product and part of a product', () => {
  expect(advisoriesOf(samples.openvex).map(pairOf)).toEqual([
    'CVE-2026-1001: shop (oci, amd64) / libpng (apk, pkg:apk/example/libpng@1.6.40-r0?arch=x86_64)',
    'CVE-2026-1001: shop (oci, amd64) / example.com/net/http2 (golang, pkg:golang/example.com/net/http2@v1.2.3)',
    'CVE-2026-1002: https://example.com/shop (, ) / https://example.com/shop (, https://example.com/shop)',
    'CVE-2026-1003: @example/cart (npm, ) / @example/cart (npm, pkg:npm/%40example/cart@2.1.0)',
  ])
})

test('later statements about the same are later events', () => {
  const [first, , affected, fixed] = advisoriesOf(samples.openvex)
  expect([first, affected, fixed].map((advisory) => (advisory === undefined ? [] : eventsOf(advisory)))).toEqual([
    [
      '2026-01-02T10:00:00Z: detection {"type":{"case":"manual","value":{}}}',
      '2026-01-03T10:00:00Z: falsePositiveDetermination {"type":5,"note":"The shop never decodes PNG.\\nChecked by hand."}',
    ],
    ['2026-01-02T10:00:00Z: truePositiveDetermination {"note":"Turn off uploads."}'],
    ['2026-01-02T10:00:00Z: fixed {"fixedVersion":"2.1.0"}'],
  ])
  expect(first).toMatchObject({ author: head.author, aliases: ['GHSA-aaaa-bbbb-cccc'] })
})

test('statements in another order of lines make the same events', () => {
  const turned = { ...head, statements: statements.toReversed() }
  expect(new Set(advisoriesOf(turned).map(eventsOf).map(String))).toEqual(new Set(advisoriesOf(samples.openvex).map(eventsOf).map(String)))
})

test('early versions name the vulnerability and the products as texts', () => {
  const [advisory] = advisoriesOf(documentOf({ vulnerability: 'CVE-2', products: [purl] }))
  expect(advisory === undefined ? '' : pairOf(advisory)).toBe(`CVE-2: libpng (apk, ) / libpng (apk, ${purl})`)
})

test.each([
  ['component_not_present', 2],
  ['vulnerable_code_not_present', 4],
  ['vulnerable_code_not_in_execute_path', 5],
  ['vulnerable_code_cannot_be_controlled_by_adversary', 6],
  ['inline_mitigations_already_exist', 7],
  [undefined, 0],
])('justification %s', (justification, type) => {
  const [advisory] = advisoriesOf(documentOf({ status: 'not_affected', justification }))
  expect(advisory?.events[0]?.type.value).toMatchObject({ type })
})

// docs/spec/advisories.md#one-advisory-of-a-pair
test('two authors say different things about the same: two advisories, each with its author', () => {
  const [one, other] = ['One', 'Other'].map((author) => advisoriesOf({ ...samples.openvex, author })[0])
  expect(one?.events.map(({ author }) => author)).toEqual(['One', 'One'])
  expect(one?.events[0]?.uid).not.toBe(other?.events[0]?.uid)
})

test.each([
  ['an unknown status', { status: 'constructor' }, 'statements.status has an unknown value'],
  ['an unknown justification', { status: 'not_affected', justification: '__proto__' }, 'statements.justification has an unknown value'],
  ['no product', { products: [] }, 'statements.products is empty: a statement names its products'],
  ['a product without identifier', { products: [{ hashes: {} }] }, 'statements.products has neither @id nor a package URL nor a CPE name'],
  ['a broken package URL', { products: [{ '@id': 'pkg:apk' }] }, 'statements.products is no valid package URL'],
  ['a control character in a package URL', { products: [{ '@id': 'pkg:apk/a/b%0Ac' }] }, 'statements.products has a control character'],
  ['a control character in a note', { status_notes: 'a\u001b[2J' }, 'statements.status_notes has a control character'],
  ['a time before the year 1', { timestamp: '0001-01-01T00:00:00+14:00' }, 'timestamp is no time such as 2026-01-31T12:00:00Z'],
])('refused: %s', (_, statement, reason) => {
  expect(() => advisoriesOf(documentOf(statement))).toThrow(reason)
})

test('a long note about many products is refused, not multiplied', () => {
  const products = Array.from({ length: 50_000 }, (_, at) => ({ '@id': `pkg:npm/p${String(at)}` }))
  expect(() => advisoriesOf(documentOf({ products, status_notes: 'a'.repeat(16_000) }))).toThrow('have more than 128 Mi characters')
})
