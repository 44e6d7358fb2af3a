import { fromBinary, fromJson, toBinary } from '@bufbuild/protobuf'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methodName, type MethodRow } from '../../../../src/base/schema/method.ts'
import { methods } from '../../../../src/base/schema/schema.ts'
import { TermsNotAcceptedDetailSchema } from '../../../../src/gen/taproot/iam/v2/terms_pb.ts'
import type { TestServer } from '../../../support/test-server.ts'
import { walk, type Walked } from '../cases/cases.ts'
import { differences, methodDifferences } from '../v1/differences.ts'
import { messagesOf } from '../v1/descriptors.ts'
import { unknownNumbers } from '../v1/wire-client.ts'
import { v2Enums } from '../v1/wire-enums.ts'
import { makeWorld, startWalkServer, tokenWith, type World } from '../world.ts'
import { wireMessages, wireMethods } from './wire-v2.ts'
import { describeOnStoresOfTier } from '../../../support/parts/require-part.ts'

const message = messagesOf(wireMessages, v2Enums)

/** Returns the name of a method in the table: `iam.GroupsService/ListGroups`. */
function tableName(method: MethodRow): string {
  return methodName(method).replace(/^taproot\.(\w+)\.v2\./, '$1.')
}

describe('the schema of version 2', () => {
  test('it has the methods, numbers, names and types of the public clients, and numbers of its own from 1000', () => {
    const comparison = { table: wireMessages, enums: v2Enums, compared: new Set<string>() }
    const served = new Map(methods.map((method) => [tableName(method), method]))
    const found = Object.entries(wireMethods).flatMap(([name, wire]) => {
      const method = served.get(name)
      return method === undefined ? [`${name}: is not served`] : [...methodDifferences(method, wire, comparison)]
    })
    expect(found.filter((difference) => !/: not in the contract: (?:1\d{3} \w+ \S+|\w+ 1\d{3})$/.test(difference))).toEqual([])
    // No method names the detail of an error.
    expect([...differences(TermsNotAcceptedDetailSchema, 'TermsNotAcceptedDetail', comparison)]).toEqual([])
    // No message and no enum of the tables is left out.
    const compared = new Set([...comparison.compared].map((pair) => pair.split(' ')[1]))
    expect(Object.keys({ ...wireMessages, ...v2Enums }).filter((name) => !compared.has(name))).toEqual([])
  })
})

describeOnStoresOfTier('messages of version 2 clients', (store) => {
  let server: TestServer
  let world: World
  let client: Client
  beforeAll(async () => {
    server = await startWalkServer(store)
    world = await makeWorld(server)
    client = new Client(`127.0.0.1:${server.config.api.port}`, credentials.createInsecure())
  })
  afterAll(async () => {
    client.close()
    await server.stop()
  })

  const same = (bytes: Buffer): Buffer => bytes

  async function answerOf({ method, row }: Walked, version: string): Promise<Buffer> {
    const { input = '' } = wireMethods[tableName(method)] ?? {}
    // The request of the walk, as a client writes it that knows the table alone.
    const request = fromBinary(message(input), toBinary(method.input, fromJson(method.input, await row.request(world))))
    expect(unknownNumbers(message(input), request)).toEqual([])
    const token = (await row.caller?.(world)) ?? (await tokenWith(world, [...method.capabilities, ...(row.grants ?? [])]))
    const metadata = new Metadata()
    metadata.set('authorization', `Bearer ${token}`)
    const path = `/${methodName(method).replace(/^taproot\.(\w+)\.v2\./, `chainguard.platform.$1.${version}.`)}`
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
    client.makeUnaryRequest(path, same, same, Buffer.from(toBinary(message(input), request)), metadata, (error, bytes) =>
      error === null && bytes !== undefined ? resolve(bytes) : reject(error ?? new Error('no message')),
    )
    return promise
  }

  describe.each(['v2', 'v2beta1'])('over gRPC, in the packages of the API family with %s', (version) => {
    const rows = walk.filter(({ method }) => wireMethods[tableName(method)] !== undefined)

    test('each method of the table is called', () => {
      expect(rows.map(({ method }) => tableName(method)).toSorted()).toEqual(Object.keys(wireMethods).toSorted())
    })

    test.each(rows.map((row) => [tableName(row.method), row] as const))('%s', async (name, row) => {
      const { output = '' } = wireMethods[name] ?? {}
      const bytes = await answerOf(row, version)
      const answer = fromBinary(message(output), bytes)
      expect(unknownNumbers(message(output), answer)).toEqual([])
      // Nothing is lost: what the table does not know is kept as it is.
      const { output: ours } = row.method
      expect(fromBinary(ours, toBinary(message(output), answer))).toEqual(fromBinary(ours, bytes))
    })
  })
})
