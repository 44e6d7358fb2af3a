/** Prefix of outbox keys, which sort by time. Readers order by commit revision; expiry goes by key (docs/spec/events.md#outbox). */
export const outboxPrefix = 'x/outbox/'

/** Prefix of the cuts of root groups: `x/events/cut/<root>` (docs/spec/events.md#retention). */
export const outboxCutPrefix = 'x/events/cut/'

/** How long events are kept, in milliseconds (docs/spec/events.md#retention). */
export const eventLifeMs = 72 * 3_600_000

/** Returns an outbox key that is greater than all keys made before `timeMs`. */
export function outboxKey(timeMs: number, id: string): string {
  return `${outboxPrefix}${timeMs.toString(16).padStart(12, '0')}-${id}`
}

/** Returns the time of an outbox key, in milliseconds since 1970. */
export function outboxTimeMs(key: string): number {
  return Number.parseInt(key.slice(outboxPrefix.length, outboxPrefix.length + 12), 16)
}
