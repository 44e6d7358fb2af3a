import { describe, expect, test } from 'vitest'
import { advisoriesOf, eventsOf, pairOf } from './rows.ts'
import { samples } from './samples.ts'

const { document, product_tree: tree, vulnerabilities } = samples.csaf

/** The sample with other members. */
const changed = (members: Readonly<Record<string, unknown>>): unknown => ({ ...samples.csaf, ...members })

// docs/spec/advisories.md#advisories-from-vex
test('one advisory for each vulnerability and product', () => {
  expect(advisoriesOf(samples.csaf).map(pairOf)).toEqual([
    'CVE-2026-1001: Example server (, ) / Example server (, Example server 1.0)',
    'CVE-2026-1001: Example Linux 9 (, ) / openssl (rpm, pkg:rpm/example/openssl@3.2.1?arch=x86_64)',
    'CVE-2026-1001: Example server (, ) / Example server (, Example server 1.1)',
    'CVE-2026-1002: Example server (, ) / Example server (, Example server 1.1)',
    'CVE-2026-1002: Example Linux 9 (, ) / openssl (rpm, pkg:rpm/example/openssl@3.2.1?arch=x86_64)',
    'CVE-2026-1002: Example server (, ) / Example server (, Example server 1.0)',
  ])
})

test('the status of a product, with flags, threats and remediations', () => {
  expect(advisoriesOf(samples.csaf).map(eventsOf)).toEqual([
    [
      '2026-01-05T08:00:00Z: truePositiveDetermination {"note":"Turn off compression."}',
      '2026-01-05T08:00:00Z: fixNotPlanned {"note":"1.0 is out of support."}',
    ],
    ['2026-01-05T08:00:00Z: falsePositiveDetermination {"type":4,"note":"The module is not built."}'],
    ['2026-01-05T08:00:00Z: fixed {"fixedVersion":"1.1"}'],
    ['2026-01-05T08:00:00Z: truePositiveDetermination {}', '2026-01-05T08:00:00Z: pendingUpstreamFix {"note":"Upstream works on a fix."}'],
    ['2026-01-05T08:00:00Z: truePositiveDetermination {}'],
    ['2026-01-05T08:00:00Z: detection {"type":{"case":"manual","value":{}}}'],
  ])
})

test('author, aliases and scores', () => {
  const [affected, notAffected] = advisoriesOf(samples.csaf)
  expect(affected).toMatchObject({
    author: 'Example Corp',
    aliases: ['GHSA-aaaa-bbbb-cccc'],
    severities: [{ type: 2, score: expect.stringContaining('CVSS:3.1/') as string }],
  })
  expect(notAffected?.severities).toEqual([])
})

const relationship = (id: string, part: string, whole = 'SSL'): object => ({
  category: 'installed_on',
  product_reference: part,
  relates_to_product_reference: whole,
  full_product_name: { product_id: id, name: id },
})

/** Branches in branches. */
function nested(depth: number): object {
  let branch: object = { category: 'product_version', name: '1', product: { product_id: 'DEEP', name: 'Deep' } }
  for (let at = 1; at < depth; at++) branch = { category: 'product_family', name: String(at), branches: [branch] }
  return branch
}

test('a part of a part of a product', () => {
  const relationships = [...tree.relationships, relationship('B', 'OS-9:SSL', 'SERVER-1.0')]
  const [advisory] = advisoriesOf(changed({ product_tree: { ...tree, relationships }, vulnerabilities: [{ cve: 'CVE-1', product_status: { fixed: ['B'] } }] }))
  expect(advisory === undefined ? '' : pairOf(advisory)).toBe('CVE-1: Example server (, ) / openssl (rpm, pkg:rpm/example/openssl@3.2.1?arch=x86_64)')
})

describe('refused', () => {
  const statusOf = (status: object, more: object = {}): Readonly<Record<string, unknown>> => ({
    vulnerabilities: [{ cve: 'CVE-1', product_status: status, ...more }],
  })
  const many = Array.from({ length: 200_000 }, (_, at) => `P${String(at)}`)

  test.each([
    ['another version', { document: { ...document, csaf_version: '3.0' } }, 'document.csaf_version is not 2.0'],
    ['another category', { document: { ...document, category: 'csaf_base' } }, 'document.category is not one of csaf_vex, csaf_security_advisory'],
    ['a vulnerability without id', { vulnerabilities: [{}] }, 'a vulnerability has neither cve nor ids'],
    ['an unknown product', statusOf({ fixed: ['__proto__'] }), 'the product __proto__ is not in product_tree'],
    ['statuses that contradict', statusOf({ fixed: ['SSL'], known_affected: ['SSL'] }), 'the product SSL is both affected and fixed'],
    ['an unknown flag', statusOf({}, { flags: [{ label: 'constructor' }] }), 'vulnerabilities.flags.label has an unknown value'],
    [
      'an unknown group',
      statusOf({}, { flags: [{ label: 'component_not_present', group_ids: ['X'] }] }),
      'names a product group that product_tree does not have',
    ],
    [
      'relationships in a circle',
      { product_tree: { ...tree, relationships: [relationship('A', 'B'), relationship('B', 'A')] }, ...statusOf({ fixed: ['A'] }) },
      'product_tree.relationships of A go in circles, or are deeper than 100',
    ],
    ['branches that are too deep', { product_tree: { branches: [nested(101)] } }, 'product_tree.branches are deeper than 100'],
    [
      'a product twice',
      { product_tree: { full_product_names: [tree.full_product_names[0], tree.full_product_names[0]] } },
      'product_tree has the product OS-9 twice',
    ],
    [
      'ten million relationships',
      { product_tree: { relationships: Array.from({ length: 10_000_000 }, () => 0) } },
      'product_tree.relationships has more than 200000 items',
    ],
    [
      'groups of many products, named many times',
      {
        product_tree: { ...tree, product_groups: [{ group_id: 'ALL', product_ids: many }] },
        ...statusOf({}, { flags: Array.from({ length: 1_000 }, () => ({ label: 'component_not_present', group_ids: ['ALL'] })) }),
      },
      'the document names products more than 2000000 times',
    ],
  ] as const)('%s', (_, members, reason) => {
    expect(() => advisoriesOf(changed(members))).toThrow(reason)
  })

  test('a security advisory is taken like VEX', () => {
    const advisory = changed({ document: { ...document, category: 'csaf_security_advisory' } })
    expect(advisoriesOf(advisory)).toHaveLength(6)
    expect(vulnerabilities).toHaveLength(2)
  })
})
