import { createHash } from 'node:crypto'
import { create, fromBinary, toBinary, toJson, type JsonValue, type Message } from '@bufbuild/protobuf'
import { DomainError } from '../base/errors.ts'
import { registry } from '../base/schema/schema.ts'
import { isPath } from '../base/schema/uid-fields.ts'
import { isWithin } from '../base/uid.ts'
import { IdempotencyRecordSchema, type IdempotencyRecord } from '../gen/taproot/store/v1/envelope_pb.ts'
import type { Entry, Guard, Write } from '../store/store.ts'
import { pathChanged } from './errors.ts'
import { secretFields } from './secret-fields.ts'
import { callerOf, type Context, type Services } from './services.ts'

/** Time for which an Idempotency-Key is remembered, in milliseconds (docs/spec/conventions.md#idempotency-keys). */
export const idempotencyLifeMs = 24 * 3600 * 1000

/** Prefix of the entries that list idempotency keys by the hour of their creation, so that old ones can be found and removed. */
export const idempotencyHourPrefix = 'x/idem/t/'

/** Returns the hour of a time in milliseconds, as it is written in store keys. */
export function idempotencyHour(timeMs: number): string {
  return Math.floor(timeMs / 3_600_000)
    .toString(16)
    .padStart(8, '0')
}

/** Returns the store key of the entry for an Idempotency-Key with this hash. */
export function idempotencyKey(hash: string): string {
  return `x/idem/k/${hash}`
}

/** A create request with an Idempotency-Key. */
export interface Idempotent {
  /** Uids of the records that an earlier call with the same key and body created; undefined if there was no such call. */
  readonly earlier: readonly string[] | undefined
  /** Returns the guards and writes that store the key. The call adds them to its own transaction. */
  remember(uids: readonly string[], nowMs: number): { guards: Guard[]; writes: Write[] }
}

function digest(...parts: readonly (string | Uint8Array)[]): Buffer {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest()
}

/** Returns a JSON text that is the same for equal values, whatever the order of object members. Clients send map entries in any order. */
function canonical(value: JsonValue): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1))
  return `{${members.map(([key, inner]) => `${JSON.stringify(key)}:${canonical(inner)}`).join(',')}}`
}

/** Returns the hash of a request body. For a body that may contain a secret it is a keyed hash, so that readers of the store cannot test guesses. */
function bodyHash({ keyring }: Services, context: Context, message: Message): Buffer {
  const { input } = context.method
  // The message may be of the other version.
  const hash = digest(canonical(toJson(registry.getMessage(message.$typeName) ?? input, message, { registry })))
  return secretFields(input).length === 0 ? hash : Buffer.from(keyring.fingerprint(hash))
}

/** Returns the stored result of an earlier call with an Idempotency-Key; undefined if there is none or it has expired. */
function readRecord(services: Services, entry: Entry | undefined): IdempotencyRecord | undefined {
  if (entry === undefined) return undefined
  const record = fromBinary(IdempotencyRecordSchema, entry.value)
  return services.clock.now() - Number(record.timeMs) < idempotencyLifeMs ? record : undefined
}

/** Returns the parent as the request has it: a path if it had one. The same request then has the same parent, even if the path leads elsewhere now. */
function parentAsked({ asked }: Context, parent: string): string {
  const { parent: text } = (asked ?? {}) as { readonly parent?: unknown }
  return typeof text === 'string' && isPath(text) ? text : parent
}

/**
 * Looks up the call's Idempotency-Key; undefined if the call has none. A key belongs to its caller, method and parent. Throws code 3 if the key was used with
 * another body.
 */
async function idempotent(services: Services, context: Context, request: { message: Message; parent: string }): Promise<Idempotent | undefined> {
  const key = context.idempotencyKey
  if (key === undefined || context.validateOnly) return undefined
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) throw DomainError.invalid('idempotency-key', 'must be 1 to 255 printable ASCII characters without spaces')
  const hash = digest(callerOf(context).identity, `${context.method.service}/${context.method.rpc}`, parentAsked(context, request.parent), key).toString('hex')
  const body = bodyHash(services, context, context.asked ?? request.message)
  const entry = await services.store.get(idempotencyKey(hash), context.signal)
  const record = readRecord(services, entry)
  if (record !== undefined && !body.equals(record.bodyHash))
    throw DomainError.invalid('idempotency-key', 'was used with another body: choose a new key', { reason: 'IDEMPOTENCY_KEY_REUSED' })
  return {
    earlier: record?.uid.split(','),
    remember: (uids, nowMs) => {
      const name = idempotencyKey(hash)
      const value = toBinary(IdempotencyRecordSchema, create(IdempotencyRecordSchema, { bodyHash: body, uid: uids.join(','), timeMs: BigInt(nowMs) }))
      return {
        guards: [entry === undefined ? { kind: 'absent', key: name } : { kind: 'unchanged', key: name, revision: entry.revision }],
        writes: [
          { kind: 'put', key: name, value },
          { kind: 'put', key: `${idempotencyHourPrefix}${idempotencyHour(nowMs)}/${hash}`, value: new Uint8Array() },
        ],
      }
    },
  }
}

/** The result of a create with an Idempotency-Key: `made` by this call, or by an `earlier` call with the same key and body. */
export type Once<T> = { readonly kind: 'made'; readonly made: T } | { readonly kind: 'earlier'; readonly uids: readonly string[] }

/**
 * Runs `make` at most once per Idempotency-Key. `make` must add the writes of its argument to its transaction. If two calls with one key run at once, the
 * second returns the result of the first. Throws the errors of `make`, and code 3 for a key that was used with another body. Throws code 10 if the path of the
 * parent led elsewhere then.
 */
export async function onceByKey<T>(
  services: Services,
  request: { context: Context; message: Message; parent: string },
  make: (memory: Idempotent | undefined) => Promise<T>,
): Promise<Once<T>> {
  const { context, parent } = request
  // The store may already contain an earlier call that the snapshot does not contain yet.
  const earlier = async (uids: readonly string[]): Promise<Once<T>> => {
    await services.cache.barrier(context.signal)
    // The caller was authorized at the parent to which the path leads now.
    const asked = parentAsked(context, parent)
    if (asked !== parent && !uids.every((uid) => isWithin(uid, parent))) throw pathChanged(asked)
    return { kind: 'earlier', uids }
  }
  const memory = await idempotent(services, context, request)
  if (memory?.earlier !== undefined) return await earlier(memory.earlier)
  try {
    return { kind: 'made', made: await make(memory) }
  } catch (error) {
    if (memory === undefined || !(error instanceof DomainError)) throw error
    const again = await idempotent(services, context, request)
    if (again?.earlier === undefined) throw error
    return await earlier(again.earlier)
  }
}

/** Returns the hour in which this entry was created. The entry is removed when that hour's keys expire. */
export function idempotencyHourOf(value: Uint8Array): string {
  return idempotencyHour(Number(fromBinary(IdempotencyRecordSchema, value).timeMs))
}
