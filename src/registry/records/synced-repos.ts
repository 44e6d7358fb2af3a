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

/** The filter that finds the repos which are synced with a repo, by its uid. */
export const sourceFilter = 'source'

const dayMs = 24 * 3600 * 1000

/** How long a sync lasts from the moment that it was set up. */
const syncLifeMs = 14 * dayMs

/** An update that names the source sets the sync up again where less than this is left. */
const renewalMs = 7 * dayMs

/** A sync that leads to another sync is followed so many times. */
const maxHops = 8

/** The fields that a synced repo takes from its source. */
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
 * The repo whose own fields and readme `repo` shows: itself, or where it is synced the end of its chain of sources. Undefined where a source is gone, or a sync on the
 * way is not in force. Everything that shows something of a source asks here.
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

/** The identities under whose rights `record` and the mirrors that it leads to show their sources: originOf asks what they may. */
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

/** What is shown of a repo: a synced one with what it inherits, as it is now. */
export function shownRepo(records: Records, record: RepoRecord): RepoRecord {
  if (record.syncConfig === undefined) return record
  const shown = clone(RepoSchema, record)
  return Object.assign(shown, inheritedOf(originOf(records, record) ?? create(RepoSchema)))
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** A synced repo has no values of its own in what it inherits. One that sends back what it was shown, or had before, changes nothing. */
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

/** The path that an image reference or a name in the catalogue means: without the host, tag and digest. */
function pathOfReference(text: string, settings: RegistrySettings | undefined): string {
  const path = settings !== undefined && text.startsWith(`${settings.host}/`) ? text.slice(settings.host.length + 1) : text
  const bare = path.replace(/@[a-z0-9]+:[0-9a-f]+$/, '').replace(/:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$/, '')
  return bare.includes('/') || settings?.publicOrganization === undefined ? bare : `${settings.publicOrganization}/${bare}`
}

/** Resolves a text to a repo. The text is a uid, a name in the catalogue (a repo of the public organisation), or a reference to an image in the repo. */
function namedSource(planning: Planning, text: string): Repo | undefined {
  const { tables, services } = planning
  if (isUid(text)) return repoAt(tables, text)
  const target = findRepository(tables, pathOfReference(text, services.settings.registry))
  return target?.kind === 'repo' ? repoAt(tables, target.uid) : undefined
}

/** The repo that a sync is to copy from, where the caller may set up a sync with it. Foreign and missing are the same code 3. */
function resolveSource(planning: Planning, mirror: Uid, text: string): Repo {
  const source = namedSource(planning, text)
  const maySet = source !== undefined && maySync(planning, factsOf(planning.services), { mirror, source: trustedUid(source.uid) })
  if (!maySet) throw DomainError.invalid('sync_config.source', 'is not a repo that you may pull from')
  if (source.uid === mirror) throw DomainError.invalid('sync_config.source', 'must be another repo')
  return source
}

/** True where the request says what the source is, even if it is the same as before. */
function namesSource({ paths }: MutationDraft<RepoRecord>): boolean {
  return paths === undefined || paths.includes('*') || isNamed(paths, 'sync_config') || isNamed(paths, 'sync_config.source')
}

/** True where a sync shows nothing, or will not for much longer. */
function isDue(planning: Planning, mirror: Uid, sync: SyncConfig): boolean {
  const endMs = sync.expirationTime === undefined ? 0 : timestampMs(sync.expirationTime)
  return endMs - planning.nowMs < renewalMs || !isInForce(factsOf(planning.services), mirror, sync)
}

/** Whether this write sets the sync up: with another source, or again with the same one where that is due and the caller may. */
function isSetUp(planning: Planning, draft: MutationDraft<RepoRecord>, { sync, before }: { sync: SyncConfig; before: SyncConfig | undefined }): boolean {
  if (sync.source !== before?.source) return true
  if (!namesSource(draft) || !isDue(planning, draft.uid, before)) return false
  return maySync(planning, factsOf(planning.services), { mirror: draft.uid, source: trustedUid(sync.source) })
}

/** Fills in what the server owns of a sync. */
function settleServerOwned(planning: Planning, sync: SyncConfig, kept: SyncConfig | undefined): void {
  sync.expirationTime = kept?.expirationTime ?? timestampFromMs(planning.nowMs + syncLifeMs)
  sync.identityUid = kept?.identityUid ?? identityOfSync(planning)
  sync.uniqueTags = kept?.uniqueTags ?? false
  sync.gracePeriod = kept?.gracePeriod ?? false
  sync.apkoOverlay = kept?.apkoOverlay ?? ''
}

/**
 * Checks and completes where a repo is copied from. A write that does not set the sync up leaves it as it is, also where its source, or the right to that, is gone. Throws
 * code 3 on `sync_config.source` and on fields that are inherited.
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
