/** What hangs in groups besides groups, in the order in which it is drawn. */
export const leafKinds = ['identities', 'roles', 'roleBindings', 'repos'] as const

/** See leafKinds. */
export type LeafKind = (typeof leafKinds)[number]

/** A record in a group. */
export interface Leaf {
  readonly uid: string
  /** Of all but role bindings. */
  readonly name?: string
  /** Of a role binding: the names of its role and identity; a person without a name is called by e-mail, subject or uid. */
  readonly role?: string
  readonly identity?: string
  /** Of a repo: how many tags it has. */
  readonly tags?: number
}

/** A group and what hangs in it; filled in when the group is opened. */
export interface Branch extends Named {
  /** False where it was not looked into: it is below the depth that was asked for, or too many were looked into before it. Its counts are zero then and its lists empty. */
  opened: boolean
  /** How many there are, of which the lists hold the first. */
  counts: Readonly<Record<LeafKind | 'groups', number>>
  identities: readonly Leaf[]
  roles: readonly Leaf[]
  roleBindings: readonly Leaf[]
  repos: readonly Leaf[]
  groups: readonly Branch[]
}

/** A group as it is named. */
export interface Named {
  readonly uid: string
  readonly name: string
}

/** Groups that are nobody's below, and all that was seen of them. */
export interface Forest {
  /** How many there are, of which `groups` are the first. */
  readonly count: number
  readonly groups: readonly Branch[]
}

/** A group that was not looked into yet. */
export function closedBranch({ uid, name }: Named): Branch {
  const counts = { groups: 0, identities: 0, roles: 0, roleBindings: 0, repos: 0 }
  return { uid, name, opened: false, counts, identities: [], roles: [], roleBindings: [], repos: [], groups: [] }
}
