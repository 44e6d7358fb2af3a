import { fromBinary, toJson, type JsonObject, type JsonValue } from '@bufbuild/protobuf'
import { registry } from '../base/schema/schema.ts'
import { parentOf, trustedUid } from '../base/uid.ts'
import { uuidOfHex } from '../base/runtime.ts'
import type { OutboxEvent } from '../gen/taproot/store/v1/envelope_pb.ts'
import { RegistryTrafficSchema, VulnerabilitiesChangedSchema } from '../gen/taproot/store/v1/registry_pb.ts'

/** The audience of every event that is sent to subscribers, and of its token. */
export const customerAudience = 'customer'

/** Returns false for an internal event, which must never be sent (docs/spec/events.md#internal-events). */
export function isForCustomers(event: Pick<OutboxEvent, 'internal'>): boolean {
  return !event.internal
}

/** The event types whose subject is a mapping. Their events also name the identity provider. */
const mappingTypes: ReadonlySet<string> = new Set(['created', 'deleted'].map((change) => `dev.taproot.api.iam.external_group_role_mappings.${change}.v1`))

/** The claims of an actor, in the order of the event format. All are always present (docs/spec/events.md#actors). */
const actorClaims = ['aud', 'iss', 'sub', 'email', 'aws-acct', 'aws-arn'] as const

/** Returns the event's id as a UUID. Earlier versions stored it as 32 hex digits. */
export function uuidOf({ id }: Pick<OutboxEvent, 'id'>): string {
  return id.includes('-') ? id : uuidOfHex(id)
}

/** Returns the CloudEvents attributes of an event in order, without empty ones (docs/spec/events.md#attributes). */
export function attributesOf(event: OutboxEvent): Readonly<Record<string, string>> {
  const attributes = {
    id: uuidOf(event),
    specversion: '1.0',
    type: event.type,
    source: event.source,
    subject: event.subject,
    time: new Date(Number(event.timeMs)).toISOString(),
    group: event.group,
    audience: customerAudience,
    bodytype: event.bodyType,
    identityprovider: mappingTypes.has(event.type) ? parentOf(trustedUid(event.subject)) : '',
    actor: event.actorSubject,
    traceparent: event.traceparent,
  }
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== ''))
}

/** Returns the event's payload as proto JSON; null if it has none. Events of the registry include their empty fields, except optional ones and `policy_results`. */
function payloadOf({ bodyType, body }: OutboxEvent): JsonValue {
  if (bodyType === '') return null
  const desc = registry.getMessage(bodyType)
  if (desc === undefined) throw new TypeError(`no message ${bodyType}`)
  if (bodyType === VulnerabilitiesChangedSchema.typeName) return toJson(desc, fromBinary(desc, body), { registry, alwaysEmitImplicit: true })
  if (bodyType !== RegistryTrafficSchema.typeName) return toJson(desc, fromBinary(desc, body), { registry })
  const traffic = toJson(RegistryTrafficSchema, fromBinary(RegistryTrafficSchema, body), { registry, alwaysEmitImplicit: true }) as JsonObject // of a message
  const { policy_results: results, ...rest } = traffic
  return Array.isArray(results) && results.length === 0 ? rest : traffic
}

/** Returns the data of an event: the actor and the payload (docs/spec/events.md#event-bodies). Throws if the payload cannot be decoded. */
export function dataOf(event: OutboxEvent): JsonObject {
  const act = Object.fromEntries(actorClaims.map((name) => [name, event.actorClaims[name] ?? '']))
  return { actor: { subject: event.actorSubject, act }, body: payloadOf(event) }
}

/** Returns an event in the JSON format of CloudEvents (structured mode). Throws if the payload cannot be decoded. */
export function structuredOf(event: OutboxEvent): JsonObject {
  return { ...attributesOf(event), datacontenttype: 'application/json', data: dataOf(event) }
}
