import { create, fromBinary, toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { registry } from '../../base/schema/schema.ts'
import { rootOf, trustedUid } from '../../base/uid.ts'
import type { Snapshot } from '../../cache/snapshot.ts'
import { isMember, isPerson } from '../../engine/membership.ts'
import { EventSchema, type Event } from '../../gen/taproot/events/v2/events_pb.ts'
import type { OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'

/** Returns the body of an event as JSON; null if it has none. Throws TypeError for a message that the schema does not know. */
function bodyOf({ bodyType, body }: OutboxEvent): JsonValue {
  if (bodyType === '') return null
  const desc = registry.getMessage(bodyType)
  if (desc === undefined) throw new TypeError(`no message ${bodyType}`)
  return toJson(desc, fromBinary(desc, body), { registry })
}

/** Returns the event without the e-mail address of a person who has not joined the event's organisation (docs/spec/events.md#actors). */
export function withoutForeignEmail(event: OutboxEvent, snapshot: Snapshot): OutboxEvent {
  const { actorSubject, actorClaims, group } = event
  if (actorClaims['email'] === undefined || !isPerson(actorSubject)) return event
  if (group !== '' && group !== '/' && isMember(snapshot, actorSubject, rootOf(trustedUid(group)))) return event
  const { email: _email, ...rest } = actorClaims
  return { ...event, actorClaims: rest }
}

/** Returns an event in the JSON format of CloudEvents 1.0 (docs/spec/events.md#feed). Throws TypeError as `bodyOf` does. */
export function eventOf(event: OutboxEvent): Event {
  const { id, type, source, subject, group, timeMs, bodyType, actorSubject, actorClaims } = event
  const data: JsonObject = { actor: { subject: actorSubject, act: actorClaims }, body: bodyOf(event) }
  return create(EventSchema, {
    specversion: '1.0',
    id,
    source,
    type,
    time: timestampFromMs(Number(timeMs)),
    datacontenttype: 'application/json',
    audience: 'customer',
    data,
    ...(subject === '' ? {} : { subject }),
    ...(group === '' ? {} : { group }),
    ...(bodyType === '' ? {} : { bodytype: bodyType }),
    ...(actorSubject === '' ? {} : { actor: actorSubject }),
  })
}
