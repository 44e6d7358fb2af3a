import { create, toBinary, type DescMessage, type Message } from '@bufbuild/protobuf'
import { randomHex, type Random } from '../core/runtime.ts'
import { parentOf, rootOf, trustedUid } from '../core/uid.ts'
import type { MethodEvent } from '../core/method.ts'
import { OutboxEventSchema } from '../gen/taproot/store/v1/envelope_pb.ts'
import type { Write } from '../store/store.ts'
import type { Caller } from './services.ts'

/** All event types start so. */
const typePrefix = 'dev.taproot.api.'

/** The uid that an event belongs to, per the schema's annotation (rules 9). */
function groupOf(event: MethodEvent, subject: string): string {
  const uid = trustedUid(subject)
  const of = { self: () => subject, parent: () => parentOf(uid), root: () => rootOf(uid), none: () => '' } satisfies Record<MethodEvent['group'], () => string>
  return of[event.group]()
}

/** Keys of outbox entries sort by time; readers order by commit revision, and trimming goes by key (architecture 9). */
export const outboxPrefix = 'x/outbox/'

/** An outbox key that is greater than all made before `timeMs`. */
export function outboxKey(timeMs: number, id: string): string {
  return `${outboxPrefix}${timeMs.toString(16).padStart(12, '0')}-${id}`
}

/** The time of an outbox key, in milliseconds since 1970. */
export function outboxTimeMs(key: string): number {
  return Number.parseInt(key.slice(outboxPrefix.length, outboxPrefix.length + 12), 16)
}

/** What happened. */
export interface Happening {
  readonly event: MethodEvent
  readonly source: string
  readonly subject: string
  readonly body: { readonly desc: DescMessage; readonly message: Message }
  readonly caller: Caller
  readonly nowMs: number
}

/** The outbox entry of a mutation, written in its own transaction. */
export function outboxWrite(random: Random, happening: Happening): Write {
  const { event, subject, body, caller, nowMs } = happening
  const id = randomHex(random, 16)
  const entry = create(OutboxEventSchema, {
    id,
    type: `${typePrefix}${event.type}`,
    source: happening.source,
    subject,
    group: groupOf(event, subject),
    timeMs: BigInt(nowMs),
    internal: event.internal,
    bodyType: body.desc.typeName,
    body: toBinary(body.desc, body.message),
    actorSubject: caller.identity,
    actorClaims: { ...caller.actor },
  })
  return { kind: 'put', key: outboxKey(nowMs, id), value: toBinary(OutboxEventSchema, entry) }
}
