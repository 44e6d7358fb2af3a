import { RepoSchema } from '../../gen/taproot/registry/v2/repos_pb.ts'
import type { KindIndex, CachedRecord } from '../../cache/records/cached-record.ts'
import { cascadeKey } from '../../store/keys.ts'
import { defineKind, type Extra, type Planning } from '../../engine/kind.ts'
import { assertOverlay } from './overlay-rules.ts'
import { readmeKey } from '../readme/readme.ts'
import { deploymentKey } from './deployments.ts'
import { assertReachable, type RepoRecord } from './repo-rules.ts'
import { mirroringIdentities, settleSync, shownRepo, sourceFilter } from './synced-repos.ts'

const index: KindIndex = {
  kind: 'Repo',
  desc: RepoSchema,
  name: 'name',
  foundByPath: true,
  filters: { [sourceFilter]: { field: 'sync_config.source', of: 'Repo' } },
  removedWith: [],
}

/** Key prefix of deleted repos whose bytes are still in the upstream. */
export const removedRepoPrefix = 'x/removed-repo/'

/**
 * Returns the key which shows garbage collection that a deleted repo's bytes are still in the upstream. Its value is the time of the
 * deletion in milliseconds since 1970, as text.
 */
export function removedRepoKey(repo: string): string {
  return `${removedRepoPrefix}${repo}`
}

/**
 * Returns the writes for a repo's deletion. Its readme and its deployment are removed at once, its tags after the deletion mark, its bytes later. History is
 * kept (docs/spec/conventions.md#deletion-order).
 */
function removal(planning: Planning, record: CachedRecord): Extra {
  return {
    writes: [
      { kind: 'put', key: cascadeKey(record.uid), value: Buffer.from(index.kind) },
      { kind: 'put', key: removedRepoKey(record.uid), value: Buffer.from(String(planning.nowMs)) },
      { kind: 'delete', key: readmeKey(record.uid) },
      { kind: 'delete', key: deploymentKey(record.uid) },
    ],
  }
}

/** The kind Repo: images are pushed to it and pulled from it, as `<root group>/<subgroup>.../<name>` at the registry host. */
export const repoKind = defineKind<RepoRecord>({
  index,
  desc: RepoSchema,
  uniqueName: true,
  create(planning, draft) {
    assertReachable(planning, draft)
    settleSync(planning, draft, undefined)
    assertOverlay(draft.record.customOverlay)
    return undefined
  },
  update(planning, draft, current) {
    if (draft.record.name !== current.name) assertReachable(planning, draft)
    settleSync(planning, draft, current)
    assertOverlay(draft.record.customOverlay)
    return undefined
  },
  remove: removal,
  render: shownRepo,
  asksAbout: mirroringIdentities,
})
