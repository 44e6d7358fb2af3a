/** Valid uids: of a root, and of a record below it. */
export const rootUid = 'a'.repeat(40)
export const childUid = `${rootUid}/${'b'.repeat(16)}`

const parentRef = { name: 'web' }
const policies = { deletionPolicy: 'Orphan', adoptionPolicy: 'ByName' }
const records = { description: 'text', ...policies }
const account = { parentRef, name: 'ci', company: 'Example', ...records }
const claims = { claims: { team: 'web' }, claimPatterns: { ref: 'refs/.*' } }

/** Valid specs of every kind that together have every field. */
export const fullSpecs: Readonly<Record<string, readonly Readonly<Record<string, unknown>>[]>> = {
  PlatformGroup: [{ parentRef, name: 'web team', ...records }, { parentRef: { uid: childUid } }],
  PlatformIdentity: [
    { ...account, claimMatch: { issuer: 'https://idp.example', subject: 'ann', audience: 'taproot', ...claims } },
    { ...account, parentRef: { uid: rootUid }, claimMatch: { issuerPattern: 'https://.*', subjectPattern: 'a.*', audiencePattern: 'tap.*' } },
    {
      ...account,
      staticKeys: { issuer: 'https://idp.example', subject: 'ann', issuerKeys: '{"keys":[]}', expirationTime: '2030-01-01T00:00:00Z', audiences: ['taproot'] },
    },
    { ...account, awsIdentity: { awsAccount: '123456789012', arn: 'arn:aws:iam::1:role/x', userId: 'AID' } },
    { ...account, awsIdentity: { awsAccount: '123456789012', arnPattern: 'arn:.*', userIdPattern: 'AID.*' } },
    { ...account, serviceAccountRef: { name: 'builder', namespace: 'ci' } },
  ],
  PlatformRole: [
    { parentRef, name: 'deployer', capabilities: ['CAP_IAM_GROUPS_LIST'], ...records },
    { parentRef: { uid: rootUid }, capabilities: ['CAP_REPO_LIST'] },
  ],
  PlatformRoleBinding: [
    { parentRef, identityRef: { name: 'ci' }, roleRef: { name: 'deployer' }, ...policies },
    { parentRef: { uid: rootUid }, identityRef: { uid: childUid }, roleRef: { uid: childUid } },
    { parentRef, identityRef: { name: 'ci' }, roleRef: { builtIn: 'viewer' } },
  ],
  PlatformRepo: [
    {
      parentRef,
      name: 'nginx',
      ...records,
      catalogTier: 'CATALOG_TIER_BASE',
      bundles: ['base'],
      aliases: ['library/nginx:latest'],
      activeTags: ['latest'],
      productRules: [{ tagGlob: '3.*-slim', product: 'python', version: '3.*' }],
      syncConfig: { source: 'nginx', google: 'g', amazon: 'a', azure: 'z' },
      customOverlay: {
        contents: {
          packages: ['curl'],
          runtimeRepositories: ['https://packages.example'],
          runtimeKeyring: [{ name: 'key.rsa.pub', content: 'key' }],
        },
        environment: { PATH: '/bin' },
        annotations: { owner: 'web' },
        accounts: {
          runAs: 'app',
          users: [{ username: 'app', uid: 1000, gid: 1000, groupName: 'app', shell: '/bin/sh', homeDir: '/home/app' }],
          groups: [{ groupname: 'app', gid: 1000, members: ['app'] }],
        },
        certificates: { additional: [{ name: 'ca', content: 'pem' }], providers: ['ca-certificates'] },
      },
    },
    { parentRef: { uid: rootUid } },
  ],
  PlatformSubscription: [
    {
      parentRef,
      sink: 'https://hooks.example/taproot?team=web',
      types: ['dev.taproot.api.iam.', 'dev.taproot.registry.push.v1'],
      includePulls: true,
      ordered: true,
      signing: 'STANDARD_WEBHOOKS',
      suspend: true,
      deletionPolicy: 'Orphan',
      adoptionPolicy: 'Never',
    },
    { parentRef: { uid: childUid }, sink: 'https://hooks.example', signing: 'STANDARD_WEBHOOKS', secretName: 'hook' },
  ],
  PlatformNamespaceGrant: [
    {
      namespaceSelector: { matchNames: ['team-web'], matchLabels: { tier: 'gold' } },
      groupUid: rootUid,
      allowedKinds: ['PlatformRepo'],
      maxRole: { builtIn: 'editor' },
      allowAdoption: true,
      onNamespaceDelete: 'Delete',
    },
    { namespaceSelector: {}, groupUid: '/', allowedKinds: ['PlatformGroup'], maxRole: { uid: childUid } },
  ],
}

/** A status with every field. */
export const fullStatus = {
  uid: childUid,
  etag: 'e',
  observedGeneration: 1,
  lastSyncTime: '2026-01-01T00:00:00Z',
  extraFields: ['description'],
  resolved: { parent: rootUid, identity: childUid, role: rootUid },
  conditions: [
    {
      type: 'Ready',
      status: 'True',
      reason: 'Reconciled',
      message: 'The record is as the spec says.',
      observedGeneration: 1,
      lastTransitionTime: '2026-01-01T00:00:00Z',
    },
  ],
}
