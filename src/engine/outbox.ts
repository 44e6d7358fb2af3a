import { create, toBinary, type DescMessage, type Message } from '@bufbuild/protobuf'
import { randomHex, uuidOfHex, type Random } from '../base/runtime.ts'
import { parentOf, rootOf, trustedUid } from '../base/uid.ts'
import type { MethodEvent } from '../base/schema/method.ts'
import { OutboxEventSchema } from '../gen/taproot/store/v1/envelope_pb.ts'
import type { Write } from '../store/store.ts'
import { outboxKey } from './log/outbox-keys.ts'
import type { Caller } from './services.ts'

/** Prefix of the types of events that API methods emit. */
const typePrefix = 'dev.taproot.api.'
/** Prefix of the types of events that the registry host emits. */
const trafficTypePrefix = 'dev.taproot.registry.'

/** Returns the uid of the group to which an event belongs, according to the schema's annotation (docs/spec/events.md#event-group). */
function groupOf(event: MethodEvent, subject: string): string {
  const uid = trustedUid(subject)
  const of = { self: () => subject, parent: () => parentOf(uid), root: () => rootOf(uid), none: () => '' } satisfies Record<MethodEvent['group'], () => string>
  return of[event.group]()
}

/** The payload of an event. */
export interface EventBody {
  readonly desc: DescMessage
  readonly message: Message
}

/** The data that all events have. */
interface Happened {
  readonly source: string
  readonly subject: string
  /** Undefined for an event without a payload, whose body is null. */
  readonly body: EventBody | undefined
  readonly nowMs: number
  /** W3C trace context of the request; absent if the request has none. */
  readonly traceparent?: string | undefined
}

/** The data of an event about a mutation. */
export interface Happening extends Happened {
  readonly event: MethodEvent
  /** Uid of the group of the event, if it does not follow from the subject. */
  readonly group?: string
  readonly caller: Caller
}

/** The middle part of an event type about requests to the registry host: `policy.violated` in `registry.policy.violated.v1`. */
export type TrafficKind = 'push' | 'pull' | 'policy.violated'

/** The data of an event about a request to the registry host, or about vulnerabilities of a tag. */
export interface TrafficHappening extends Omit<Happened, 'source'> {
  readonly kind: TrafficKind | 'vulnerabilities.changed'
  /** The name of the registry host. */
  readonly host: string
  readonly group: string
  /** The caller of the request; undefined if the caller is anonymous, and if there was no request. */
  readonly caller: Caller | undefined
}

function entryWrite(random: Random, happened: Happened & { type: string; group: string; internal: boolean; caller: Caller | undefined }): Write {
  const { body, caller, nowMs } = happened
  const id = uuidOfHex(randomHex(random, 16))
  const entry = create(OutboxEventSchema, {
    id,
    type: happened.type,
    source: happened.source,
    subject: happened.subject,
    group: happened.group,
    timeMs: BigInt(nowMs),
    internal: happened.internal,
    bodyType: body?.desc.typeName ?? '',
    body: body === undefined ? new Uint8Array() : toBinary(body.desc, body.message),
    actorSubject: caller?.identity ?? '',
    actorClaims: { ...caller?.actor },
    traceparent: happened.traceparent ?? '',
  })
  return { kind: 'put', key: outboxKey(nowMs, id), value: toBinary(OutboxEventSchema, entry) }
}

/** Returns the write that adds the event of a mutation to the outbox. It belongs into the mutation's transaction. */
export function outboxWrite(random: Random, happening: Happening): Write {
  const { event, group = groupOf(event, happening.subject) } = happening
  return entryWrite(random, { ...happening, type: `${typePrefix}${event.type}`, group, internal: event.internal })
}

/** Returns the write that adds an event of the registry to the outbox. */
export function trafficWrite(random: Random, happening: TrafficHappening): Write {
  return entryWrite(random, { ...happening, source: happening.host, type: `${trafficTypePrefix}${happening.kind}.v1`, internal: false })
}
