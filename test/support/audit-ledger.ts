import type { JsonObject } from '@bufbuild/protobuf'
import { methodName } from '../../src/base/schema/method.ts'
import { resources } from '../../src/base/schema/schema.ts'
import { methodOf, type ApiClient, type Reply } from './api-clients.ts'
import type { LogLine, TestServer } from './test-server.ts'

/** Why a call leaves an event or none (docs/audit.md#what-leaves-an-event). */
type AuditClass =
  | 'a change'
  | 'a change that failed'
  | 'a change of a missing record'
  | 'a delete that also succeeds without a record'
  | 'a denial'
  | 'a denial of a concealed record'
  | 'a read'
  | 'a read of a missing record'
  | 'a read that failed'

/** The outcomes of the events that a call of each class may leave; empty for no event. A missing record in a foreign place counts as concealed. */
const wanted: Readonly<Record<AuditClass, readonly string[]>> = {
  'a change': ['done'],
  'a change that failed': ['failed'],
  'a denial': ['denied'],
  'a denial of a concealed record': ['denied'],
  'a change of a missing record': ['failed', 'denied'],
  'a delete that also succeeds without a record': ['done', 'failed', 'denied'],
  'a read': [''],
  'a read of a missing record': ['', 'denied'],
  'a read that failed': [''],
}

/** A request id that the server chose: other clients of a test may use one id twice. */
const uuid = /^[0-9a-f]{8}-[0-9a-f-]{27}$/

interface Noted {
  readonly class: AuditClass
  readonly name: string
  readonly code: number
}

/** Returns true if a refused call named an existing record of its kind. A kind that the schema lacks stands for all kinds. */
function recordExists({ running }: TestServer, { resourceType, resourceName }: JsonObject): boolean {
  const { tables } = running.engine.cache
  const kind = String(resourceType).replace(/^.*\//, '')
  return [...resources.keys()].some(
    (one) => (one === kind || !resources.has(kind)) && tables.hasKind(one) && tables.get(one, String(resourceName)) !== undefined,
  )
}

function classOf(server: TestServer, rpc: string, { code, details }: Reply): AuditClass {
  const { mutation, service } = methodOf(rpc)
  if (code === 0 && /\/Delete/.test(rpc) && !/\.v2\.|\.auth\./.test(service)) return 'a delete that also succeeds without a record'
  if (code === 0) return mutation ? 'a change' : 'a read'
  if (code === 7 || code === 16) return 'a denial'
  if (code === 5 && recordExists(server, details['ResourceInfo'] ?? {})) return 'a denial of a concealed record'
  if (code === 5) return mutation ? 'a change of a missing record' : 'a read of a missing record'
  return mutation ? 'a change that failed' : 'a read that failed'
}

/** The calls of a server's clients, and what they must leave in the audit trail. */
export interface AuditLedger {
  /** The server with clients that give each call a request id of its own. Answers show the id that was asked for. */
  readonly server: TestServer
  /** Returns the number of calls of each class. */
  counts(): Readonly<Partial<Record<AuditClass, number>>>
  /** Returns all differences between calls and events: class, method, code and outcomes found. */
  deviations(): readonly string[]
}

/** Counts the calls of a server's clients. */
export function auditLedger(bare: TestServer): AuditLedger {
  const calls = new Map<string, Noted>()
  const noting = (client: ApiClient): ApiClient => ({
    ...client,
    async call(rpc, request, options = {}) {
      const requestId = `ledger-${calls.size + 1}-${client.name}`
      calls.set(requestId, { class: 'a read', name: rpc, code: -1 })
      const reply = await client.call(rpc, request, { ...options, requestId })
      calls.set(requestId, { class: classOf(bare, rpc, reply), name: methodName(methodOf(rpc)), code: reply.code })
      return { ...reply, raw: reply.raw.replaceAll(requestId, options.requestId ?? 'ledger') }
    },
  })
  return {
    server: { ...bare, rest: noting(bare.rest), grpc: noting(bare.grpc) },
    counts: () => Object.fromEntries(Object.entries(Object.groupBy(calls.values(), (call) => call.class)).map(([name, those]) => [name, those.length])),
    deviations() {
      const outcomes = outcomesByRequest(bare.logs)
      const ofCalls = [...calls].flatMap(([requestId, noted]) => {
        const found = outcomes.get(requestId)?.join(', ') ?? ''
        return wanted[noted.class].includes(found) ? [] : [`${noted.class}: ${noted.name} with code ${noted.code} has the events [${found}]`]
      })
      const twice = [...outcomes].filter(([requestId, those]) => uuid.test(requestId) && those.length > 1)
      return [...ofCalls, ...twice.map(([requestId, those]) => `the request ${requestId} has the events [${those.join(', ')}]`)]
    },
  }
}

/** Returns the outcomes of all events by request id. Events without a request id are not of requests. */
function outcomesByRequest(logs: readonly LogLine[]): ReadonlyMap<string, string[]> {
  const found = new Map<string, string[]>()
  for (const { fields } of logs) {
    const { audit, requestId, outcome } = fields
    if (audit !== true || typeof requestId !== 'string') continue
    const those = found.get(requestId) ?? []
    found.set(requestId, [...those, String(outcome)])
  }
  return found
}
