import type { DescMessage } from '@bufbuild/protobuf'
import type { Keyring } from '../auth/keys/sealing.ts'
import { isNamed } from '../base/schema/field-mask.ts'
import type { Uid } from '../base/uid.ts'
import type { Resource, CachedRecord } from '../cache/records/cached-record.ts'
import { recordKey } from '../store/keys.ts'
import { secretFields, takeSecrets } from './secret-fields.ts'

/**
 * What a write does with a secret of the record:
 * - `new`: sets it to this text
 * - `kept`: leaves the stored secret unchanged
 * - `cleared`: removes the stored secret
 */
export type SecretFate = { readonly kind: 'new'; readonly text: string } | { readonly kind: 'kept'; readonly sealed: Uint8Array } | { readonly kind: 'cleared' }

/** What a write does with each secret, by field path. A path that is missing has no secret, before or after the write. */
export type Secrets = ReadonlyMap<string, SecretFate>

/** The encrypted secrets in an envelope, by field path. */
export type SealedSecrets = Readonly<Record<string, Uint8Array>>

/** True if the record has the secret after the write. */
export function isSecretSet(secrets: Secrets, path: string): boolean {
  const fate = secrets.get(path)
  return fate !== undefined && fate.kind !== 'cleared'
}

/** Removes the secrets from a new record and returns them. A secret that is empty is not returned. */
export function newSecrets(kind: { readonly desc: DescMessage }, record: Resource): Secrets {
  const given = [...takeSecrets(kind.desc, record)].filter(([, text]) => text !== '')
  return new Map(given.map(([path, text]) => [path, { kind: 'new', text }]))
}

/**
 * Removes the secrets from the record that will replace `cached`, and returns what happens to them. Clients cannot send back a secret that they cannot read.
 * So an empty secret keeps the stored one, unless a mask path names it (docs/spec/identities.md#client-secrets). A wildcard does not name it.
 */
export function changedSecrets(kind: { readonly desc: DescMessage }, change: { cached: CachedRecord; record: Resource; paths: readonly string[] }): Secrets {
  const stored = sealedSecrets(kind, change.cached)
  const given = takeSecrets(kind.desc, change.record)
  const fates = new Map<string, SecretFate>()
  for (const { path } of secretFields(kind.desc)) {
    const text = given.get(path)
    const sealed = stored[path]
    if (text !== undefined && text !== '') fates.set(path, { kind: 'new', text })
    else if (sealed !== undefined) fates.set(path, text === undefined || isNamed(change.paths, path) ? { kind: 'cleared' } : { kind: 'kept', sealed })
  }
  return fates
}

/** Returns the encrypted secrets of a record. */
export function sealedSecrets(kind: { readonly desc: DescMessage }, record: Pick<CachedRecord, 'envelope'>): SealedSecrets {
  return secretFields(kind.desc).length === 0 ? {} : record.envelope.sealed
}

function contextOf(kind: string, uid: Uid, path: string): string {
  return `${recordKey(kind, uid)}#${path}`
}

/** Returns the secrets for the envelope of the record after this write: kept ones as stored, new ones encrypted. */
export function sealSecrets(keyring: Keyring, place: { readonly kind: string; readonly uid: Uid }, secrets: Secrets): SealedSecrets {
  const sealed: Record<string, Uint8Array> = {}
  for (const [path, fate] of secrets) {
    if (fate.kind === 'kept') sealed[path] = fate.sealed
    if (fate.kind === 'new') sealed[path] = keyring.seal(Buffer.from(fate.text), contextOf(place.kind, place.uid, path))
  }
  return sealed
}

/** Decrypts a secret of a record; undefined if it has none. Throws SealingError. Never log, store or return it to a client. */
export function openSecret(keyring: Keyring, record: Pick<CachedRecord, 'kind' | 'uid' | 'envelope'>, path: string): string | undefined {
  const sealed = record.envelope.sealed[path]
  return sealed === undefined ? undefined : Buffer.from(keyring.open(sealed, contextOf(record.kind, record.uid, path))).toString()
}
