import type { KeyObject } from 'node:crypto'
import { es256Header, exportEs256, generateEs256, importEs256 } from '../../auth/keys/es256.ts'
import { createLiveKeySet, type KeySet } from '../../auth/keys/key-set.ts'
import { createRotatingKeys, type KeyKind, type RotatingKeys, type RotatingKeysOptions } from '../../auth/keys/rotating-keys.ts'

/** A key that signs events (docs/spec/events.md#event-keys). It never signs a token that Taproot accepts. */
export interface EventKey {
  readonly kid: string
  readonly publicJwk: KeySet['keys'][number]
  readonly privateKey: KeyObject
  /** The encoded header of its tokens. */
  readonly header: string
}

/** The keys that sign events, with their rotation schedule. */
export interface EventKeys extends Omit<RotatingKeys<EventKey>, 'generation'> {
  /** Returns the public keys of all valid keys, for `/.well-known/jwks.json`. */
  keySet(): KeySet
}

const hourMs = 3_600_000

/** A key signs for 30 days. Receivers may cache the JWKS for two hours. Event tokens are valid for one hour. */
export const eventKeySchedule = { rotateEveryMs: 30 * 24 * hourMs, publishAheadMs: 2 * hourMs, retainMs: 2 * hourMs } as const

const kind: KeyKind<EventKey> = {
  prefix: 'meta/event-keys/',
  schedule: eventKeySchedule,
  generate() {
    const { id, jwk, privateKey } = generateEs256()
    return Promise.resolve({ id, shown: jwk, secret: exportEs256(privateKey) })
  },
  load(id, shown, secret) {
    // a cast of a record that only this file writes
    const publicJwk = shown as EventKey['publicJwk']
    return Promise.resolve({ kid: id, publicJwk, privateKey: importEs256(secret), header: es256Header(id) })
  },
}

/** Reads the keys from the store; creates the first one if there is none. Rejects with SealingError or StoreError. */
export async function createEventKeys(options: RotatingKeysOptions, signal: AbortSignal): Promise<EventKeys> {
  const keys = await createRotatingKeys(kind, options, signal)
  return { ...keys, keySet: createLiveKeySet(keys) }
}
