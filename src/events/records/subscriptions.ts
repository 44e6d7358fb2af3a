import { clone, create, toBinary, type Message } from '@bufbuild/protobuf'
import { durationMs, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { hostError } from '../../auth/safe-address.ts'
import { capabilitiesAt } from '../../authz/effective-permissions.ts'
import { containsAll, missing, setOf } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { trustedUid, type Uid } from '../../base/uid.ts'
import type { KindIndex, Resource } from '../../cache/records/cached-record.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { nextOwner } from '../../engine/ownership.ts'
import { defineKind, type AnyKind, type Kind, type MutationDraft, type Planning, type Records } from '../../engine/kind.ts'
import { getHandler, listHandler, recordAnswer } from '../../engine/read.ts'
import { rendered } from '../../engine/shown.ts'
import { callerOf, type Context, type Handler, type HandlerAnswer, type Services, type Shown } from '../../engine/services.ts'
import { assertEtag, bodyOf, createHandler, emit, existingRecord, updateHandler } from '../../engine/write.ts'
import {
  Subscription_Signing,
  Subscription_State,
  SubscriptionSchema,
  type RotateSubscriptionSecretRequest,
  type Subscription,
} from '../../gen/taproot/events/v2/subscriptions_pb.ts'
import { SubscriptionPauseSchema, SubscriptionProgressSchema, type SubscriptionProgress } from '../../gen/taproot/store/v1/events_pb.ts'
import { pauseKey, recordKey } from '../../store/keys.ts'
import type { Guard, Write } from '../../store/store.ts'
import { assertTypes, capabilitiesFor } from './event-types.ts'
import { pauseOf, pauseReason, progressKey, readProgress, redeliveryKey } from './progress.ts'
import { newSecret, secretsIn, secretsKey } from './webhook-secrets.ts'

type SubscriptionRecord = Subscription & Resource

const index: KindIndex = { kind: 'Subscription', desc: SubscriptionSchema, filters: {}, removedWith: [] }

/** Maximum number of waiting events that responses report. */
export const maxPending = 1_000

/** Returns why a sink is refused; undefined if it is allowed (docs/spec/events.md#sinks). */
function sinkError(sink: string, { sinkNetworks }: Services['settings']): string | undefined {
  // The schema has already checked the form of the sink.
  if (!URL.canParse(sink)) return 'must be a URL, such as https://hooks.example/taproot'
  if (/\p{Cc}/u.test(sink)) return 'must not contain control characters'
  if (new URL(sink).port === '0') return 'must not have port 0'
  const refusal = hostError(sink, sinkNetworks)
  return refusal === undefined ? undefined : `${refusal}; operators allow networks by the setting events.networks`
}

/**
 * Checks the sink and the types. Throws code 7 unless the caller may list the records that the events are about
 * (docs/spec/events.md#rights).
 */
function settle(planning: Planning, { record, parent }: MutationDraft<SubscriptionRecord>): void {
  const error = sinkError(record.sink, planning.services.settings)
  if (error !== undefined) throw DomainError.invalid('sink', error)
  assertTypes(record.types, 'types')
  const held = capabilitiesAt(planning.permissions, parent)
  const needed = setOf(capabilitiesFor(record))
  if (!containsAll(held, needed)) throw DomainError.denied(missing(held, needed), parent)
  record.authorizedBy = planning.caller.identity
}

/** Adds whether events are delivered, which is known from memory. */
function render(records: Records, record: SubscriptionRecord): SubscriptionRecord {
  const shown: SubscriptionRecord = clone(SubscriptionSchema, record)
  const reason = pauseReason(records, trustedUid(record.uid))
  shown.state = reason === undefined ? Subscription_State.ACTIVE : Subscription_State.PAUSED
  shown.stateReason = reason ?? ''
  return shown
}

/** Returns the rules of the kind Subscription. `shown` receives the text of a new secret, which is available only then. */
function rulesWith(shown: (secret: string) => void): Kind<SubscriptionRecord> {
  /** Returns the write of a subscription's first secret. */
  const firstSecret = ({ services }: Planning, uid: Uid): Write => {
    const { text, write } = newSecret(services, uid)
    shown(text)
    return write
  }
  return {
    index,
    desc: SubscriptionSchema,
    uniqueName: false,
    create(planning, draft) {
      settle(planning, draft)
      const { uid, record } = draft
      // Empty progress means that deliveries start with the commit that writes it.
      const progress: Write = { kind: 'put', key: progressKey(uid), value: toBinary(SubscriptionProgressSchema, create(SubscriptionProgressSchema)) }
      return { writes: usesSecret(record) ? [progress, firstSecret(planning, uid)] : [progress] }
    },
    update(planning, draft, current) {
      settle(planning, draft)
      const { uid, record } = draft
      if (usesSecret(record) === usesSecret(current)) return undefined
      return { writes: [usesSecret(record) ? firstSecret(planning, uid) : { kind: 'delete', key: secretsKey(uid) }] }
    },
    remove(planning, { uid }) {
      const keys = [progressKey(uid), redeliveryKey(uid), secretsKey(uid), ...(planning.tables.entry(pauseKey(uid)) === undefined ? [] : [pauseKey(uid)])]
      return { writes: keys.map((key) => ({ kind: 'delete', key })) }
    },
    render,
  }
}

function usesSecret({ signing }: Pick<Subscription, 'signing'>): boolean {
  return signing === Subscription_Signing.STANDARD_WEBHOOKS
}

/** The kind Subscription: a sink for the events of a group and of all groups below it (docs/spec/events.md#subscriptions). */
export const subscriptionKind = defineKind(rulesWith(() => undefined))

/** Adds the delivery progress to a subscription for a response. */
function withProgress(message: Message, progress: SubscriptionProgress | undefined): SubscriptionRecord {
  // a cast: handlers of this kind return messages of this kind
  const shown: SubscriptionRecord = clone(SubscriptionSchema, message as SubscriptionRecord)
  if (progress === undefined) return shown
  const { failingReason, lastDeliveryTimeMs, lastError, pending } = progress
  if (shown.state === Subscription_State.ACTIVE && failingReason !== '') {
    shown.state = Subscription_State.FAILING
    shown.stateReason = failingReason
  }
  if (lastDeliveryTimeMs > 0n) shown.lastDeliveryTime = timestampFromMs(Number(lastDeliveryTimeMs))
  shown.lastError = lastError
  shown.pendingCount = pending > maxPending ? `${maxPending}+` : String(pending)
  return shown
}

/** Reads the delivery progress of the subscription in a response, and adds it. */
async function joined(services: Services, signal: AbortSignal, answer: HandlerAnswer): Promise<HandlerAnswer> {
  const { message, etag, subject } = answer
  const uid = trustedUid((message as SubscriptionRecord).uid)
  const shown = withProgress(message, await readProgress(services.store, uid, signal))
  return { message: shown, ...(etag === undefined ? {} : { etag }), ...(subject === undefined ? {} : { subject }) }
}

/** Returns a handler that also adds the delivery progress to the subscription in its response. */
function joining(handler: Handler): Handler {
  return async (services, context, message) => {
    const answer = await handler(services, context, message)
    return context.validateOnly ? answer : joined(services, context.signal, answer)
  }
}

/** GetSubscription. */
export const getSubscription: Handler = joining(getHandler(subscriptionKind))

/** Returns a handler whose response contains a newly created secret. A dry run returns none. */
function showingSecret(handlerOf: (kind: AnyKind) => Handler): Handler {
  return async (services, context, message) => {
    let secret = ''
    const handler = joining(handlerOf(defineKind(rulesWith((made) => (secret = made)))))
    const answer = await handler(services, context, message)
    // The response is a new message. A request repeated by an Idempotency-Key plans nothing, so it creates no secret.
    if (!context.validateOnly) (answer.message as SubscriptionRecord).secret = secret
    return answer
  }
}

/** CreateSubscription. */
export const createSubscription: Handler = showingSecret(createHandler)

/** UpdateSubscription. */
export const updateSubscription: Handler = showingSecret(updateHandler)

const list = listHandler(subscriptionKind)

/** ListSubscriptions: lists subscriptions, with the delivery progress of each one on the page. */
export const listSubscriptions: Handler = async (services, context, message) => {
  const answer = await list(services, context, message)
  const { page } = answer
  if (page === undefined) throw new TypeError('a list answers a page')
  const items: Shown[] = await Promise.all(
    page.items.map(async (item) => ({
      message: withProgress(item.message, await readProgress(services.store, trustedUid(item.message.uid), context.signal)),
    })),
  )
  const fields = answer.message as unknown as Record<string, unknown>
  fields[page.field.localName] = items.map((item) => item.message)
  return { ...answer, page: { field: page.field, items } }
}

/** A change of a subscription's state. */
interface StateChange<P> {
  readonly uid: string
  /** Reads keys that are not in memory, before each attempt. */
  readonly prepare: (signal: AbortSignal) => Promise<P> | P
  /** Guards for what was read. */
  readonly guards?: (prepared: P) => readonly Guard[]
  readonly writes: (uid: Uid, planning: Planning, prepared: P) => readonly Write[]
  readonly change: (shown: SubscriptionRecord) => void
}

const nothing = (): void => undefined

/** Handles a method that writes other keys and leaves the record unchanged. Its event contains the subscription after the change. */
export async function changeState<P>(services: Services, context: Context, what: StateChange<P>): Promise<HandlerAnswer> {
  const record = await commitPrepared(services, context, {
    prepare: what.prepare,
    plan(planning, prepared): MutationPlan<Resource> {
      const record = existingRecord(subscriptionKind, planning, what.uid)
      assertEtag(record, context.ifMatch)
      if (context.ownership.kind === 'object') nextOwner(planning, index.kind, record)
      const changes = new ChangeSet()
      changes.guard({ kind: 'unchanged', key: recordKey(index.kind, record.uid), revision: record.revision })
      for (const guard of what.guards?.(prepared) ?? []) changes.guard(guard)
      for (const write of what.writes(record.uid, planning, prepared)) changes.write(write)
      const { desc, message } = bodyOf(subscriptionKind, planning, record.message)
      what.change(message as SubscriptionRecord)
      emit(planning, context, { changes, subject: record.uid, body: { desc, message } })
      return { changes, result: record.message }
    },
  })
  const answer = recordAnswer(subscriptionKind, services, record)
  return context.validateOnly ? answer : joined(services, context.signal, answer)
}

/** Returns the write that pauses a subscription. `identity` is who pauses it; empty if the platform does. */
export function pauseWrite(uid: Uid, { reason, identity, nowMs }: { readonly reason: string; readonly identity: string; readonly nowMs: number }): Write {
  const pause = create(SubscriptionPauseSchema, { reason, identity, timeMs: BigInt(nowMs) })
  return { kind: 'put', key: pauseKey(uid), value: toBinary(SubscriptionPauseSchema, pause) }
}

/** Sets the state of a rendered subscription to that of a pause. */
export function showPause(shown: Pick<Subscription, 'state' | 'stateReason'>, reason: string): void {
  shown.state = Subscription_State.PAUSED
  shown.stateReason = reason
}

/** Pauses a subscription: no events are delivered until it is resumed. */
function pause(services: Services, context: Context, { uid, reason }: { readonly uid: string; readonly reason: string }): Promise<HandlerAnswer> {
  return changeState(services, context, {
    uid,
    prepare: nothing,
    writes: (found, { caller: { identity }, nowMs }) => [pauseWrite(found, { reason, identity, nowMs })],
    change: (shown) => showPause(shown, reason),
  })
}

/** Ends the pause of a subscription. */
function resume(services: Services, context: Context, uid: string): Promise<HandlerAnswer> {
  return changeState(services, context, {
    uid,
    prepare: nothing,
    // The leader watches this key. Deleting it also ends the wait of a failing subscription.
    writes: (found) => [{ kind: 'delete', key: pauseKey(found) }],
    change(shown) {
      shown.state = Subscription_State.ACTIVE
      shown.stateReason = ''
    },
  })
}

/** PauseSubscription. */
export const pauseSubscription: Handler = (services, context, message) =>
  pause(services, context, { uid: (message as Message & { uid: string }).uid, reason: 'paused by :pause' })

/** ResumeSubscription: ends a pause. A failing subscription tries its sink again at once. */
export const resumeSubscription: Handler = (services, context, message) => resume(services, context, (message as Message & { uid: string }).uid)

/**
 * Pauses a subscription for the Kubernetes object that owns it. Without a reason, ends a pause by that object; other pauses stay. Resolves
 * with false if nothing had to be written. `contextOf` returns the context for the method with this name.
 */
export async function pauseForObject(
  services: Services,
  contextOf: (rpc: string) => Context,
  { uid, reason }: { readonly uid: Uid; readonly reason: string | undefined },
): Promise<boolean> {
  const context = contextOf(reason === undefined ? 'ResumeSubscription' : 'PauseSubscription')
  const current = pauseOf(services.cache.tables, uid)
  const own = current !== undefined && current.identity === callerOf(context).identity ? current.reason : undefined
  if (own === reason) return false
  await (reason === undefined ? resume(services, context, uid) : pause(services, context, { uid, reason }))
  return true
}

/** Reads a subscription as GetSubscription returns it; undefined if there is none. Rejects with StoreError or the signal's reason. */
export async function readSubscription(services: Services, uid: Uid, signal: AbortSignal): Promise<Subscription | undefined> {
  const record = services.cache.tables.get(index.kind, uid)
  if (record === undefined) return undefined
  return withProgress(rendered(subscriptionKind, services, record.message), await readProgress(services.store, uid, signal))
}

/** TestSubscription: sends a test event to this subscription only. */
export const testSubscription: Handler = (services, context, message) =>
  changeState(services, context, { uid: (message as Message & { uid: string }).uid, prepare: nothing, writes: () => [], change: nothing })

/** How long the previous secret also signs by default, in milliseconds. */
const defaultOverlapMs = 24 * 3_600_000

/** RotateSubscriptionSecret: creates a secret, which only this response contains. */
export const rotateSubscriptionSecret: Handler = async (services, context, message) => {
  const { uid, overlap } = message as RotateSubscriptionSecretRequest
  const overlapMs = overlap === undefined ? defaultOverlapMs : durationMs(overlap)
  const key = secretsKey(trustedUid(uid))
  let secret = ''
  const record = await commitPrepared(services, context, {
    prepare: (signal) => services.store.get(key, signal),
    plan(planning, entry): MutationPlan<Resource> {
      const record = existingRecord(subscriptionKind, planning, uid)
      assertEtag(record, context.ifMatch)
      // a cast: a record of this kind contains a subscription
      if (!usesSecret(record.message as SubscriptionRecord)) throw new DomainError(9, 'Precondition failed: set signing to STANDARD_WEBHOOKS first')
      const changes = new ChangeSet()
      changes.guard({ kind: 'unchanged', key: recordKey(index.kind, record.uid), revision: record.revision })
      changes.guard(entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision })
      const before = entry === undefined ? undefined : { secrets: secretsIn(entry), untilMs: planning.nowMs + overlapMs, nowMs: planning.nowMs }
      const made = newSecret(services, record.uid, before)
      secret = made.text
      changes.write(made.write)
      emit(planning, context, { changes, subject: record.uid, body: bodyOf(subscriptionKind, planning, record.message) })
      return { changes, result: record.message }
    },
  })
  const answer = await joined(services, context.signal, recordAnswer(subscriptionKind, services, record))
  if (!context.validateOnly) (answer.message as SubscriptionRecord).secret = secret
  return answer
}
