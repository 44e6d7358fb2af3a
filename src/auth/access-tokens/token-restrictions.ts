import { intersect, type CapabilitySet } from '../../base/capability.ts'
import { isWithin, type Uid } from '../../base/uid.ts'

/**
 * A role that a sign-in grants until its token expires, because the provider's mappings grant it to a group of the person
 * (docs/spec/identities.md#mapped-sessions).
 */
export interface SessionRole {
  readonly group: Uid
  readonly role: Uid
}

/** How a token's permissions differ from those of its identity. Absent members change nothing. */
export interface TokenRestrictions {
  readonly scopes?: readonly Uid[]
  readonly capabilities?: CapabilitySet
  /**
   * The groups whose identity providers authenticate the person (docs/spec/identities.md#trust-domain). Only grants there or below apply, and the caller is
   * never an operator.
   */
  readonly trustedGroups?: readonly Uid[]
  /** Roles that the token has in addition. No other member adds permissions. `scopes` and `capabilities` also limit these roles. */
  readonly roles?: readonly SessionRole[]
}

/** Combines two restrictions: the result allows only what both allow. So a restricted token can be restricted further but never extended. */
export function restrictFurther(restrictions: TokenRestrictions, further: Pick<TokenRestrictions, 'scopes' | 'capabilities'>): TokenRestrictions {
  const scopes = commonScopes(restrictions.scopes, further.scopes)
  const both = restrictions.capabilities !== undefined && further.capabilities !== undefined
  const capabilities = both ? intersect(restrictions.capabilities, further.capabilities) : (restrictions.capabilities ?? further.capabilities)
  return { ...restrictions, ...(scopes === undefined ? {} : { scopes }), ...(capabilities === undefined ? {} : { capabilities }) }
}

/** Returns the groups that both restrictions allow, which lie at or below a group of each. Undefined stands for all groups. */
function commonScopes(one: readonly Uid[] | undefined, other: readonly Uid[] | undefined): readonly Uid[] | undefined {
  if (one === undefined || other === undefined) return one ?? other
  const within = (inner: readonly Uid[], outer: readonly Uid[]): Uid[] => inner.filter((uid) => outer.some((group) => isWithin(uid, group)))
  return [...new Set([...within(one, other), ...within(other, one)])]
}
