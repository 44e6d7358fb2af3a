import { fromBinary } from '@bufbuild/protobuf'
import { OutboxEventSchema, type OutboxEvent } from '../../../src/gen/taproot/store/v1/envelope_pb.ts'
import type { Spec } from './spec-suite.ts'

/** The events about `subject` that wait for delivery, oldest first. */
export async function eventsOf(spec: Spec, subject: string): Promise<OutboxEvent[]> {
  const { entries } = await spec.server.running.engine.store.range({ prefix: 'x/outbox/', limit: 10_000 }, AbortSignal.timeout(60_000))
  return entries.map(({ value }) => fromBinary(OutboxEventSchema, value)).filter((event) => event.subject === subject)
}
