import { clone, create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { decide } from '../../authz/reach.ts'
import { isSuspended } from '../../authz/suspended.ts'
import { setOf } from '../../core/capability.ts'
import { DomainError, type FieldViolation } from '../../core/errors.ts'
import { isUid, lineage, rootParent, trustedUid, type Uid } from '../../core/uid.ts'
import { RepoSchema, type Repo, type SyncConfig } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { Resource } from '../../snapshot/row.ts'
import type { Draft, Planning, Records } from '../kind.ts'
import type { RegistrySettings } from '../services.ts'
import { isPublicRepo } from './public-repos.ts'
import { findRepository } from './repo-paths.ts'

/** A repo as it is kept. */
export type RepoRecord = Repo & Resource

/** The longest name of a repository, in characters: an upstream's, and that of a path at the registry host (architecture 8). */
const maxRepositoryLength = 255

/** How long a repo stays in sync from the moment that it was set up, in milliseconds (rules 3.1). */
const syncLifeMs = 14 * 24 * 3600 * 1000

/** A sync that leads to another sync is followed so many times. */
const maxHops = 8

/** What a caller needs at a repo to sync from it: that is, to pull from it. */
const neededAtSource = setOf(['repo.list', 'manifest.list', 'repo.blobs.get'])

/** Throws code 3 where the new uid or the path is longer than a registry takes. */
export function assertReachable(planning: Planning, draft: Draft<RepoRecord>): void {
  const { services, snapshot } = planning
  const prefix = services.settings.registry?.upstreamPrefixLength ?? 0
  if (prefix + draft.uid.length > maxRepositoryLength) throw DomainError.invalid('parent', 'is too deep in the tree for a repo')
  let path = draft.record.name
  if (draft.parent !== rootParent) for (const group of lineage(draft.parent)) path = `${snapshot.get('Group', group)?.name ?? ''}/${path}`
  if (path.length > maxRepositoryLength) throw DomainError.invalid('name', `makes a path of more than ${maxRepositoryLength} characters`)
}

/** The fields that a synced repo takes from its source. */
function inheritedOf({ catalogTier, bundles, aliases, activeTags }: Repo): Pick<Repo, 'catalogTier' | 'bundles' | 'aliases' | 'activeTags'> {
  return { catalogTier, bundles, aliases, activeTags }
}

const inheritedNames = { catalogTier: 'catalog_tier', bundles: 'bundles', aliases: 'aliases', activeTags: 'active_tags' } as const satisfies Record<
  keyof ReturnType<typeof inheritedOf>,
  string
>

function repoAt(records: Records, uid: string): Repo | undefined {
  // A row of kind Repo holds a Repo.
  return records.get('Repo', uid)?.message as unknown as Repo | undefined
}

/** The repo whose own fields and readme `repo` shows: itself, or where it is synced the end of its chain of sources; undefined where that is gone. */
export function originOf(records: Records, repo: Repo): Repo | undefined {
  let at: Repo | undefined = repo
  for (let hops = 0; at?.syncConfig !== undefined; hops++) at = hops === maxHops ? undefined : repoAt(records, at.syncConfig.source)
  return at
}

/** What is shown of a repo: a synced one with what it inherits, as it is now. */
export function shownRepo(records: Records, record: RepoRecord): RepoRecord {
  if (record.syncConfig === undefined) return record
  const shown = clone(RepoSchema, record) as RepoRecord
  return Object.assign(shown, inheritedOf(originOf(records, record) ?? create(RepoSchema)))
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** A synced repo has no values of its own in what it inherits. One that sends back what it was shown, or had before, changes nothing. */
function settleInherited(planning: Planning, record: Repo, current: Repo | undefined): void {
  const empty = inheritedOf(create(RepoSchema))
  const given = inheritedOf(record)
  const origin = originOf(planning.snapshot, record)
  const accepted = [empty, ...(origin === undefined ? [] : [inheritedOf(origin)]), ...(current === undefined ? [] : [inheritedOf(current)])]
  const violations: FieldViolation[] = []
  for (const [key, field] of Object.entries(inheritedNames) as [keyof typeof inheritedNames, string][]) {
    if (!accepted.some((values) => isSame(values[key], given[key]))) violations.push({ field, description: 'is inherited from the source of the sync' })
  }
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  Object.assign(record, empty)
}

/** The path that an image reference or a name in the catalogue means: without the host, tag and digest. */
function pathOfReference(text: string, settings: RegistrySettings | undefined): string {
  const path = settings !== undefined && text.startsWith(`${settings.host}/`) ? text.slice(settings.host.length + 1) : text
  const bare = path.replace(/@[a-z0-9]+:[0-9a-f]+$/, '').replace(/:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$/, '')
  return bare.includes('/') || settings?.publicOrganization === undefined ? bare : `${settings.publicOrganization}/${bare}`
}

/** The repo that a text means: its uid, its name in the catalogue (a repo of the public organisation), or a reference to an image in it. */
function namedSource(planning: Planning, text: string): Repo | undefined {
  const { snapshot, services } = planning
  if (isUid(text)) return repoAt(snapshot, text)
  const target = findRepository(snapshot, pathOfReference(text, services.settings.registry))
  return target?.kind === 'repo' ? repoAt(snapshot, target.uid) : undefined
}

/** Whether the caller may pull from a repo: by their rights, unless the organisation is closed to its members, or because everybody may. */
function mayPull({ snapshot, services, reach }: Planning, repo: Uid): boolean {
  const isOpen = reach.operator || !isSuspended(snapshot, repo)
  return (isOpen && decide(reach, repo, neededAtSource).kind === 'allowed') || isPublicRepo(snapshot, services.settings.registry?.publicOrganization, repo)
}

/** The repo that a sync is to copy from, where the caller may pull there. Foreign and missing are the same code 3. */
function resolveSource(planning: Planning, draft: Draft<RepoRecord>, text: string): Repo {
  const source = namedSource(planning, text)
  if (source === undefined || !mayPull(planning, trustedUid(source.uid))) throw DomainError.invalid('sync_config.source', 'is no repo that you may pull from')
  if (source.uid === draft.uid) throw DomainError.invalid('sync_config.source', 'must be another repo')
  return source
}

/** Fills in what the server owns of a sync. */
function settleServerOwned(sync: SyncConfig, kept: SyncConfig | undefined, nowMs: number): void {
  sync.expirationTime = kept?.expirationTime ?? timestampFromMs(nowMs + syncLifeMs)
  sync.uniqueTags = kept?.uniqueTags ?? false
  sync.gracePeriod = kept?.gracePeriod ?? false
  sync.apkoOverlay = kept?.apkoOverlay ?? ''
}

/** Checks and completes where a repo is copied from (rules 3.1). A sync that is not changed stays valid when its source or the right to it is gone. */
export function settleSync(planning: Planning, draft: Draft<RepoRecord>, current: Repo | undefined): void {
  const { record } = draft
  const { syncConfig: sync } = record
  if (sync === undefined) return
  const before = current?.syncConfig
  if (sync.source !== before?.source) {
    const source = resolveSource(planning, draft, sync.source)
    sync.source = source.uid
    if (record.description === '' && source.uid !== before?.source) record.description = source.description
  }
  settleServerOwned(sync, sync.source === before?.source ? before : undefined, planning.nowMs)
  settleInherited(planning, record, current)
}
