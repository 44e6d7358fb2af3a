import { containsAll, missing, type CapabilitySet } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import { capabilitiesAt, type EffectivePermissions } from './effective-permissions.ts'

/**
 * Prevents privilege escalation: throws code 7 unless the caller holds all these capabilities at the group. So no caller can grant more than they have
 * (docs/spec/iam.md#no-escalation).
 */
export function assertCanGrant(permissions: EffectivePermissions, group: string, capabilities: CapabilitySet): void {
  const held = capabilitiesAt(permissions, group)
  if (!containsAll(held, capabilities)) throw DomainError.denied(missing(held, capabilities), group)
}
