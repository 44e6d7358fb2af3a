import { createHash } from 'node:crypto'
import { roleCapabilities } from '../gen/roles.ts'
import { setOf, type CapabilitySet } from './capability.ts'
import { trustedUid, type Uid } from './uid.ts'

/** A role that every installation has and that can't be changed. */
export interface BuiltInRole {
  /** First 40 hex digits of SHA-256 of `taproot:role:<name>` (docs/spec/resources.md#fixed-uids). */
  readonly uid: Uid
  readonly name: string
  readonly description: string
  readonly capabilities: CapabilitySet
}

/** `registry.pull_token_creator` -> `Registry Pull Token Creator`. */
function titleOf(name: string): string {
  return name
    .split(/[._]/)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join(' ')
}

/** The built-in roles, by name in byte order. */
export const builtInRoles: readonly BuiltInRole[] = Object.entries(roleCapabilities).map(([name, names]) => ({
  uid: trustedUid(createHash('sha256').update(`taproot:role:${name}`).digest('hex').slice(0, 40)),
  name,
  description: `${titleOf(name)} Role (built-in)`,
  capabilities: setOf(names),
}))
