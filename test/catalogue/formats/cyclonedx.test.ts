import { expect, test } from 'vitest'
import { advisoriesOf, eventsOf, pairOf } from './rows.ts'
import { samples } from './samples.ts'

// docs/spec/advisories.md#advisories-from-vex
test('one advisory for each vulnerability and component', () => {
  const advisories = advisoriesOf(samples.cyclonedx)
  expect(advisories.map(pairOf)).toEqual([
    'CVE-2026-1001: shop (, ) / libpng (generic, pkg:generic/libpng@1.6.40)',
    'CVE-2026-1002: shop (, ) / shop (, shop@2.0)',
    'CVE-2026-1003: shop (, ) / example/cart (, example/cart@3.1)',
    'CVE-2026-1003: shop (, ) / a (npm, pkg:npm/a@1)',
    'CVE-2026-1004: shop (, ) / example/cart (, example/cart@3.1)',
    'CVE-2026-1005: shop (, ) / example/cart (, example/cart@3.1)',
    'CVE-2026-1006: shop (, ) / example/cart (, example/cart@3.1)',
  ])
  expect(advisories[0]).toMatchObject({
    author: 'Example Corp',
    aliases: ['GHSA-aaaa-bbbb-cccc'],
    severities: [{ type: 2, score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }],
  })
})

test('the state of the analysis', () => {
  const advisories = advisoriesOf(samples.cyclonedx).map(eventsOf)
  const exploitable = [
    '2026-01-02T08:00:00Z: truePositiveDetermination {"note":"Remove the cart."}',
    '2026-01-02T08:00:00Z: fixNotPlanned {"note":"Remove the cart."}',
  ]
  expect(advisories).toEqual([
    ['2026-01-03T08:00:00Z: falsePositiveDetermination {"type":5,"note":"The shop never decodes PNG."}'],
    ['2026-01-02T08:00:00Z: detection {"type":{"case":"manual","value":{}}}'],
    exploitable,
    exploitable,
    ['2026-01-02T08:00:00Z: fixed {"fixedVersion":"3.1"}'],
    ['2026-01-02T08:00:00Z: patched {"patchedVersions":["3.1"]}'],
    ['2026-01-02T08:00:00Z: falsePositiveDetermination {"type":2}'],
  ])
})

test.each([
  ['code_not_present', 4],
  ['code_not_reachable', 5],
  ['requires_configuration', 6],
  ['requires_dependency', 6],
  ['requires_environment', 6],
  ['protected_by_compiler', 7],
  ['protected_at_runtime', 7],
  ['protected_at_perimeter', 7],
  ['protected_by_mitigating_control', 7],
  [undefined, 0],
])('justification %s', (justification, type) => {
  const vulnerabilities = [{ id: 'CVE-1', analysis: { state: 'not_affected', justification }, affects: [{ ref: 'png' }] }]
  expect(advisoriesOf({ ...samples.cyclonedx, vulnerabilities })[0]?.events[0]?.type.value).toMatchObject({ type })
})

test.each([
  ['a list of components alone', { vulnerabilities: undefined }, 'this is a list of components without findings'],
  ['an unknown component', { vulnerabilities: [{ id: 'CVE-1', affects: [{ ref: 'constructor' }] }] }, 'names a component that the document does not have'],
  ['an unknown state', { vulnerabilities: [{ id: 'CVE-1', analysis: { state: 'toString' } }] }, 'vulnerabilities.analysis.state has an unknown value'],
  [
    'two components with one reference',
    { components: [samples.cyclonedx.components[0], samples.cyclonedx.components[0]] },
    'two components with the bom-ref png',
  ],
])('refused: %s', (_, members, reason) => {
  expect(() => advisoriesOf({ ...samples.cyclonedx, ...members })).toThrow(reason)
})
