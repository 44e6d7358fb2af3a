import type { DescMessage } from '@bufbuild/protobuf'
import type { Keyring } from '../auth/keys/sealing.ts'
import { isNamed } from '../base/schema/field-mask.ts'
import type { Uid } from '../base/uid.ts'
import type { Resource, CachedRecord } from '../cache/records/cached-record.ts'
import { recordKey } from '../store/keys.ts'
import { secretFields, takeSecrets } from './secret-fields.ts'

/**
 * What a write does with a secret that its record may have:
 * - `new`: it becomes this text
 * - `kept`: it stays what is stored
 * - `cleared`: what is stored goes
 */
export type SecretFate = { readonly kind: 'new'; readonly text: string } | { readonly kind: 'kept'; readonly sealed: Uint8Array } | { readonly kind: 'cleared' }

/** By the path of the field. A path that is not there is a secret that is not there, before or after. */
export type Secrets = ReadonlyMap<string, SecretFate>

/** Secrets as an envelope keeps them, by path. */
export type SealedSecrets = Readonly<Record<string, Uint8Array>>

/** True where the record has the secret once it is written. */
export function isSecretSet(secrets: Secrets, path: string): boolean {
  const fate = secrets.get(path)
  return fate !== undefined && fate.kind !== 'cleared'
}

/** Takes the secrets out of a new record. */
export function newSecrets(kind: { readonly desc: DescMessage }, record: Resource): Secrets {
  const given = [...takeSecrets(kind.desc, record)].filter(([, text]) => text !== '')
  return new Map(given.map(([path, text]) => [path, { kind: 'new', text }]))
}

/**
 * Takes the secrets out of the record that is to replace `row`. Nobody can send back what nobody reads: an empty one keeps what is stored, unless a path of the mask
 * names it (docs/spec/identities.md#client-secrets). A wildcard names none.
 */
export function changedSecrets(kind: { readonly desc: DescMessage }, change: { row: CachedRecord; record: Resource; paths: readonly string[] }): Secrets {
  const stored = sealedSecrets(kind, change.row)
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

/** The secrets of a row, still sealed. */
export function sealedSecrets(kind: { readonly desc: DescMessage }, row: Pick<CachedRecord, 'envelope'>): SealedSecrets {
  return secretFields(kind.desc).length === 0 ? {} : row.envelope.sealed
}

function contextOf(kind: string, uid: Uid, path: string): string {
  return `${recordKey(kind, uid)}#${path}`
}

/** What the envelope of the record keeps once `secrets` have come to pass. */
export function sealSecrets(keyring: Keyring, place: { readonly kind: string; readonly uid: Uid }, secrets: Secrets): SealedSecrets {
  const sealed: Record<string, Uint8Array> = {}
  for (const [path, fate] of secrets) {
    if (fate.kind === 'kept') sealed[path] = fate.sealed
    if (fate.kind === 'new') sealed[path] = keyring.seal(Buffer.from(fate.text), contextOf(place.kind, place.uid, path))
  }
  return sealed
}

/** The secret of a row, as it was written; undefined where it has none. Throws SealingError. Never to be logged, stored or answered. */
export function openSecret(keyring: Keyring, row: Pick<CachedRecord, 'kind' | 'uid' | 'envelope'>, path: string): string | undefined {
  const sealed = row.envelope.sealed[path]
  return sealed === undefined ? undefined : Buffer.from(keyring.open(sealed, contextOf(row.kind, row.uid, path))).toString()
}
