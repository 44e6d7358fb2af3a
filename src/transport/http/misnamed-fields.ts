import type { DescMessage } from '@bufbuild/protobuf'
import type { FieldViolation } from '../../base/errors.ts'

/** Parameters that clients of other servers send, by message: ignored, they would widen what is answered. */
const misnamed: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  // RFC 8693 has `audience`; without `aud` the token would be for the API.
  'taproot.oidc.v1.ExchangeRequest': { audience: 'aud', audiences: 'aud', resource: 'aud' },
}

/** A violation that names the right parameter, where `key` is a wrong name for it. */
export function misnamedField(desc: DescMessage, key: string): FieldViolation | undefined {
  const names = misnamed[desc.typeName] ?? {}
  const right = Object.hasOwn(names, key) ? names[key] : undefined
  return right === undefined ? undefined : { field: key, description: `is no parameter: use ${right}` }
}
