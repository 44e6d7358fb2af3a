import { describe, expect, test } from 'vitest'
import { createEndpoints, type EndpointOptions } from '../../../src/iam/signin/web/endpoints.ts'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { methods } from '../../../src/base/schema/schema.ts'
import { methodName } from '../../../src/base/schema/method.ts'
import { handlers } from '../../../src/domains/handlers.ts'
import { mappedMethods } from '../../../src/v1/index.ts'
import { cases, walk } from './cases/cases.ts'
import { aspects, capabilityChecks } from './capability-checks.ts'
import { badInputsOf } from './common-bad-inputs.ts'
import { constraintsOf } from './constraints.ts'
import { caseName, effectOf } from './cases/method-case.ts'

/** Handlers are closures over their options: this test reads only their names. */
const apiClientNames = new Set(createEndpoints({} as EndpointOptions).keys())

function isHandled(method: MethodRow): boolean {
  return handlers.has(method) || apiClientNames.has(methodName(method)) || mappedMethods.has(method)
}

describe('the test tables cover the schema', () => {
  test('every method has a handler', () => {
    expect(methods.filter((method) => !isHandled(method)).map(caseName)).toEqual([])
  })

  test.each(methods)('$rpc has a row in the tables', (method) => {
    expect(Object.keys(cases)).toContain(caseName(method))
  })

  test.each(walk)('$name has a handler, a test of every capability check and a test of bad input', ({ method, access, row }) => {
    expect(isHandled(method)).toBe(true)
    expect(Object.keys(capabilityChecks[access])).toEqual(expect.arrayContaining([...aspects]))
    expect(badInputsOf(method, row)).not.toEqual([])
  })

  test.each(walk)('$name has bad input for each constraint of the schema, and for no other', ({ method, row }) => {
    const broken = badInputsOf(method, row).flatMap(({ breaks = [] }) => breaks)
    // Required uids of reads: over REST a path without one is another method.
    const constraints = [...constraintsOf(method.input)].filter((constraint) => !(effectOf(method) === 'get' && constraint === 'uid:required'))
    expect([...new Set(broken)].sort()).toEqual(constraints.sort())
  })
})
