import type { UnservedRoute } from '../transport/http/http-api.ts'

/** Methods of version 1 that no known client needs, with their REST routes, if they have any. A literal path is found before that of another method. */
const unserved: Readonly<Record<string, string>> = {
  'events.v1.Identities/Create': 'POST /iam/v1/identities',
  'events.v1.Identities/UpdateMetadata': 'PATCH /iam/v1/identities/metadata',
  'iam.v1.GroupInvites/CreateWithGroup': '',
  'registry.v1.Apko/BuildImage': 'POST /apko/v1/build/{repo_uidp=**}',
  'registry.v1.Apko/ResolveConfig': 'POST /apko/v1/resolve/{repo_uidp=**}',
  'registry.v1.Registry/GetBuildStatus': 'GET /registry/v1/buildstatus',
  'registry.v1.Registry/GetRawSbom': 'GET /registry/v1/repos/{repo_id=**}/digest/{digest=*}/rawsbom',
  'registry.v1.Registry/GetSbom': 'GET /registry/v1/repos/{repo_id=**}/digests/{digest=*}/sbom',
  'registry.v1.Registry/GetUpdateStatus': 'GET /registry/v1/repos/{repo_id=**}:updatestatus',
  'registry.v1.Registry/ListBuildReports': 'GET /registry/v1/buildreports',
  'registry.v1.Registry/ListManifestMetadata': 'GET /registry/v1/repos/{repo_id=**}/manifestmetdata',
}

/** The names of the methods of version 1 that are not served, without the prefix of packages. They are code 12 (docs/spec/version-1.md#methods). */
export const unservedMethods: readonly string[] = Object.keys(unserved)

/** The REST routes of these methods. */
export const unservedRoutes: readonly UnservedRoute[] = Object.entries(unserved).flatMap(([name, route]) => {
  const [verb = '', template = ''] = route.split(' ')
  return route === '' ? [] : [{ name, verb, template }]
})
