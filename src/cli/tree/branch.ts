/** The kinds of records in groups, other than groups, in drawing order. */
export const leafKinds = ['identities', 'roles', 'roleBindings', 'repos'] as const

/** See leafKinds. */
export type LeafKind = (typeof leafKinds)[number]

/** A record in a group. */
export interface Leaf {
  readonly uid: string
  /** Present on all kinds but role bindings. */
  readonly name?: string
  /** Names of a role binding's role and identity. A person without a name is shown by e-mail, subject or uid. */
  readonly role?: string
  readonly identity?: string
  /** The number of a repo's tags. */
  readonly tags?: number
}

/** A group and its contents, which are filled in when the group is opened. */
export interface Branch extends Named {
  /** False if the group was not read: it is below the requested depth, or the limit of groups was reached. Then its counts are zero and its lists empty. */
  opened: boolean
  /** The total numbers. The lists hold the first records. */
  counts: Readonly<Record<LeafKind | 'groups', number>>
  identities: readonly Leaf[]
  roles: readonly Leaf[]
  roleBindings: readonly Leaf[]
  repos: readonly Leaf[]
  groups: readonly Branch[]
}

/** A group's uid and name. */
export interface Named {
  readonly uid: string
  readonly name: string
}

/** The topmost groups, and everything read below them. */
export interface Forest {
  /** The total number. `groups` holds the first ones. */
  readonly count: number
  readonly groups: readonly Branch[]
}

/** Returns a group that has not been read. */
export function closedBranch({ uid, name }: Named): Branch {
  const counts = { groups: 0, identities: 0, roles: 0, roleBindings: 0, repos: 0 }
  return { uid, name, opened: false, counts, identities: [], roles: [], roleBindings: [], repos: [], groups: [] }
}
