import { expect, test } from 'vitest'
import { advisoriesOf, eventsOf, pairOf } from './rows.ts'
import { samples } from './samples.ts'

// docs/spec/advisories.md#advisories-of-packages
test('one advisory for each vulnerability of the package', () => {
  const advisories = advisoriesOf(samples.packageAdvisories)
  expect(advisories.map(pairOf)).toEqual([
    'EXA-2345-6789-cfgh: nginx (apk, ) / nginx (apk, )',
    'CVE-2026-1004: nginx (apk, ) / nginx (apk, )',
    'CVE-2026-1005: nginx (apk, ) / nginx (apk, )',
  ])
  expect(advisories.map(({ author, aliases }) => [author, aliases])).toEqual([
    ['EXA', ['CVE-2026-1001', 'GHSA-aaaa-bbbb-cccc']],
    ['CVE', []],
    ['CVE', []],
  ])
})

test('each event is an event', () => {
  expect(advisoriesOf(samples.packageAdvisories).map(eventsOf)).toEqual([
    [
      expect.stringMatching(
        /^2026-01-01T08:00:00Z: detection .*"scanv1".*"scanner":"grype","subpackage":"nginx-mod","componentId":"0123","component":"zlib","componentVersion":"1.3","componentType":"apk","componentLocation":"\/lib\/apk\/db\/installed"/,
      ),
      '2026-01-02T08:00:00Z: truePositiveDetermination {"note":"The module decompresses requests."}',
      '2026-01-03T08:00:00Z: pendingUpstreamFix {"note":"Upstream reviews a fix."}',
      '2026-01-04T08:00:00Z: fixed {"fixedVersion":"1.27.1-r0"}',
    ],
    [
      '2026-01-01T08:00:00Z: detection {"type":{"case":"nvdapi","value":{"cpeSearched":"cpe:2.3:a:*:nginx","cpeFound":"cpe:2.3:a:f5:nginx"}}}',
      '2026-01-02T08:00:00Z: falsePositiveDetermination {"type":2,"note":"It is about a plugin of another project."}',
    ],
    [
      '2026-01-01T08:00:00Z: detection {"type":{"case":"manual","value":{}}}',
      '2026-01-02T08:00:00Z: analysisNotPlanned {"note":"The branch ended."}',
      '2026-01-03T08:00:00Z: fixNotPlanned {"note":"The branch ended."}',
    ],
  ])
})

const timestamp = '2026-01-01T00:00:00Z'

test.each([
  ['vulnerability-record-analysis-contested', 1],
  ['component-vulnerability-mismatch', 2],
  ['vulnerable-code-version-not-used', 3],
  ['vulnerable-code-not-included-in-package', 4],
  ['vulnerable-code-not-in-execution-path', 5],
  ['vulnerable-code-cannot-be-controlled-by-adversary', 6],
  ['inline-mitigations-exist', 7],
])('false positive %s', (type, expected) => {
  const events = [{ timestamp, type: 'false-positive-determination', data: { type } }]
  const [advisory] = advisoriesOf({ ...samples.packageAdvisories, advisories: [{ id: 'CVE-1', events }] })
  expect(advisory?.events[0]?.type.value).toMatchObject({ type: expected })
})

test.each([
  ['a version of the form that is not 2', { 'schema-version': '3.0' }, 'schema-version is not 2'],
  ['a package without a name', { package: {} }, 'package.name is missing or no text'],
  ['an advisory without events', { advisories: [{ id: 'CVE-1', events: [] }] }, 'CVE-1 has no events'],
  ['an event without time', { advisories: [{ id: 'CVE-1', events: [{ type: 'detection' }] }] }, 'events.timestamp is missing'],
  ['an unknown event', { advisories: [{ id: 'CVE-1', events: [{ timestamp, type: 'toString' }] }] }, 'events.type is unknown'],
  [
    'a fix without version',
    { advisories: [{ id: 'CVE-1', events: [{ timestamp, type: 'fixed', data: {} }] }] },
    'events.data.fixed-version is missing or no text',
  ],
])('refused: %s', (_, members, reason) => {
  expect(() => advisoriesOf({ ...samples.packageAdvisories, ...members })).toThrow(reason)
})
