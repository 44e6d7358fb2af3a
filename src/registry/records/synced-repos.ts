import { clone, create } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import { isNamed } from '../../base/schema/field-mask.ts'
import { isUid, trustedUid, type Uid } from '../../base/uid.ts'
import { RepoSchema, type Repo, type SyncConfig } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { MutationDraft, Planning, Records } from '../../engine/kind.ts'
import type { RegistrySettings } from '../../engine/services.ts'
import { factsOf, recordsOf } from '../../engine/shown.ts'
import { findRepository } from './repo-paths.ts'
import type { RepoRecord } from './repo-rules.ts'
import { identityOfSync, isInForce, maySync } from './sync-rights.ts'
import { messageOf } from '../../cache/records/record-types.ts'

/** Filter that selects the repos which are synced with a repo, by the uid of that repo. */
export const sourceFilter = 'source'

const dayMs = 24 * 3600 * 1000

/** How long a sync lasts, in milliseconds, from the time it was created or renewed. */
const syncLifeMs = 14 * dayMs

/** If a sync has less than this time left, in milliseconds, an update that names the source renews it. */
const renewalMs = 7 * dayMs

/** Maximum length of a chain of syncs, where each source is itself synced. */
const maxHops = 8

/** Returns the fields that a synced repo inherits from its source. */
function inheritedOf({ catalogTier, bundles, aliases, activeTags }: Repo): Pick<Repo, 'catalogTier' | 'bundles' | 'aliases' | 'activeTags'> {
  return { catalogTier, bundles, aliases, activeTags }
}

const inheritedNames = { catalogTier: 'catalog_tier', bundles: 'bundles', aliases: 'aliases', activeTags: 'active_tags' } as const satisfies Record<
  keyof ReturnType<typeof inheritedOf>,
  string
>

function repoAt(records: Pick<Records, 'get'>, uid: string): Repo | undefined {
  return records.get('Repo', uid)?.message
}

/**
 * Returns the repo whose fields and readme `repo` shows: itself, or for a synced repo the end of its chain of sources. Returns undefined
 * if a source is gone, or if a sync in the chain is not in force. All code that shows content of a source calls this.
 */
export function originOf(records: Records, repo: Repo): Repo | undefined {
  let at = repo
  for (let hops = 0; at.syncConfig !== undefined; hops++) {
    const [mirror, sync] = [trustedUid(at.uid), at.syncConfig]
    const isOpen = hops < maxHops && records.ask((facts) => isInForce(facts, mirror, sync))
    const source = isOpen ? repoAt(records, sync.source) : undefined
    if (source === undefined) return undefined
    at = source
  }
  return at
}

/** Returns the identities whose rights the syncs of `record` and of the chain behind it depend on. originOf checks these rights. */
export function mirroringIdentities(tables: RecordTables, record: CachedRecord): Uid[] {
  const repos = tables.table('Repo')
  const identities: Uid[] = []
  let at: CachedRecord | undefined = record
  for (let hops = 0; at !== undefined && hops < maxHops; hops++) {
    const source = repos.valueOf(at, sourceFilter)
    if (source === undefined) break
    identities.push(trustedUid(messageOf(at, 'Repo').syncConfig?.identityUid ?? ''))
    at = tables.get('Repo', source)
  }
  return identities
}

/** Returns a repo as callers see it; a synced repo has the current fields of its source. */
export function shownRepo(records: Records, record: RepoRecord): RepoRecord {
  if (record.syncConfig === undefined) return record
  const shown = clone(RepoSchema, record)
  return Object.assign(shown, inheritedOf(originOf(records, record) ?? create(RepoSchema)))
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/**
 * Clears the inherited fields of a synced repo. A request may send the values that it was shown, or earlier ones: they change nothing.
 * Other values throw code 3.
 */
function settleInherited({ services }: Planning, { uid, record }: MutationDraft<RepoRecord>, current: Repo | undefined): void {
  const empty = inheritedOf(create(RepoSchema))
  const given = inheritedOf(record)
  const origin = originOf(recordsOf(services), { ...record, uid })
  const accepted = [empty, ...(origin === undefined ? [] : [inheritedOf(origin)]), ...(current === undefined ? [] : [inheritedOf(current)])]
  const violations: FieldViolation[] = []
  for (const [key, field] of Object.entries(inheritedNames) as [keyof typeof inheritedNames, string][]) {
    if (!accepted.some((values) => isSame(values[key], given[key])))
      violations.push({ field, description: 'is inherited from the source of the sync: change it there' })
  }
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  Object.assign(record, empty)
}

/** Returns the path of an image reference, or of a name in the catalogue, without the host, tag and digest. */
function pathOfReference(text: string, settings: RegistrySettings | undefined): string {
  const path = settings !== undefined && text.startsWith(`${settings.host}/`) ? text.slice(settings.host.length + 1) : text
  const bare = path.replace(/@[a-z0-9]+:[0-9a-f]+$/, '').replace(/:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$/, '')
  return bare.includes('/') || settings?.publicOrganization === undefined ? bare : `${settings.publicOrganization}/${bare}`
}

/** Finds a repo by its uid, by a name in the catalogue (a repo of the public organisation), or by an image reference. */
function namedSource(planning: Planning, text: string): Repo | undefined {
  const { tables, services } = planning
  if (isUid(text)) return repoAt(tables, text)
  const target = findRepository(tables, pathOfReference(text, services.settings.registry))
  return target?.kind === 'repo' ? repoAt(tables, target.uid) : undefined
}

/** Returns the source repo of a sync. Throws code 3 if the caller may not sync with it, and the same if it does not exist. */
function resolveSource(planning: Planning, mirror: Uid, text: string): Repo {
  const source = namedSource(planning, text)
  const maySet = source !== undefined && maySync(planning, factsOf(planning.services), { mirror, source: trustedUid(source.uid) })
  if (!maySet) throw DomainError.invalid('sync_config.source', 'is not a repo that you may pull from')
  if (source.uid === mirror) throw DomainError.invalid('sync_config.source', 'must be another repo')
  return source
}

/** Returns true if the request names the source, even if it is the same as before. */
function namesSource({ paths }: MutationDraft<RepoRecord>): boolean {
  return paths === undefined || paths.includes('*') || isNamed(paths, 'sync_config') || isNamed(paths, 'sync_config.source')
}

/** Returns true if a sync is not in force, or expires soon. */
function isDue(planning: Planning, mirror: Uid, sync: SyncConfig): boolean {
  const endMs = sync.expirationTime === undefined ? 0 : timestampMs(sync.expirationTime)
  return endMs - planning.nowMs < renewalMs || !isInForce(factsOf(planning.services), mirror, sync)
}

/**
 * Returns true if this write creates or renews the sync. It does with another source, or with the same source if the sync is due and the
 * caller may sync.
 */
function isSetUp(planning: Planning, draft: MutationDraft<RepoRecord>, { sync, before }: { sync: SyncConfig; before: SyncConfig | undefined }): boolean {
  if (sync.source !== before?.source) return true
  if (!namesSource(draft) || !isDue(planning, draft.uid, before)) return false
  return maySync(planning, factsOf(planning.services), { mirror: draft.uid, source: trustedUid(sync.source) })
}

/** Sets the fields of a sync that only the server may set. */
function settleServerOwned(planning: Planning, sync: SyncConfig, kept: SyncConfig | undefined): void {
  sync.expirationTime = kept?.expirationTime ?? timestampFromMs(planning.nowMs + syncLifeMs)
  sync.identityUid = kept?.identityUid ?? identityOfSync(planning)
  sync.uniqueTags = kept?.uniqueTags ?? false
  sync.gracePeriod = kept?.gracePeriod ?? false
  sync.apkoOverlay = kept?.apkoOverlay ?? ''
}

/**
 * Checks and completes the sync of a repo. A write that does not create or renew the sync leaves it unchanged, even if the source or its
 * permission is gone. Throws code 3 on `sync_config.source` and on inherited fields.
 */
export function settleSync(planning: Planning, draft: MutationDraft<RepoRecord>, current: Repo | undefined): void {
  const { record, uid } = draft
  const { syncConfig: sync } = record
  if (sync === undefined) return
  const before = current?.syncConfig
  let kept = before
  if (isSetUp(planning, draft, { sync, before })) {
    const source = resolveSource(planning, uid, sync.source)
    const isOther = before === undefined || source.uid !== before.source
    sync.source = source.uid
    if (record.description === '' && isOther) record.description = source.description
    if (isOther || isDue(planning, uid, before)) kept = undefined
  }
  settleServerOwned(planning, sync, kept)
  settleInherited(planning, draft, current)
}
