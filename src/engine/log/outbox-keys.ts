/**
 * Prefix of the keys of events in the outbox. The keys sort by time. Readers use the order of commits; expiry uses the order of keys
 * (docs/spec/events.md#outbox).
 */
export const outboxPrefix = 'x/outbox/'

/** Prefix of the entries about the cuts of root groups (see Cut): `x/events/cut/<root>` (docs/spec/events.md#retention). */
export const outboxCutPrefix = 'x/events/cut/'

/** Time for which events are kept, in milliseconds (docs/spec/events.md#retention). */
export const eventLifeMs = 72 * 3_600_000

/** Returns the outbox key of an event at a time in milliseconds since 1970. It sorts after all keys of earlier times. */
export function outboxKey(timeMs: number, id: string): string {
  return `${outboxPrefix}${timeMs.toString(16).padStart(12, '0')}-${id}`
}

/** Returns the id of an event as it is stored, from its outbox key. */
export function outboxId(key: string): string {
  return key.slice(outboxPrefix.length + 13)
}

/** Returns the time of an outbox key, in milliseconds since 1970. */
export function outboxTimeMs(key: string): number {
  return Number.parseInt(key.slice(outboxPrefix.length, outboxPrefix.length + 12), 16)
}
