import { create } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { MethodRow } from '../../src/base/schema/method.ts'
import { methods } from '../../src/base/schema/schema.ts'
import type { Context, Services } from '../../src/engine/services.ts'
import { ListTagsRequestSchema } from '../../src/gen/taproot/registry/v2/tags_pb.ts'
import { CallContext } from '../../src/transport/calls/call-context.ts'
import type { Call } from '../../src/transport/calls/call.ts'

function methodNamed(name: string): MethodRow {
  const found = methods.find(({ rpc }) => rpc === name)
  if (found === undefined) throw new Error(`no method ${name}`)
  return found
}

test('a copy of a context keeps all that it does not change', () => {
  const { signal } = new AbortController()
  const headers = { requestId: 'r-1', traceparent: 'trace', ifMatch: 'one', ifNoneMatch: 'two', idempotencyKey: 'key', forceOwnership: 'true' }
  // Casts: the copy reads no other member of the call, and verifies nothing.
  const call = { method: methodNamed('ListEolTags'), headers, validateOnly: true, signal, also: () => ({}) } as unknown as Call
  const options = { services: {} as Services, authenticator: undefined as never, addressLimiter: undefined }
  const message = create(ListTagsRequestSchema)
  let checks = 0
  const made = new CallContext(options, call, { caller: undefined, decoded: { message, present: ['name'] }, authorize: () => void (checks += 1) })
  const copy = made.with({ method: methodNamed('ListTags') })
  expect(copy.method.rpc).toBe('ListTags')
  const members = Object.entries(Object.getOwnPropertyDescriptors(CallContext.prototype)).filter(([, { get }]) => get !== undefined)
  expect(members.length).toBeGreaterThan(8)
  for (const [name] of members) {
    const value = made[name as keyof Context] // a getter of the class
    expect(value, name).toBeDefined()
    expect(copy[name as keyof Context], name).toBe(value)
  }
  copy.authorize()
  expect(checks).toBe(1)
  let others = 0
  copy.with({ authorize: () => void (others += 1) }).authorize()
  expect([checks, others]).toEqual([1, 1])
})
