import type { DescMessage, JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { mappedMethods } from '../../../src/v1/index.ts'
import type { Reply } from '../../support/api-clients.ts'
import { schemaName } from '../../support/field-names.ts'
import type { TestServer } from '../../support/test-server.ts'
import { chosenFor, runsAll } from '../../support/tier.ts'
import { walk, type Walked } from './cases/cases.ts'
import { expectCurrent } from './checked-call.ts'
import { badInputsOf } from './common-bad-inputs.ts'
import type { BadInput } from './cases/method-case.ts'
import { rawGrpc, rawRest } from './raw-call.ts'
import { keysWrittenSince, revisionOf } from '../../support/store-changes.ts'
import { auditLines, makeWorld, startWalkServer, swept, tokenWith, type World } from './world.ts'
import { describeOnStoresOfTier } from '../../support/parts/require-part.ts'

/** A refusal, in the form for comparison. */
interface Refusal {
  readonly code: number
  readonly fields: readonly string[]
  readonly httpStatus: number | undefined
}

/**
 * Removes indexes and map keys, which do not matter here: `requests[0].role_binding` -> `requests.role_binding`, `claim_match.claims["x"]` ->
 * `claim_match.claims`.
 */
function withoutKeys(field: string): string {
  return field.replaceAll(/\[(?:\d+|"[^"]*")\]/g, '')
}

function fieldsOf(reply: Reply): string[] {
  const violations = (reply.details['BadRequest']?.['fieldViolations'] ?? []) as JsonObject[] // the shape of google.rpc.BadRequest
  return violations.map(({ field }) => String(field))
}

/** Returns the names of all fields of a message, at any depth. */
function namesIn(desc: DescMessage, names = new Set<string>(), seen = new Set<DescMessage>()): Set<string> {
  if (seen.has(desc)) return names
  seen.add(desc)
  for (const { name, message } of desc.fields) {
    names.add(name)
    if (message !== undefined) namesIn(message, names, seen)
  }
  return names
}

/** Returns the names in an error of a method of version 1 that are names of version 2 only. */
function foreignNames(method: MethodRow, texts: readonly string[]): string[] {
  const own = namesIn(method.input)
  const other = namesIn(mappedMethods.get(method)?.method.input ?? method.input)
  return texts.flatMap((text) => withoutKeys(text).split('.')).filter((name) => other.has(name) && !own.has(name))
}

/** Returns the names of fields that the texts of an error have in backticks. */
function quotedIn({ message, details }: Reply): string[] {
  const violations = (details['BadRequest']?.['fieldViolations'] ?? []) as JsonObject[] // the shape of google.rpc.BadRequest
  const texts = [message, ...violations.map(({ description }) => String(description))]
  return texts.flatMap((text) => [...text.matchAll(/`([A-Za-z_.]+)`/g)].map(([, name = '']) => name))
}

/** Returns the kind of rule that a bad input breaks, or its expected code. */
function ruleOf({ breaks: [broken] = [], code = 3 }: BadInput): string {
  return broken?.slice(broken.lastIndexOf(':') + 1) ?? `code ${code}`
}

/**
 * The bad inputs of a method over a transport. Over REST these are all.
 * Over gRPC they are those that only gRPC can carry or that the schema does not describe, and one for each rule.
 * Behind the transports, the same code refuses all of them. The full tier has all over both.
 */
function inputsOver(transport: 'rest' | 'grpc', { name, method, row }: Walked): readonly BadInput[] {
  const all = badInputsOf(method, row).filter(({ only = transport }) => only === transport)
  if (transport === 'rest' || runsAll) return all
  const byRule = Map.groupBy(all, (bad) => (bad.only === undefined && bad.raw === undefined ? ruleOf(bad) : 'of the transport'))
  return [...byRule].flatMap(([rule, inputs]) => (rule === 'of the transport' ? inputs : (chosenFor(`${name} ${rule}`, inputs) ?? [])))
}

describeOnStoresOfTier('bad inputs', (store) => {
  describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
    let server: TestServer
    let world: World
    beforeAll(async () => {
      server = await startWalkServer(store)
      world = await makeWorld(server)
    })
    afterAll(() => server.stop())

    async function refusal(walked: Walked, bad: BadInput, call: { request: JsonObject; token: string }): Promise<Refusal> {
      if (bad.raw !== undefined) {
        const answer = await (transport === 'rest' ? rawRest : rawGrpc)(world, { method: walked.method, change: bad.raw, ...call })
        return { ...answer, fields: answer.fields.map((field) => schemaName(field, transport)) }
      }
      const reply = await server[transport].call(walked.name, call.request, { ...bad.options, token: call.token, requestId: 'bad-input' })
      expectCurrent(reply)
      // A missing record is named in the error; a path that nothing serves would not be.
      if (reply.code === 5)
        expect(reply.details['ResourceInfo']).toMatchObject({
          resourceType: expect.stringMatching(/^[a-z]+\.taproot\.dev\//),
          resourceName: expect.any(String),
        })
      expect(reply.details['ErrorInfo']).toMatchObject({ reason: expect.any(String), metadata: { requestId: 'bad-input' } })
      const fields = fieldsOf(reply).map((field) => schemaName(field, transport))
      const quoted = quotedIn(reply).map((name) => schemaName(name, transport))
      expect(foreignNames(walked.method, [...fields, ...quoted])).toEqual([])
      return { code: reply.code, fields, httpStatus: reply.httpStatus }
    }

    describe.each(walk)('$name refuses bad input:', (walked) => {
      const { method, row } = walked
      let valid: JsonObject
      let token: string
      beforeAll(async () => {
        valid = await row.request(world)
        token = await (row.caller?.(world) ?? tokenWith(world, [...method.capabilities, ...(row.grants ?? [])]))
      })

      test.each(inputsOver(transport, walked))('$what', async (bad) => {
        const request = (await bad.request?.(valid, world)) ?? valid
        const caller = (await bad.caller?.(world)) ?? token
        await swept(server)
        const before = await revisionOf(server.running.engine.store)
        server.logs.length = 0
        const answer = await refusal(walked, bad, { request, token: caller })
        expect(answer).toMatchObject({ code: bad.code ?? 3, ...(transport === 'rest' && bad.httpStatus !== undefined ? { httpStatus: bad.httpStatus } : {}) })
        if (bad.fields !== undefined) expect([...new Set(answer.fields.map(withoutKeys))]).toEqual(bad.fields)
        expect(await keysWrittenSince(server.running.engine.store, before)).toEqual([])
        expect(server.logs.filter(({ level }) => level === 'error')).toEqual([])
      })
    })

    // docs/spec/conventions.md#order-of-checks: token, reach, capability, only then validation.
    const constrained = walk.flatMap((walked) => {
      // Places in a list are looked up after validation.
      const bad =
        walked.access === 'scoped' && !(walked.method.verb === 'custom' && walked.method.scope === 'unscoped')
          ? walked.row.badInputs.find(({ breaks = [], only }) => only === undefined && breaks.length > 0)
          : undefined
      return bad === undefined ? [] : [{ ...walked, bad }]
    })
    test.each(constrained)('$name checks the caller before the input', async ({ name, method, row, bad }) => {
      const request = await bad.request?.(await row.request(world), world)
      const codeFor = async (token: string | undefined): Promise<number> => {
        const reply = await server[transport].call(name, request ?? {}, { token, requestId: 'order' })
        return reply.code
      }
      expect(await codeFor(undefined)).toBe(16)
      expect(await codeFor(world.other.token)).toBe(5)
      expect(await codeFor(await tokenWith(world, []))).toBe(7)
      expect(await codeFor(await tokenWith(world, [...method.capabilities, ...(row.grants ?? [])]))).toBe(bad.code ?? 3)
      expect(auditLines(server, 'order').length).toBeGreaterThanOrEqual(2)
    })
  })
})
