import { create } from '@bufbuild/protobuf'
import { PingResponseSchema } from '../gen/taproot/ping/v2/ping_pb.ts'
import type { Handler } from '../engine/services.ts'

/** Ping: the service answers. */
export const ping: Handler = () => Promise.resolve({ message: create(PingResponseSchema, { response: 'pong' }) })
