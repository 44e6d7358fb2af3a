import { create, fromBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import type { Shown, ShownPage } from '../../src/engine/services.ts'
import { GroupListSchema, GroupSchema } from '../../src/gen/taproot/iam/v1/groups_pb.ts'
import type { Answer } from '../../src/transport/calls/call.ts'
import { gathered } from '../../src/transport/grpc/unary-calls.ts'
import { serve, type Served } from './harness/harness.ts'

const field = GroupListSchema.field.items

function pageOf(names: readonly string[]): ShownPage {
  // Encoders take any message.
  return { field, items: names.map((name) => ({ message: create(GroupSchema, { name }) as unknown as Shown['message'] })) }
}

/** Returns a list of these pages. After them comes `failure`, if there is one. */
function listOf(pages: readonly (readonly string[])[], failure?: Error): Answer {
  const [first = [], ...rest] = pages
  async function* more(): AsyncGenerator<ShownPage> {
    for (const page of rest) yield await Promise.resolve(pageOf(page))
    if (failure !== undefined) throw failure
  }
  return { message: create(GroupListSchema), page: pageOf(first), more: more() }
}

describe('lists without pages', () => {
  let served: Served
  let answer: () => Answer
  beforeAll(async () => {
    served = await serve(() => Promise.resolve(answer()))
  })
  afterAll(() => served.close())

  const grpc = (): ReturnType<Served['unary']> => served.unary('/taproot.iam.v1.Groups/List', new Uint8Array())
  const rest = (): Promise<Response> => fetch(`${served.url}/iam/v1/groups`)

  test.each([
    ['two pages', [['a', 'b'], ['c']]],
    ['an empty last page', [['a'], ['b'], []]],
    ['one page', [['a"\\']]],
  ])('REST and gRPC show all items of %s', async (_, pages) => {
    answer = () => listOf(pages)
    const response = await rest()
    expect(response.headers.get('content-type')).toMatch(/^application\/json/)
    const names = ((await response.json()) as { items: { name: string }[] }).items.map(({ name }) => name)
    expect(names).toEqual(pages.flat())
    const { code, message } = await grpc()
    expect(code).toBe(0)
    expect(fromBinary(GroupListSchema, message ?? new Uint8Array()).items.map(({ name }) => name)).toEqual(pages.flat())
  })

  test('REST cuts the connection if a later page fails, so that no client takes a part for the whole', async () => {
    answer = () => listOf([['a'], ['b']], new DomainError(14, 'no snapshot'))
    await expect(rest().then((response) => response.text())).rejects.toThrow()
  })

  test('gRPC answers with the error of a later page', async () => {
    answer = () => listOf([['a'], ['b']], new DomainError(14, 'no snapshot'))
    expect((await grpc()).code).toBe(14)
  })

  test('a gRPC list above the limit is code 9, and no further page is read', async () => {
    let read = 0
    async function* more(): AsyncGenerator<ShownPage> {
      for (; read < 10; read++) yield await Promise.resolve(pageOf(['x'.repeat(1000)]))
    }
    const list = { ...listOf([['a']]), more: more() }
    await expect(gathered(list, 2500)).rejects.toMatchObject({ code: 9, reason: 'LIST_TOO_LARGE' })
    expect(read).toBe(2)
    await expect(gathered(listOf([['x'.repeat(1000)], ['x'.repeat(1000)]]), 2500)).resolves.toMatchObject({ page: { items: [] } })
  })
})
