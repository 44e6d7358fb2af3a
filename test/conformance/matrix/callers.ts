/**
 * Where a record is, seen from the group `own` of a tenant.
 * It is in `own`, in the tenant's root group above it, in a sibling group, or in another tenant.
 * Or it is nowhere: under an unknown uid, in `own` or in a tenant that does not exist.
 */
export const places = ['own', 'ancestor', 'sibling', 'other', 'missing in own', 'missing'] as const
export type Place = (typeof places)[number]

/** The places with records. */
export const realPlaces = ['own', 'ancestor', 'sibling', 'other'] as const satisfies readonly Place[]
export type RealPlace = (typeof realPlaces)[number]

/** The rights of a caller in a place: a built-in role of proto/roles.tsv, every capability, or none. */
export type Standing = 'viewer' | 'editor' | 'owner' | 'registry.pull' | 'everything' | '-'

/** A caller, and its rights in each place. */
export interface CallerRow {
  readonly standing: Readonly<Record<RealPlace, Standing>>
  /** The capabilities that the token is restricted to, if any. */
  readonly only?: readonly string[]
  /** True if there is no token. */
  readonly anonymous?: true
  /** The reason, if the rest of the row does not show it. */
  readonly because: string
}

function at(own: Standing, ancestor: Standing, sibling: Standing, other: Standing): CallerRow['standing'] {
  return { own, ancestor, sibling, other }
}

/** The callers. A role at the root group holds in all groups below it. A role at a subgroup holds there and below, not in siblings or above. */
export const callers = {
  //                                                        own              ancestor      sibling       other
  'an anonymous caller': {
    standing: /*              */ at('-', '-', '-', '-'),
    anonymous: true,
    because: 'docs/spec/conventions.md#public-methods: every request carries a token',
  },
  'a person without any binding': { standing: /*         */ at('-', '-', '-', '-'), because: 'docs/spec/iam.md#live-rights: access is granted by bindings' },
  "another tenant's owner": { standing: /*               */ at('-', '-', '-', 'owner'), because: 'docs/spec/iam.md#live-rights' },
  'a viewer of the root': { standing: /*                 */ at('viewer', 'viewer', 'viewer', '-'), because: 'docs/spec/iam.md#live-rights' },
  'an editor of the root': { standing: /*                */ at('editor', 'editor', 'editor', '-'), because: 'docs/spec/iam.md#live-rights' },
  'an owner of the root': { standing: /*                 */ at('owner', 'owner', 'owner', '-'), because: 'docs/spec/iam.md#live-rights' },
  'a viewer of the subgroup': {
    standing: /*             */ at('viewer', '-', '-', '-'),
    because: 'docs/spec/iam.md#live-rights: a grant reaches what is below it',
  },
  'an editor of the subgroup': { standing: /*            */ at('editor', '-', '-', '-'), because: 'docs/spec/iam.md#live-rights' },
  'an owner of the subgroup': { standing: /*             */ at('owner', '-', '-', '-'), because: 'docs/spec/iam.md#live-rights' },
  'a viewer of the root who owns the subgroup': { standing: at('owner', 'viewer', 'viewer', '-'), because: 'docs/spec/iam.md#live-rights: grants add up' },
  'an identity of the subgroup': {
    standing: /*          */ at('owner', '-', '-', '-'),
    because: 'docs/spec/iam.md#reach: scoped to it, though a binding makes it owner above',
  },
  'a pull token of the subgroup': {
    standing: /*         */ at('registry.pull', '-', '-', '-'),
    because: 'docs/spec/iam.md#reach, for an identity with registry.pull',
  },
  'an owner, cut to groups.list': {
    standing: /*         */ at('owner', 'owner', 'owner', '-'),
    only: ['groups.list'],
    because: 'docs/spec/tokens.md#narrowing: cap narrows',
  },
  'an owner, cut to the subgroup': { standing: /*        */ at('owner', '-', '-', '-'), because: 'docs/spec/tokens.md#narrowing: scopes narrow' },
  'an owner, cut to another tenant': {
    standing: /*      */ at('-', '-', '-', '-'),
    because: 'docs/spec/tokens.md#narrowing: a group with no binding is left out',
  },
  'a mapped viewer': {
    standing: /*                      */ at('viewer', 'viewer', 'viewer', '-'),
    because: 'docs/spec/identities.md#mapped-sessions: a role of the session',
  },
  'an owner everywhere, by the provider of the subgroup': {
    standing: at('-', '-', '-', '-'),
    because: 'docs/spec/identities.md#trust-domain: what was granted above is out of its reach',
  },
  // The person who creates a root group owns it. The operator created this one, and only that binding counts.
  'an operator, by a provider': {
    standing: /*           */ at('owner', 'owner', 'owner', '-'),
    because: 'docs/spec/identities.md#trust-domain: no caller of a provider is an operator',
  },
  'an operator': { standing: /*                          */ at('everything', 'everything', 'everything', 'everything'), because: 'docs/spec/iam.md#operators' },
} as const satisfies Readonly<Record<string, CallerRow>>

export type CallerName = keyof typeof callers

/** All rows, in order. */
export const callerRows = Object.entries(callers) as [CallerName, CallerRow][]
