import { fromJson } from '@bufbuild/protobuf'
import { rootOf, trustedUid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { isMember, isPerson } from '../../engine/membership.ts'
import { EventSchema, type Event } from '../../gen/taproot/events/v2/events_pb.ts'
import type { OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { structuredOf } from '../event-attributes.ts'

/** Returns the event. Removes the e-mail address of a person who has not joined the event's organisation (docs/spec/events.md#actors). */
export function withoutForeignEmail(event: OutboxEvent, tables: RecordTables): OutboxEvent {
  const { actorSubject, actorClaims, group } = event
  if (actorClaims['email'] === undefined || !isPerson(actorSubject)) return event
  if (group !== '' && group !== '/' && isMember(tables, actorSubject, rootOf(trustedUid(group)))) return event
  const { email: _email, ...rest } = actorClaims
  return { ...event, actorClaims: rest }
}

/** Returns an event of the feed, with the same attributes and data as deliveries (docs/spec/events.md#feed). Throws like `structuredOf`. */
export function eventOf(event: OutboxEvent): Event {
  // Ignores the trace context, which this message lacks.
  return fromJson(EventSchema, structuredOf(event), { ignoreUnknownFields: true })
}
