import { createHash } from 'node:crypto'
import { roleCapabilities } from '../gen/roles.ts'
import { setOf, type CapabilitySet } from './capability.ts'
import { trustedUid, type Uid } from './uid.ts'

/** A role that exists in every installation and that no caller can change. */
export interface BuiltInRole {
  /** The first 40 hex digits of the SHA-256 hash of `taproot:role:<name>` (docs/spec/resources.md#fixed-uids). */
  readonly uid: Uid
  readonly name: string
  readonly description: string
  readonly capabilities: CapabilitySet
}

/** Returns the display name of a role: `registry.pull_token_creator` -> `Registry Pull Token Creator`. */
function titleOf(name: string): string {
  return name
    .split(/[._]/)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join(' ')
}

/** The built-in roles, sorted by name in byte order. */
export const builtInRoles: readonly BuiltInRole[] = Object.entries(roleCapabilities).map(([name, names]) => ({
  uid: trustedUid(createHash('sha256').update(`taproot:role:${name}`).digest('hex').slice(0, 40)),
  name,
  description: `${titleOf(name)} Role (built-in)`,
  capabilities: setOf(names),
}))
