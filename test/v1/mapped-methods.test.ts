import { create } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { methodName } from '../../src/base/schema/method.ts'
import { methods } from '../../src/base/schema/schema.ts'
import type { Services } from '../../src/engine/services.ts'
import { ListGroupsRequestSchema as ListGroupsV1, type Group } from '../../src/gen/taproot/iam/v1/groups_pb.ts'
import { GroupSchema, ListGroupsResponseSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import type { Answer, Call, Dispatch } from '../../src/transport/calls/call.ts'
import { mappedMethods, withVersion1 } from '../../src/v1/index.ts'

/** Services of version 1 that have handlers of their own. */
const unmapped = /^taproot\.(?:auth|oidc)\.v1\./

describe('methods of version 1', () => {
  test('each method of version 1 is answered by one of version 2', () => {
    const all = methods.filter(({ service }) => service.includes('.v1.') && !unmapped.test(service))
    expect([...mappedMethods.keys()].map(methodName).toSorted()).toEqual(all.map(methodName).toSorted())
  })

  test.each([...mappedMethods].map(([row, mapped]) => [methodName(row), row, mapped] as const))(
    '%s has the annotations of its method of version 2',
    (_, row, mapped) => {
      const { scope, capabilities, kind, event, mutation, domain } = mapped.method
      expect({ ...row }).toMatchObject({ scope, capabilities, kind, mutation, domain })
      expect(row.event).toEqual(event)
      expect(row.maxRequestBytes).toBeGreaterThanOrEqual(mapped.method.maxRequestBytes)
    },
  )

  test('other work runs between the pages of a list', async () => {
    const pages = 20
    const [list] = [...mappedMethods.keys()].filter((row) => methodName(row) === 'taproot.iam.v1.Groups/List')
    const pageAt = (at: number): Answer => ({
      message: create(ListGroupsResponseSchema),
      page: { field: ListGroupsResponseSchema.field.groups, items: [{ message: create(GroupSchema, { uid: `${at}` }) }] },
      ...(at === pages ? {} : { next: () => Promise.resolve(pageAt(at + 1)) }),
    })
    const dispatch: Dispatch = async (call) => {
      await call.decode()
      return pageAt(1)
    }
    // The list uses nothing else of a call, and no services.
    const call = { method: list, headers: {}, decode: () => Promise.resolve({ message: create(ListGroupsV1) }) } as unknown as Call
    const answer = await withVersion1({ dispatch, services: {} as Services })(call)
    let turns = 0
    const turn = (): void => void (turns++ < 10 * pages && setImmediate(turn))
    turn()
    const seen: string[] = (answer.page?.items ?? []).map(({ message }) => String((message as unknown as Group).id)) // an item is a group of version 1
    for await (const { items } of answer.more ?? []) for (const { message } of items) seen.push(String((message as unknown as Group).id)) // see above
    expect(seen).toEqual(Array.from({ length: pages }, (_, at) => `${at + 1}`))
    expect(turns).toBeGreaterThanOrEqual(pages)
  })
})
