import {
  ArchsSchema as ArchsV1,
  CatalogTier as TierV1,
  CustomOverlay_Accounts_GroupSchema as UserGroupV1,
  CustomOverlay_Accounts_UserSchema as UserV1,
  CustomOverlay_AccountsSchema as AccountsV1,
  CustomOverlay_Certificates_AdditionalEntrySchema as CertificateV1,
  CustomOverlay_CertificatesSchema as CertificatesV1,
  CustomOverlay_ImageContents_RuntimeKeyringEntrySchema as KeyringV1,
  CustomOverlay_ImageContentsSchema as ContentsV1,
  CustomOverlaySchema as OverlayV1,
  GetArchsRequestSchema as GetArchsV1,
  GetSizeRequestSchema as GetSizeV1,
  ListReposRequestSchema as ListReposV1,
  ListTagsRequestSchema as ListTagsV1,
  RepoSchema as RepoV1,
  SizeSchema as SizeV1,
  SyncConfigSchema as SyncV1,
  TagSchema as TagV1,
} from '../gen/taproot/registry/v1/registry_pb.ts'
import {
  CatalogTier,
  CustomOverlay_Accounts_GroupSchema,
  CustomOverlay_Accounts_UserSchema,
  CustomOverlay_AccountsSchema,
  CustomOverlay_Certificates_AdditionalEntrySchema,
  CustomOverlay_CertificatesSchema,
  CustomOverlay_ImageContents_RuntimeKeyringEntrySchema,
  CustomOverlay_ImageContentsSchema,
  CustomOverlaySchema,
  ListReposRequestSchema,
  RepoSchema,
  SyncConfigSchema,
} from '../gen/taproot/registry/v2/repos_pb.ts'
import { ArchitecturesSchema, GetArchitecturesRequestSchema, GetSizeRequestSchema, SizeSchema } from '../gen/taproot/registry/v2/images_pb.ts'
import { ListTagsRequestSchema, TagSchema } from '../gen/taproot/registry/v2/tags_pb.ts'
import { defineMap, paging, unmapped, type FieldConverter } from './field-map.ts'

/** The tiers of the catalogue, whose numbers differ. */
const tiers: readonly (readonly [v1: TierV1, v2: CatalogTier])[] = [
  [TierV1.UNKNOWN, CatalogTier.UNSPECIFIED],
  [TierV1.APPLICATION, CatalogTier.APPLICATION],
  [TierV1.BASE, CatalogTier.BASE],
  [TierV1.FIPS, CatalogTier.FIPS],
  [TierV1.AI, CatalogTier.AI],
  [TierV1.DEVTOOLS, CatalogTier.DEVTOOLS],
  [TierV1.COMMERCIAL, CatalogTier.COMMERCIAL],
]

/** A number that no tier of version 2 has, so that its constraint refuses it. */
const unknownTier = -1

const tier: FieldConverter = {
  toV1: (value) => tiers.find(([, v2]) => v2 === value)?.[0] ?? TierV1.UNKNOWN,
  toV2: (value) => tiers.find(([v1]) => v1 === value)?.[1] ?? unknownTier,
}

const syncConfig = defineMap(SyncV1, SyncConfigSchema, {
  source: 'source',
  unique_tags: 'unique_tags',
  expiration: 'expiration_time',
  google: 'google',
  amazon: 'amazon',
  azure: 'azure',
  sync_apks: unmapped,
  apko_overlay: 'apko_overlay',
  grace_period: 'grace_period',
})

const keyring = defineMap(KeyringV1, CustomOverlay_ImageContents_RuntimeKeyringEntrySchema, { name: 'name', content: 'content' })

const contents = defineMap(ContentsV1, CustomOverlay_ImageContentsSchema, {
  packages: 'packages',
  runtime_repositories: 'runtime_repositories',
  runtime_keyring: { to: 'runtime_keyring', by: keyring },
})

const user = defineMap(UserV1, CustomOverlay_Accounts_UserSchema, {
  username: 'username',
  uid: 'uid',
  gid: 'gid',
  group_name: 'group_name',
  shell: 'shell',
  home_dir: 'home_dir',
})

const userGroup = defineMap(UserGroupV1, CustomOverlay_Accounts_GroupSchema, { groupname: 'groupname', gid: 'gid', members: 'members' })

const accounts = defineMap(AccountsV1, CustomOverlay_AccountsSchema, {
  run_as: 'run_as',
  users: { to: 'users', by: user },
  groups: { to: 'groups', by: userGroup },
})

const certificate = defineMap(CertificateV1, CustomOverlay_Certificates_AdditionalEntrySchema, { name: 'name', content: 'content' })

const certificates = defineMap(CertificatesV1, CustomOverlay_CertificatesSchema, {
  additional: { to: 'additional', by: certificate },
  providers: 'providers',
})

const overlay = defineMap(OverlayV1, CustomOverlaySchema, {
  contents: { to: 'contents', by: contents },
  environment: 'environment',
  annotations: 'annotations',
  accounts: { to: 'accounts', by: accounts },
  certificates: { to: 'certificates', by: certificates },
})

/** A repo. Its readme is a record of its own in version 2. */
export const repoMap = defineMap(RepoV1, RepoSchema, {
  id: 'uid',
  name: 'name',
  catalog_tier: { to: 'catalog_tier', by: tier },
  bundles: 'bundles',
  readme: unmapped,
  sync_config: { to: 'sync_config', by: syncConfig },
  custom_overlay: { to: 'custom_overlay', by: overlay },
  aliases: 'aliases',
  create_time: 'create_time',
  active_tags: 'active_tags',
  description: 'description',
})

/** The filters of a list of repos. */
export const repoFilters = defineMap(ListReposV1, ListReposRequestSchema, { uidp: 'uidp', name: 'name', id: unmapped, ...paging })

/** A tag. */
export const tagMap = defineMap(TagV1, TagSchema, {
  id: 'uid',
  name: 'name',
  digest: 'digest',
  last_updated: 'update_time',
  deprecated: 'deprecated',
  bundles: 'bundles',
})

/** Converts a flag that leaves tags out to one that includes them. */
const inverted: FieldConverter = { toV1: (value) => value !== true, toV2: (value) => value !== true }

/** The filters of a list of tags. */
export const tagFilters = defineMap(ListTagsV1, ListTagsRequestSchema, {
  uidp: 'uidp',
  name: 'name',
  updated_since: 'updated_since',
  exclude_referrers: { to: 'include_referrers', by: inverted },
  exclude_dates: { to: 'include_dates', by: inverted },
  exclude_epochs: { to: 'include_epochs', by: inverted },
  id: unmapped,
  digest: 'digest',
  ...paging,
})

const image = { repo_id: 'repo_uid', digest: 'digest' }

/** The architectures of an image. */
export const archMaps = {
  request: defineMap(GetArchsV1, GetArchitecturesRequestSchema, image),
  answer: defineMap(ArchsV1, ArchitecturesSchema, { archs: 'architectures' }),
}

/** The size of an image. */
export const sizeMaps = {
  request: defineMap(GetSizeV1, GetSizeRequestSchema, { ...image, arch: 'architecture' }),
  answer: defineMap(SizeV1, SizeSchema, { size: 'size', arch: 'architecture' }),
}
