import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../../support/test-server.ts'
import { noDigest } from '../asking.ts'
import type { Things } from '../world.ts'
import type { Codes, ReferenceRow } from './reference-row.ts'

/** A caller with all rights in a place learns which records exist there, and nothing about other places. */
const held = { names: 'digest', missing: noDigest, because: 'docs/spec/registry.md#content-ownership: bytes are looked up per repo' } as const
const after = (code: number): Codes => [0, code, code, code, code, code]
const heldOr = (code: number): Omit<ReferenceRow, 'field' | 'method' | 'request'> => ({ ...held, root: after(code), subgroup: after(code) })
const repo = (own: Things, value: string): JsonObject => ({ repoUid: own.repo, digest: value })
const source = {
  method: 'ReposService/CreateRepo',
  root: [0, 0, 0, 3, 3, 3],
  subgroup: [0, 3, 3, 3, 3, 3],
  because: 'docs/spec/registry.md#mirror-rights: who may pull there',
} as const
const synced = (value: string, own: Things): JsonObject => ({ parent: own.place, repo: { name: freshName('synced'), syncConfig: { source: value } } })
const syncedV1 = (value: string, own: Things): JsonObject => ({ parentId: own.place, repo: { name: freshName('synced'), sync_config: { source: value } } })

/** Fields of the registry that name a second record. */
export const registryReferences: readonly ReferenceRow[] = [
  {
    field: 'registry.v2.DryRunPullPolicyRequest.replaces',
    method: 'PullPoliciesService/DryRunPullPolicy',
    names: 'pullPolicy',
    request: (replaces, own) => ({ parent: own.place, replaces }),
    root: after(5),
    subgroup: after(5),
    because: 'docs/spec/registry.md#dry-runs: a policy of the group',
  },
  { field: 'registry.v2.SyncConfig.source', names: 'repo', request: synced, ...source },
  { field: 'registry.v2.SyncConfig.source', names: 'repoPath', request: synced, missing: () => `${freshName('unknown')}/repo`, ...source },
  {
    field: 'registry.v2.EndMirrorRequest.mirror_uid',
    method: 'ReposService/EndMirror',
    names: 'mirror',
    request: (mirrorUid, own) => ({ parent: own.repo, mirrorUid }),
    root: [0, 5, 5, 5, 5, 5],
    subgroup: [0, 5, 5, 5, 5, 5],
    because: 'a mirror is ended by who may change its source',
  },
  {
    ...heldOr(9),
    field: 'registry.v1.Tag.digest',
    method: 'Registry/CreateTag',
    request: (digest, own) => ({ repoId: own.repo, tag: { name: 'made', digest } }),
  },
  { ...source, field: 'registry.v1.SyncConfig.source', names: 'repo', method: 'Registry/CreateRepo', request: syncedV1 },
  {
    ...heldOr(9),
    field: 'registry.v2.Tag.digest',
    method: 'TagsService/CreateTag',
    request: (digest, own) => ({ parent: own.repo, tag: { name: 'made', digest } }),
  },
  {
    field: 'registry.v2.RestoreTagRequest.digest',
    method: 'TagHistoryService/RestoreTag',
    request: (digest, own) => ({ ...repo(own, digest), tag: 'latest' }),
    ...heldOr(9),
  },
  ...['Registry/GetArchs', 'Registry/GetImageConfig', 'Registry/GetSize', 'Registry/GetVulnReport'].map((method): ReferenceRow => ({
    field: `registry.v1.${method.split('/')[1] ?? ''}Request.digest`,
    method,
    request: (digest, own) => ({ repoId: own.repo, digest }),
    ...heldOr(5),
  })),
  ...[
    ...['ImagesService/GetArchitectures', 'ImagesService/GetSize', 'ContentsService/ListPackages', 'ContentsService/ListVulnerabilities'],
    ...['VulnReportsService/GetVulnReport', 'VulnReportsService/ListVulnReports', 'VulnReportsService/GetRawVulnReport'],
    'VulnReportsService/ListScannerReports',
  ].map((method): ReferenceRow => ({
    field: `registry.v2.${method.split('/')[1] ?? ''}Request.digest`,
    method,
    request: (digest, own) => repo(own, digest),
    ...heldOr(5),
  })),
]
