import { fromBinary, toJson, type JsonValue } from '@bufbuild/protobuf'
import { registry } from '../../base/schema/schema.ts'
import type { Uid } from '../../base/uid.ts'
import type { OutboxEvent } from '../../gen/taproot/store/v1/envelope_pb.ts'
import type { EventRequest } from './sink-client.ts'

/** Builds the requests that carry events to sinks. */
export interface EventSigner {
  /** Returns the request for the subscriptions of `group`. Rejects if the event's body cannot be decoded. */
  requestOf(event: OutboxEvent, group: Uid): Promise<EventRequest>
}

function bodyOf({ bodyType, body }: OutboxEvent): JsonValue {
  if (bodyType === '') return null
  const desc = registry.getMessage(bodyType)
  if (desc === undefined) throw new TypeError(`no message ${bodyType}`)
  return toJson(desc, fromBinary(desc, body), { registry })
}

/** See EventSigner. */
export function createEventSigner(): EventSigner {
  return {
    requestOf(event) {
      const body = Buffer.from(JSON.stringify({ actor: { subject: event.actorSubject, act: event.actorClaims }, body: bodyOf(event) }))
      const headers = {
        'content-type': 'application/json',
        'ce-specversion': '1.0',
        'ce-id': event.id,
        'ce-type': event.type,
        'ce-source': event.source,
        'ce-subject': event.subject,
        'ce-group': event.group,
        'ce-time': new Date(Number(event.timeMs)).toISOString(),
      }
      return Promise.resolve({ headers, body })
    },
  }
}
