import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect } from 'vitest'
import type { ApiClient, Options, Reply } from '../../support/api-clients.ts'
import { schemaName } from '../../support/field-names.ts'
import { ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { keepChosen, namesAdded } from '../../support/tier.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { TestClock } from './test-clock.ts'

/** What the tests of one store and one transport work with. One server per store: what a test makes must have names of its own. */
export interface Spec {
  readonly store: 'sqlite' | 'etcd'
  readonly transport: 'rest' | 'grpc'
  readonly clock: TestClock
  readonly server: TestServer
  readonly apiClient: ApiClient
  /** Registers tests that exist over this transport alone. */
  only(transport: Spec['transport'], register: () => void): void
  /** Calls over the transport under test. */
  call(rpc: string, request: JsonObject, options?: Options): Promise<Reply>
  /** The body of a call that must succeed. */
  ok(rpc: string, request: JsonObject, options?: Options): Promise<JsonObject>
}

/** How a suite differs from the usual. */
export interface SuiteOptions {
  /** `TAPROOT_*` settings of its servers. */
  readonly env?: Readonly<Record<string, string>>
  /** See TestServerOptions. */
  readonly keepsContent?: boolean
  /** See TestServerOptions. */
  readonly leads?: boolean
  /** Both by default. */
  readonly transports?: readonly Spec['transport'][]
  /** True where each test runs on every store and over every transport: tests of transports, errors, lists and retries. */
  readonly everywhere?: boolean
}

const stores = ['sqlite', 'etcd'] as const

/**
 * Runs each test of `body` on one of {sqlite, etcd} x {rest, grpc}, and on another one after the source tree changes.
 * All combinations run with `everywhere`, in the full tier and with TAPROOT_SPEC_ALL=1. There is one whole server per store.
 */
export function specSuite(
  title: string,
  body: (spec: Spec) => void,
  { env = {}, keepsContent = true, leads = true, transports = ['rest', 'grpc'], everywhere = false }: SuiteOptions = {},
): void {
  describeOnStores(title, (store) => {
    const clock = new TestClock()
    let running: TestServer | undefined
    const server = (): TestServer => {
      if (running === undefined) throw new Error('no server yet: only tests may use it')
      return running
    }
    beforeAll(async () => {
      running = await startTestServer({ store, clock, env, keepsContent, leads })
    })
    afterAll(() => running?.stop())
    describe.each(transports)('over %s', (transport) => {
      const ofOneTransport = new Set<string>()
      body({
        store,
        transport,
        clock,
        get server() {
          return server()
        },
        get apiClient() {
          return server()[transport]
        },
        only(wanted, register) {
          if (wanted === transport) for (const name of namesAdded(register)) ofOneTransport.add(name)
        },
        call: (rpc, request, options) => server()[transport].call(rpc, request, options),
        ok: async (rpc, request, options) => ok(await server()[transport].call(rpc, request, options)),
      })
      if (everywhere) return
      const waysOf = (name: string): string[] => (ofOneTransport.has(name) ? [transport] : transports).flatMap((over) => stores.map((on) => `${on} ${over}`))
      keepChosen({ suite: title, way: `${store} ${transport}`, waysOf })
    })
  })
}

/** A suite whose tests each run on every store and over every transport: of transports, errors, lists and retries. */
export function specSuiteEverywhere(title: string, body: (spec: Spec) => void, options: SuiteOptions = {}): void {
  specSuite(title, body, { ...options, everywhere: true })
}

/** docs/spec/errors.md#http-statuses */
const httpStatuses: Readonly<Record<number, number>> = { 3: 400, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 12: 501, 16: 401 }

/** docs/spec/errors.md#error-info: the code's own name where nothing narrower is defined. */
const reasons: Readonly<Record<number, string>> = {
  3: 'INVALID_ARGUMENT',
  5: 'NOT_FOUND',
  6: 'ALREADY_EXISTS',
  7: 'PERMISSION_DENIED',
  8: 'RESOURCE_EXHAUSTED',
  9: 'FAILED_PRECONDITION',
  10: 'ABORTED',
  16: 'UNAUTHENTICATED',
}

/** What a failing call must say. */
export interface Failure {
  /** Of a precondition; that of the first violation by default. */
  readonly message?: string
  readonly code: number
  /** Of the method; any that this part serves by default. */
  readonly domain?:
    'advisory.taproot.dev' | 'audit.taproot.dev' | 'iam.taproot.dev' | 'registry.taproot.dev' | 'vulnerabilities.taproot.dev' | 'libraries.taproot.dev'
  /** One text, or a narrower one (docs/errors.md); the code's own name by default. */
  readonly reason?: string | RegExp
  /** The failing fields of code 3 in the schema's names, in order. */
  readonly fields?: readonly (string | RegExp)[]
  /** The violation types of code 9, in order. */
  readonly violations?: readonly string[]
}

function list(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? (value as JsonObject[]) : []
}

/** The field violations of an error, in their order. */
export function fieldViolations(reply: Reply): { field: string; description: string }[] {
  return list(reply.details['BadRequest']?.['fieldViolations']) as { field: string; description: string }[]
}

/** The precondition violations of an error, in their order. */
export function preconditionViolations(reply: Reply): { type: string; description: string }[] {
  return list(reply.details['PreconditionFailure']?.['violations']) as { type: string; description: string }[]
}

/** Checks an error and all that is true of every error: ErrorInfo with domain and request id, the HTTP status, the message form (docs/spec/errors.md#error-shape). */
export function expectFailure(reply: Reply, expected: Failure): void {
  const { code } = expected
  expect({ code: reply.code, message: reply.message, details: reply.details }).toMatchObject({ code })
  if (reply.httpStatus !== undefined) expect(reply.httpStatus).toBe(httpStatuses[code])
  const info = reply.details['ErrorInfo']
  expect(info?.['domain']).toMatch(expected.domain ?? /^(?:auth|iam|oidc|platform|registry|vulnerabilities)\.taproot\.dev$/)
  expect(info?.['reason']).toMatch(expected.reason ?? reasons[code] ?? '')
  const requestId = (info?.['metadata'] as JsonObject | undefined)?.['requestId']
  expect(requestId).toMatch(/./)
  expect(reply.header('x-request-id')).toBe(requestId)
  expectDetails(reply, expected)
}

function expectDetails(reply: Reply, expected: Failure): void {
  if (expected.fields !== undefined) {
    const found = fieldViolations(reply)
    const transport = reply.httpStatus === undefined ? 'grpc' : 'rest'
    expect(found.map(({ field }) => schemaName(field, transport))).toEqual(
      expected.fields.map((field) => (typeof field === 'string' ? field : (expect.stringMatching(field) as unknown))),
    )
    expect(reply.message).toBe(`Invalid argument: ${found[0]?.field}: ${found[0]?.description}`)
  }
  if (expected.violations !== undefined) {
    const found = preconditionViolations(reply)
    expect(found.map(({ type }) => type)).toEqual(expected.violations)
    expect(reply.message).toBe(expected.message ?? `Precondition failed: ${found[0]?.description}`)
  }
  if (expected.code === 5)
    expect(reply.details['ResourceInfo']).toMatchObject({ resourceType: expect.any(String) as unknown, description: expect.stringMatching(/./) as unknown })
}

/** A record's uid. */
export function uidOf(record: JsonObject): string {
  return String(record['uid'])
}

/** A record's etag. */
export function etagOf(record: JsonObject): string {
  return String(record['etag'])
}

/** The records of a list answer. */
export function itemsOf(body: JsonObject, plural: string): JsonObject[] {
  expect(Array.isArray(body[plural])).toBe(true)
  return list(body[plural])
}
