import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../base/uid.ts'
import { IdentityProvider_SCIMSchema, type IdentityProvider_SCIM } from '../../gen/taproot/iam/v2/identity_providers_pb.ts'
import { ScimStateSchema, type ScimState } from '../../gen/taproot/store/v1/scim_pb.ts'
import { scimKey } from '../../store/keys.ts'
import type { Guard, Write } from '../../store/store.ts'
import type { Records } from '../../engine/kind.ts'
import { credentialState, overlapEndMs, tokenExpireMs } from './scim-credentials.ts'

/** Returns the SCIM credentials of the identity provider. Undefined if no SCIM token was ever created for it. */
export function scimStateOf(records: Pick<Records, 'entry'>, provider: Uid): ScimState | undefined {
  const entry = records.entry(scimKey(provider))
  return entry === undefined ? undefined : fromBinary(ScimStateSchema, entry.value)
}

/** Returns a guard that fails if the provider's SCIM credentials differ from those in `records`. */
export function scimUnchanged(records: Pick<Records, 'entry'>, provider: Uid): Guard {
  const key = scimKey(provider)
  const entry = records.entry(key)
  return entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision }
}

/** Returns the write of the provider's SCIM credentials. */
export function scimWrite(provider: Uid, state: ScimState): Write {
  return { kind: 'put', key: scimKey(provider), value: toBinary(ScimStateSchema, state) }
}

/** Returns an object with the field `name` as a timestamp; empty if `ms` is undefined. */
export function timeMember<Name extends string>(name: Name, ms: number | undefined): { readonly [member in Name]?: Timestamp } {
  // a cast: TypeScript widens a computed name to any string
  return (ms === undefined ? {} : { [name]: timestampFromMs(ms) }) as { readonly [member in Name]?: Timestamp }
}

/** Returns the URL of the provider's SCIM server (docs/spec/scim.md#scim-server). */
export function scimEndpoint(ownIssuer: string, provider: Uid): string {
  return `${ownIssuer.replace(/\/+$/, '')}/scim/v2/${provider}`
}

/** Returns the credentials for lists, without their state (docs/spec/scim.md#credential-states). */
export function scimSummary(state: ScimState | undefined): IdentityProvider_SCIM {
  return create(IdentityProvider_SCIMSchema, { enabled: state?.enabled ?? false, etag: state?.etag ?? '' })
}

/** Returns the credentials for the response to a single read. */
export function scimStatus(state: ScimState | undefined, endpointUrl: string, nowMs: number): IdentityProvider_SCIM {
  const shown = scimSummary(state)
  shown.endpointUrl = endpointUrl
  shown.credentialState = credentialState(state, nowMs)
  if (state === undefined) return shown
  return Object.assign(shown, timeMember('tokenExpireTime', tokenExpireMs(state)), timeMember('previousTokenExpireTime', overlapEndMs(state, nowMs)))
}
