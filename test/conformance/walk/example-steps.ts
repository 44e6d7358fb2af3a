import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { roleUid } from '../../support/test-server.ts'
import { exampleVulnerability } from './example-image.ts'

/** A request as the OpenAPI document describes it. */
export interface ExampleRequest {
  readonly path?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string>>
  readonly body?: JsonValue
}

/** What earlier answers gave, and the records that exist from the start. */
export interface ExampleStory {
  /** The root group of the caller. */
  readonly demo: string
  /** The caller. */
  readonly owner: string
  /** The digest of the image in the repo, once the repo exists. */
  readonly digest: string
  /** Returns the uid in the answer to an operation. */
  uid(operationId: string): string
  /** Returns the answer to an operation. */
  answer(operationId: string): JsonObject
}

type Step = readonly [operationId: string, request: (story: ExampleStory) => ExampleRequest]

const at = (operationId: string) => (story: ExampleStory) => ({ path: { uid: story.uid(operationId) } })
const among = (create: string, name: string) => (story: ExampleStory) => ({ query: { 'uidp.childrenOf': parentOf(story.uid(create)), name } })
const parentOf = (uid: string): string => uid.slice(0, uid.lastIndexOf('/'))

/** Returns the steps that read a record, list it by its name, and change it. */
function readAndChange(kind: string, { plural = `${kind}s`, name, change }: { plural?: string; name: string; change: JsonObject }): readonly Step[] {
  return [
    [`get${kind}`, at(`create${kind}`)],
    [`list${plural}`, among(`create${kind}`, name)],
    [`update${kind}`, (story) => ({ ...at(`create${kind}`)(story), body: change })],
  ]
}

const groups: readonly Step[] = [
  ['ping', () => ({})],
  ['createGroup', ({ demo }) => ({ path: { uid: demo }, body: { name: 'web', description: 'Teams of the shop' } })],
  ...readAndChange('Group', { name: 'web', change: { description: 'All teams of the shop' } }),
  ['getGroupUsage', ({ demo }) => ({ path: { uid: demo } })],
]

const access: readonly Step[] = [
  [
    'createIdentity',
    (story) => ({
      path: { uid: story.uid('createGroup') },
      body: { name: 'ci', claimMatch: { issuer: 'https://token.actions.githubusercontent.com', subject: 'repo:shop/web:ref:refs/heads/main' } },
    }),
  ],
  ...readAndChange('Identity', { plural: 'Identities', name: 'ci', change: { description: 'Builds on the main branch' } }),
  ['createRole', ({ demo }) => ({ path: { uid: demo }, body: { name: 'publisher', capabilities: ['CAP_REPO_LIST', 'CAP_TAG_CREATE'] } })],
  ...readAndChange('Role', { name: 'publisher', change: { description: 'Creates tags' } }),
  [
    'createRoleBinding',
    (story) => ({ path: { uid: story.uid('createGroup') }, body: { identityUid: story.uid('createIdentity'), roleUid: story.uid('createRole') } }),
  ],
  ['getRoleBinding', at('createRoleBinding')],
  ['listRoleBindings', (story) => ({ query: { identity: story.uid('createIdentity') } })],
  ['updateRoleBinding', (story) => ({ ...at('createRoleBinding')(story), body: { roleUid: roleUid('viewer') } })],
  ['testCapabilities', (story) => ({ query: { resource: story.uid('createGroup'), capabilities: 'groups.list' } })],
  ['explain', (story) => ({ query: { identity: story.uid('createIdentity'), capability: 'groups.list', resource: story.uid('createGroup') } })],
  ['listAccess', (story) => ({ query: { resource: story.uid('createGroup'), capability: 'groups.list' } })],
]

const people: readonly Step[] = [
  [
    'createGroupInvite',
    (story) => ({ path: { uid: story.uid('createGroup') }, body: { roleUid: roleUid('viewer'), email: 'ada@shop.example', ttl: '604800s' } }),
  ],
  ['getGroupInvite', at('createGroupInvite')],
  ['listGroupInvites', (story) => ({ query: { 'uidp.childrenOf': story.uid('createGroup') } })],
  [
    'createIdentityProvider',
    ({ demo }) => ({
      path: { uid: demo },
      body: {
        name: 'login',
        defaultRole: roleUid('viewer'),
        oidc: { issuer: 'https://login.shop.example', clientId: 'taproot', clientSecret: 'kept-elsewhere' },
      },
    }),
  ],
  ...readAndChange('IdentityProvider', { name: 'login', change: { description: 'Sign-in of the shop' } }),
  [
    'createExternalGroupRoleMapping',
    (story) => ({
      path: { uid: story.uid('createIdentityProvider') },
      body: { externalGroupId: 'web-team', scope: story.demo, roleUid: roleUid('viewer') },
    }),
  ],
  ['getExternalGroupRoleMapping', at('createExternalGroupRoleMapping')],
  ['listExternalGroupRoleMappings', (story) => ({ query: { identityProviderUid: story.uid('createIdentityProvider') } })],
  ['createAccountAssociation', ({ demo }) => ({ path: { uid: demo }, body: { name: 'cloud', amazon: { account: '123456789012' } } })],
  ['getAccountAssociation', at('createAccountAssociation')],
  ['listAccountAssociations', () => ({ query: { name: 'cloud' } })],
  ['updateAccountAssociation', (story) => ({ ...at('createAccountAssociation')(story), body: { description: 'Accounts of the shop' } })],
]

const registry: readonly Step[] = [
  ['createRepo', (story) => ({ path: { uid: story.uid('createGroup') }, body: { name: 'cart' } })],
  ...readAndChange('Repo', { name: 'cart', change: { description: 'The cart of the shop' } }),
  ['updateRepoReadme', (story) => ({ ...at('createRepo')(story), body: { content: '# The cart of the shop' } })],
  ['getRepoReadme', at('createRepo')],
  ['listMirrors', (story) => ({ path: { parent: story.uid('createRepo') } })],
  ['createTag', (story) => ({ path: { uid: story.uid('createRepo') }, body: { name: 'stable', digest: story.digest } })],
  ['getTag', at('createTag')],
  ['listTags', among('createTag', 'stable')],
  ['restoreTag', (story) => ({ path: { repoUid: story.uid('createRepo') }, body: { tag: 'stable', digest: story.digest } })],
  ['listTagHistory', (story) => ({ path: { repoUid: story.uid('createRepo') }, query: { tag: 'stable' } })],
  ['createPullPolicy', (story) => ({ path: { uid: story.uid('createGroup') }, body: { name: 'no-old-images', rules: [{ maxAgeDays: 30, mode: 'WARN' }] } })],
  ...readAndChange('PullPolicy', { plural: 'PullPolicies', name: 'no-old-images', change: { description: 'Images are at most 30 days old' } }),
]

const ofImage = (story: ExampleStory): ExampleRequest => ({ path: { repoUid: story.uid('createRepo'), digest: story.digest } })

/** A tag, and the day on which this runs. */
const ofTag = (story: ExampleStory): ExampleRequest => {
  const now = new Date().toISOString()
  return { query: { imageRefs: `${story.uid('createRepo')}:1.0`, startTime: now, endTime: now } }
}

const images: readonly Step[] = [
  ['getArchitectures', ofImage],
  ['getSize', ofImage],
  ['listPackages', ofImage],
  ['listPackageImages', () => ({ query: { purl: 'pkg:apk/alpine/musl' } })],
  ['listVulnerabilities', ofImage],
  ['getVulnReport', ofImage],
  ['listVulnReports', (story) => ({ path: { repoUid: story.uid('createRepo') }, query: { tag: '1.0' } })],
  ['listScannerReports', ofImage],
  ['listVulnCountReports', ofTag],
  ['listCumulativeVulnCountReports', ofTag],
  ['listResolvedVulnsReports', ofTag],
  ['listEolTags', (story) => ({ path: { repoUid: story.uid('createRepo') }, query: { name: '1.0' } })],
]

const catalogues: readonly Step[] = [
  ['listAdvisories', () => ({ query: { artifactNames: 'musl' } })],
  ['getAdvisory', (story) => ({ path: { uid: uidIn(story.answer('listAdvisories')['advisories']) } })],
  ['listDocuments', () => ({ query: { id: 'musl', cves: exampleVulnerability } })],
  ['listVulnerabilityMetadata', () => ({ query: { id: exampleVulnerability } })],
  ['listArtifacts', () => ({ query: { ecosystems: 'ECOSYSTEM_PYTHON', query: 'shop' } })],
  ['getArtifactCount', () => ({ query: { ecosystems: 'ECOSYSTEM_PYTHON' } })],
  ['listArtifactVersions', () => ({ path: { artifactId: 'python:shop-client' } })],
]

/** Returns the uid of the first record of a list. */
function uidIn(list: JsonValue | undefined): string {
  const [first] = (list ?? []) as JsonObject[] // the answer of a list
  return String(first?.['uid'])
}

const events: readonly Step[] = [
  ['createSubscription', (story) => ({ path: { uid: story.uid('createGroup') }, body: { sink: 'https://hooks.shop.example/taproot' } })],
  ['getSubscription', at('createSubscription')],
  ['listSubscriptions', (story) => ({ query: { 'uidp.childrenOf': story.uid('createGroup') } })],
  ['updateSubscription', (story) => ({ ...at('createSubscription')(story), body: { types: ['dev.taproot.registry.'] } })],
  ['pauseSubscription', (story) => ({ ...at('createSubscription')(story), body: {} })],
  ['resumeSubscription', (story) => ({ ...at('createSubscription')(story), body: {} })],
  ['listDeliveries', at('createSubscription')],
  ['listAuditEvents', (story) => ({ query: { resource: story.uid('createGroup'), method: 'taproot.iam.v2.GroupsService/CreateGroup' } })],
]

/** One request for each operation that has an example, in an order that works. */
export const exampleSteps: readonly Step[] = [...groups, ...access, ...people, ...registry, ...images, ...catalogues, ...events]
