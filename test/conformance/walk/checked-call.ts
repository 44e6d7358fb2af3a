import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { isMapped, type ApiClient, type Options, type Reply } from '../../support/api-clients.ts'
import { freshName, ok } from '../../support/test-server.ts'
import type { Walked } from './cases/cases.ts'
import { isForgiving, movedTo, placeIn, pluralOf } from './cases/method-case.ts'
import { keysWrittenSince, revisionOf } from '../../support/store-changes.ts'
import { auditLines, missingSibling, swept, type World } from './world.ts'

/** One method over one transport. */
export interface Subject extends Walked {
  readonly world: World
  readonly apiClient: ApiClient
}

/** Checks one property of a method. */
export type Check = (subject: Subject) => Promise<void>

/** Texts that are not tokens. */
export const garbage = ['garbage', 'a.b.c', 'Bearer']
/** A readable token without a signature: `{"alg":"none"}.{"sub":"x"}.` */
export const unsigned = 'eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.'
/** A capability that no method needs: it only makes a caller known to the organisation. */
export const useless = 'libraries.python.list'

export function needs({ method, row }: Subject): string[] {
  return [...new Set([...method.capabilities, ...(row.grants ?? [])])]
}

export const uidText: unknown = expect.stringMatching(/^[0-9a-f]{40}/)

/** Expects one audit line for each change and each denial, and none for other reads, with caller, method and subject. */
export function expectAudited({ world, apiClient, method, access }: Subject, reply: Reply, requestId: string): void {
  const lines = auditLines(world.server, requestId).map(({ fields }) => fields)
  const isDenial = reply.code === 7 || reply.code === 16
  if (!isDenial && !(method.mutation && reply.code === 0)) {
    expect(lines.length).toBeLessThanOrEqual(method.mutation || reply.code !== 0 ? 1 : 0)
    return
  }
  const line = {
    outcome: isDenial ? 'denied' : isForgiving(method) ? expect.stringMatching(/^(?:done|failed|denied)$/) : 'done',
    method: `${method.service}/${method.rpc}`,
    transport: apiClient.name === 'rest' ? 'http' : 'grpc',
    // Before its token is verified, the caller is unknown.
    ...(access === 'external' || reply.code === 16 ? {} : { identity: uidText }),
    ...(isDenial ? { code: reply.code } : method.domain === 'catalogue' ? {} : { subject: uidText }),
  }
  expect(lines).toEqual([expect.objectContaining(line)])
}

/** Expects no header that calls the method outdated (RFC 8594, RFC 9745; docs/spec/conventions.md#versions). */
export function expectCurrent({ header }: Reply): void {
  expect([header('deprecation'), header('sunset'), header('warning')]).toEqual([undefined, undefined, undefined])
  expect(header('link') ?? '').not.toMatch(/deprecation|sunset|successor/i)
}

/** Makes the call and checks its log lines, which never contain the token, and its headers. */
export async function call(subject: Subject, request: JsonObject, options: Options = {}): Promise<Reply> {
  const { world, apiClient, name } = subject
  const requestId = freshName('walk')
  world.server.logs.length = 0
  const reply = await apiClient.call(name, request, { ...options, requestId })
  // The audit trail has what the answer of a forgiving delete hides, a moment later.
  if (isForgiving(subject.method) && reply.code === 0) await expect.poll(() => auditLines(world.server, requestId)).toHaveLength(1)
  expectAudited(subject, reply, requestId)
  expectCurrent(reply)
  const { token = '' } = options
  if (token.length > 20) expect(JSON.stringify(world.server.logs)).not.toContain(token.slice(-20))
  return reply
}

/** Makes a call that must change nothing. */
export async function refused(subject: Subject, request: JsonObject, options: Options): Promise<Reply> {
  const { server } = subject.world
  await swept(server)
  const before = await revisionOf(server.running.engine.store)
  const reply = await call(subject, request, options)
  if (subject.row.external?.refusalEnds !== true) expect(await keysWrittenSince(server.running.engine.store, before)).toEqual([])
  return reply
}

export function requestIdOf({ details }: Reply): string {
  return String((details['ErrorInfo']?.['metadata'] as JsonObject | undefined)?.['requestId']) // the shape of google.rpc.ErrorInfo
}

/** Returns a refusal without the parts that differ between calls, for comparison. */
export function shapeOf(reply: Reply, uid: string): unknown {
  const { code, message, details, httpStatus } = reply
  return JSON.parse(
    JSON.stringify({ code, message, details, httpStatus: httpStatus ?? 0 })
      .replaceAll(uid, '<uid>')
      .replaceAll(requestIdOf(reply), '<request>'),
  )
}

/** Returns the audit lines of the refused call. */
export function auditOf({ world }: Subject, reply: Reply): unknown[] {
  return auditLines(world.server, requestIdOf(reply)).map(({ fields }) => fields)
}

export function listed(subject: Subject, reply: Reply): string[] {
  return ((ok(reply)[pluralOf(subject.method)] ?? []) as JsonObject[]).map(({ uid, id, group }) => String(isMapped(subject.method) ? (id ?? group) : uid)) // a list answer
}

/** Expects code 7 with the missing capabilities and their place: the subject of the request, or the place of a grant. */
export function expectDenied({ method, world }: Subject, request: JsonObject, denial: { reply: Reply; missing: readonly string[] }): void {
  const { reply, missing } = denial
  expect(reply.code, reply.message).toBe(7)
  expect(reply.details['ErrorInfo']).toMatchObject({ reason: 'PERMISSION_DENIED' })
  const { missingCapabilities, scope } = reply.details['ErrorInfo']?.['metadata'] as JsonObject // the shape of google.rpc.ErrorInfo
  expect(String(missingCapabilities).split(',').sort()).toEqual([...missing].sort())
  if (missing.every((name) => method.capabilities.includes(name))) expect(scope).toBe(placeIn(method, request))
  else expect([world.group, world.subgroup]).toContain(scope)
}

/** Expects the same answer about an existing record as about a missing one, word for word. */
export async function expectHidden(subject: Subject, request: JsonObject, token: string): Promise<void> {
  const { method } = subject
  const uid = placeIn(method, request)
  const missing = missingSibling(uid)
  const found = await refused(subject, request, { token })
  expect(found.code, found.message).toBe(isForgiving(method) ? 0 : 5)
  if (isForgiving(method)) return
  expect(found.details['ResourceInfo']).toMatchObject({ resourceName: uid })
  // The log contains what the answer hides.
  await expect.poll(() => auditOf(subject, found)).toEqual([expect.objectContaining({ outcome: 'denied', identity: uidText, subject: uid, code: 5 })])
  const absent = await refused(subject, movedTo(method, request, missing), { token })
  expect(shapeOf(found, uid)).toEqual(shapeOf(absent, missing))
}
