import { fromJson } from '@bufbuild/protobuf'
import { rootOf, trustedUid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { isMember, isPerson } from '../../engine/membership.ts'
import { EventSchema, type Event } from '../../gen/taproot/events/v2/events_pb.ts'
import type { OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { structuredOf } from '../event-attributes.ts'

/** Returns the event without the e-mail address of a person who has not joined the event's organisation (docs/spec/events.md#actors). */
export function withoutForeignEmail(event: OutboxEvent, tables: RecordTables): OutboxEvent {
  const { actorSubject, actorClaims, group } = event
  if (actorClaims['email'] === undefined || !isPerson(actorSubject)) return event
  if (group !== '' && group !== '/' && isMember(tables, actorSubject, rootOf(trustedUid(group)))) return event
  const { email: _email, ...rest } = actorClaims
  return { ...event, actorClaims: rest }
}

/** Returns an event of the feed: the same attributes and data as in deliveries (docs/spec/events.md#feed). Throws as `structuredOf` does. */
export function eventOf(event: OutboxEvent): Event {
  // The message has no trace context.
  return fromJson(EventSchema, structuredOf(event), { ignoreUnknownFields: true })
}
