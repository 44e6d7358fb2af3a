import { intersect, type CapabilitySet } from '../../base/capability.ts'
import { isWithin, type Uid } from '../../base/uid.ts'

/** A role that a sign-in gave for as long as its token lives: the provider's mappings of the groups that the person is in (docs/spec/identities.md#mapped-sessions). */
export interface SessionRole {
  readonly group: Uid
  readonly role: Uid
}

/** How a token's rights differ from those of its identity. Absent members change nothing. */
export interface TokenRestrictions {
  readonly scopes?: readonly Uid[]
  readonly capabilities?: CapabilitySet
  /**
   * The groups whose identity providers authenticate the person (docs/spec/identities.md#trust-domain).
   * Only grants there or below count, and the caller is never an operator.
   */
  readonly trustedGroups?: readonly Uid[]
  /** The only member that adds: what it adds is cut by `scopes` and `capabilities`. */
  readonly roles?: readonly SessionRole[]
}

/** What both restrictions leave: a token that was restricted already can be restricted further, never widened. */
export function restrictFurther(restrictions: TokenRestrictions, further: Pick<TokenRestrictions, 'scopes' | 'capabilities'>): TokenRestrictions {
  const scopes = commonScopes(restrictions.scopes, further.scopes)
  const both = restrictions.capabilities !== undefined && further.capabilities !== undefined
  const capabilities = both ? intersect(restrictions.capabilities, further.capabilities) : (restrictions.capabilities ?? further.capabilities)
  return { ...restrictions, ...(scopes === undefined ? {} : { scopes }), ...(capabilities === undefined ? {} : { capabilities }) }
}

/** The groups that lie within one of either; undefined stands for all groups. */
function commonScopes(one: readonly Uid[] | undefined, other: readonly Uid[] | undefined): readonly Uid[] | undefined {
  if (one === undefined || other === undefined) return one ?? other
  const within = (inner: readonly Uid[], outer: readonly Uid[]): Uid[] => inner.filter((uid) => outer.some((group) => isWithin(uid, group)))
  return [...new Set([...within(one, other), ...within(other, one)])]
}
