import { describe, expect, test } from 'vitest'
import type { Match } from '../../../src/contents/index.ts'
import { rules, type RuleName } from '../../../src/contents/matching/rules.ts'
import { apkAt, falsePositive, manual, matchesOf, npmAt, npmRange, osvDocument, own, packageAt, ranged, vexDocument, type Case } from '../advisories.ts'

/** One row for each rule. Undefined: the advisory says nothing. */
const ruleRows: Readonly<Record<RuleName, readonly [Case, Pick<Match, 'state' | 'fixedVersion'> | undefined]>> = {
  withdrawn: [{ documents: [{ ...npmRange, withdrawn: '2026-02-01T00:00:00Z' }], found: npmAt('1.1.0') }, undefined],
  'not approved': [{ documents: [], found: npmAt('1.1.0') }, undefined],
  'other artifact': [
    { documents: [vexDocument('pkg:oci/app', { status: 'affected', action_statement: 'wait' }, 'pkg:npm/left')], found: npmAt('1.1.0') },
    undefined,
  ],
  'other version': [{ documents: [vexDocument('pkg:npm/left@1.0.0', { status: 'affected', action_statement: 'wait' })], found: npmAt('1.1.0') }, undefined],
  'false positive': [
    { ...own(manual, falsePositive), found: apkAt('1.0-r0') },
    { state: 'not_affected', fixedVersion: '' },
  ],
  'true positive': [
    { ...own(manual, ['true-positive-determination', { note: 'yes' }]), found: apkAt('1.0-r0') },
    { state: 'affected', fixedVersion: '' },
  ],
  'fix not planned': [
    { ...own(manual, ['fix-not-planned', { note: 'old' }]), found: apkAt('1.0-r0') },
    { state: 'affected', fixedVersion: '' },
  ],
  'analysis not planned': [
    { ...own(manual, ['analysis-not-planned', { note: 'old' }]), found: apkAt('1.0-r0') },
    { state: 'affected', fixedVersion: '' },
  ],
  'pending upstream fix': [
    { ...own(manual, ['pending-upstream-fix', { note: 'wait' }]), found: apkAt('1.0-r0') },
    { state: 'affected', fixedVersion: '' },
  ],
  'commits only': [{ documents: [osvDocument('npm', 'left', ranged('GIT', { introduced: '0' }))], found: npmAt('1.1.0') }, undefined],
  'listed version': [
    { documents: [osvDocument('PyPI', 'left', { versions: ['1.0'] })], found: packageAt('pkg:pypi/left@1.0.0') },
    { state: 'affected', fixedVersion: '' },
  ],
  'inside of a range': [
    { documents: [npmRange], found: npmAt('1.1.0') },
    { state: 'affected', fixedVersion: '1.2.0' },
  ],
  'after the fix of a range': [
    { documents: [npmRange], found: npmAt('1.2.0') },
    { state: 'fixed', fixedVersion: '1.2.0' },
  ],
  'outside of ranges': [
    { documents: [npmRange], found: npmAt('0.9.0') },
    { state: 'not_affected', fixedVersion: '' },
  ],
  'unreadable range or version': [
    { documents: [npmRange], found: npmAt('latest') },
    { state: 'under_investigation', fixedVersion: '' },
  ],
  'fixed in any version': [
    { documents: [vexDocument('pkg:npm/left', { status: 'fixed' })], found: npmAt('1.1.0') },
    { state: 'fixed', fixedVersion: '' },
  ],
  'unreadable fix': [
    { ...own(manual, ['fixed', { 'fixed-version': '1.2_final-r0' }]), found: apkAt('1.0-r0') },
    { state: 'under_investigation', fixedVersion: '' },
  ],
  'has the fix': [
    { ...own(manual, ['fixed', { 'fixed-version': '1.0-r3' }]), found: apkAt('1.0-r10') },
    { state: 'fixed', fixedVersion: '1.0-r3' },
  ],
  'unreadable version': [
    { ...own(['fixed', { 'fixed-version': '1.0-r3' }]), found: apkAt('unknown') },
    { state: 'under_investigation', fixedVersion: '' },
  ],
  'before the fix': [
    { ...own(manual, ['fixed', { 'fixed-version': '1.0-r3' }]), found: apkAt('1.0-r2') },
    { state: 'affected', fixedVersion: '1.0-r3' },
  ],
  detected: [
    { ...own(manual), found: apkAt('1.0-r0') },
    { state: 'under_investigation', fixedVersion: '' },
  ],
}

describe('the rule', () => {
  test.each(rules.map(({ name }) => name))('%s', (name) => {
    const [given, expected] = ruleRows[name]
    const matches = matchesOf(given)
    expect(matches.map(({ state, fixedVersion, why }) => ({ state, fixedVersion, rule: why.rule }))).toEqual(
      expected === undefined ? [] : [{ ...expected, rule: name }],
    )
  })
})
