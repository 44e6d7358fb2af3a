/** The kinds of record in a group, other than groups, in the order in which they are drawn. */
export const leafKinds = ['identities', 'roles', 'roleBindings', 'repos'] as const

/** One of leafKinds. */
export type LeafKind = (typeof leafKinds)[number]

/** A record in a group, other than a group. */
export interface Leaf {
  readonly uid: string
  /** Name of the record; role bindings have none. */
  readonly name?: string
  /** Names of a role binding's role and identity. A person without a name is shown by e-mail address, subject or uid. */
  readonly role?: string
  readonly identity?: string
  /** Number of tags of a repo. */
  readonly tags?: number
}

/** A group and its contents. The contents are read when the group is opened. */
export interface Branch extends Named {
  /**
   * False if the contents were not read, because of the requested depth or the limit of groups. Then the counts are zero and the lists
   * empty.
   */
  opened: boolean
  /** Total numbers of records by kind. The lists contain only the first records. */
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

/** The topmost groups, and the contents of those that were opened. */
export interface Forest {
  /** Total number of topmost groups. `groups` contains the first ones. */
  readonly count: number
  readonly groups: readonly Branch[]
}

/** Returns a group whose contents are not read yet. */
export function closedBranch({ uid, name }: Named): Branch {
  const counts = { groups: 0, identities: 0, roles: 0, roleBindings: 0, repos: 0 }
  return { uid, name, opened: false, counts, identities: [], roles: [], roleBindings: [], repos: [], groups: [] }
}
