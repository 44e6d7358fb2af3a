import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createEndpoints, type EndpointOptions } from '../../../src/iam/signin/web/endpoints.ts'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { isServedDomain, methods } from '../../../src/base/schema/schema.ts'
import { methodName } from '../../../src/base/schema/method.ts'
import { handlers } from '../../../src/domains/handlers.ts'
import { kinds } from '../../../src/domains/kinds.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { cases, walk } from './cases/cases.ts'
import { aspects, capabilityChecks } from './capability-checks.ts'
import { badInputsOf } from './common-bad-inputs.ts'
import { constraintsOf } from './constraints.ts'
import { caseName } from './cases/method-case.ts'
import { routedRequest } from './routed-request.ts'

/** Handlers are closures over their options: this test reads only their names. */
const apiClientNames = new Set(createEndpoints({} as EndpointOptions).keys())

function isHandled(method: MethodRow): boolean {
  return handlers.has(method) || apiClientNames.has(methodName(method))
}

/** Packages of the schema whose methods this server serves completely. */
const servedPackages = ['taproot.auth.v1', 'taproot.iam.v2', 'taproot.libraries.v2', 'taproot.oidc.v1', 'taproot.ping.v2', 'taproot.vulnerabilities.v2']

function packageOf({ service }: MethodRow): string {
  return service.slice(0, service.lastIndexOf('.'))
}

describe('the test tables cover the schema', () => {
  test.each(servedPackages)('every method of %s has a handler', (name) => {
    const found = methods.filter((method) => packageOf(method) === name)
    expect(found).not.toEqual([])
    expect(found.filter((method) => !isHandled(method)).map(caseName)).toEqual([])
  })

  test('a domain is offered by reflection and the command line exactly if its methods have handlers', () => {
    const wrong = methods.filter((method) => isServedDomain(method.domain) !== isHandled(method))
    expect(wrong.map(caseName)).toEqual([])
  })

  test.each(methods.filter(({ kind = '' }) => kinds.has(kind)))('$rpc, of a served kind of record, has a handler', (method) => {
    expect(isHandled(method)).toBe(true)
  })

  test.each(methods.filter(isHandled))('$rpc, which has a handler, has a row in the tables', (method) => {
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
    const constraints = [...constraintsOf(method.input)].filter((constraint) => !(method.verb === 'get' && constraint === 'uid:required'))
    expect([...new Set(broken)].sort()).toEqual(constraints.sort())
  })
})

describe('a method without a handler', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ store: 'sqlite' })
  })
  afterAll(() => server.stop())

  const unhandled = methods.filter((method) => !isHandled(method)).map((method) => ({ name: caseName(method), method }))
  describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
    test.skipIf(unhandled.length === 0).each(unhandled)('$name is answered with code 12', async ({ name, method }) => {
      const reply = await server[transport].call(name, routedRequest(method), { token: await server.operatorToken() })
      expect({ code: reply.code, reason: reply.details['ErrorInfo']?.['reason'] }).toEqual({ code: 12, reason: 'UNIMPLEMENTED' })
      if (transport === 'rest') expect(reply.httpStatus).toBe(501)
    })
  })
})
