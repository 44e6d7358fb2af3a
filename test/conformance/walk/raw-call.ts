import { fromBinary, fromJson, toBinary, type JsonObject } from '@bufbuild/protobuf'
import { anyUnpack } from '@bufbuild/protobuf/wkt'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { registry } from '../../../src/base/schema/schema.ts'
import { BadRequestSchema } from '../../../src/gen/google/rpc/error_details_pb.ts'
import { StatusSchema } from '../../../src/gen/google/rpc/status_pb.ts'
import { camelCase, type RawChange } from './cases/method-case.ts'
import type { World } from './world.ts'

/** The answer to a raw call. */
export interface RawReply {
  readonly code: number
  readonly fields: readonly string[]
  readonly httpStatus: number | undefined
}

/** A call that does not use the generated clients. */
export interface RawCall {
  readonly method: MethodRow
  readonly request: JsonObject
  readonly token: string
  readonly change: RawChange
}

/** Returns the path of the request: the variables of the route are replaced by its fields. */
function pathOf(template: string, request: JsonObject): string {
  const path = template.replaceAll(/\{([a-z_.]+)(?:=[^}]*)?\}/g, (_, variable: string) => {
    let at: unknown = request
    // Variables of a route name texts inside objects of the request.
    for (const step of variable.split('.')) at = (at as JsonObject | undefined)?.[camelCase(step)]
    return typeof at === 'string' ? at : ''
  })
  return path.replace(/\/+$/, '').replace('/:', ':')
}

/** Makes the call over HTTP, by the method's first route. */
export async function rawRest(world: World, call: RawCall): Promise<RawReply> {
  const [binding] = call.method.http
  if (binding === undefined) throw new Error(`${call.method.rpc} has no route`)
  const { body, query = {}, contentType = 'application/json' } = call.change
  const url = new URL(`http://127.0.0.1:${world.server.config.api.port}${call.change.path ?? pathOf(binding.template, call.request)}`)
  for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value)
  const headers = { authorization: `Bearer ${call.token}`, ...(body === undefined ? {} : { 'content-type': contentType }) }
  const response = await fetch(url, { method: binding.verb, headers, ...(body === undefined ? {} : { body }) })
  const text = await response.text()
  if (response.ok) return { code: 0, fields: [], httpStatus: response.status }
  const answer = JSON.parse(text) as { code: number; details: { fieldViolations?: { field: string }[] }[] }
  const fields = answer.details.flatMap((detail) => detail.fieldViolations ?? []).map(({ field }) => field)
  return { code: answer.code, fields, httpStatus: response.status }
}

/** Makes the call over gRPC. */
export function rawGrpc(world: World, call: RawCall): Promise<RawReply> {
  const { method, change } = call
  const client = new Client(`127.0.0.1:${world.server.config.api.port}`, credentials.createInsecure())
  const metadata = new Metadata()
  for (const [name, value] of Object.entries({ authorization: `Bearer ${call.token}`, ...change.metadata })) metadata.set(name, value)
  const bytes = Buffer.from(change.bytes ?? toBinary(method.input, fromJson(method.input, call.request, { registry })))
  const { promise, resolve } = Promise.withResolvers<RawReply>()
  client.makeUnaryRequest(
    `/${method.service}/${method.rpc}`,
    (value: Buffer) => value,
    (value: Buffer) => value,
    bytes,
    metadata,
    { deadline: Date.now() + 20_000 },
    (error) => {
      const [status] = error?.metadata.get('grpc-status-details-bin') ?? []
      const details = status === undefined ? [] : fromBinary(StatusSchema, status as Buffer).details
      const fields = details.flatMap((any) => anyUnpack(any, BadRequestSchema)?.fieldViolations ?? []).map(({ field }) => field)
      client.close()
      resolve({ code: error?.code ?? 0, fields, httpStatus: undefined })
    },
  )
  return promise
}
