// The walkthrough of docs/getting-started.md with a client from openapi-typescript and openapi-fetch. It prints what it sees.
import createClient, { type Middleware } from 'openapi-fetch'
import type { components, paths } from './taproot.ts'

type ApiError = components['schemas']['Error']

const { API = '', TOKEN = '', CI_TOKEN = '', ANN_TOKEN = '', ROOT = '' } = process.env

function clientFor(token: string) {
  const signIn: Middleware = {
    onRequest: ({ request }) => request.headers.set('authorization', `Bearer ${token}`),
  }
  const client = createClient<paths>({ baseUrl: API })
  client.use(signIn)
  return client
}

/** Returns what an operation answered. Throws the error that it answered instead. */
async function answer<Data>(call: Promise<{ data?: Data; error?: ApiError }>): Promise<Data> {
  const { data, error } = await call
  if (data === undefined) throw new Error(error?.message ?? 'no answer')
  return data
}

/** Returns the status and code of an operation that is refused, and the reason of its error. */
async function refusal(call: Promise<{ error?: ApiError; response: Response }>): Promise<string> {
  const { error, response } = await call
  return `${response.status} ${error?.code} ${error?.details[0]?.reason}`
}

const names = (records: readonly { name?: string }[] = []): string => records.map(({ name }) => name).join(' ')

const owner = clientFor(TOKEN)

const groups = await answer(owner.GET('/iam/v2/groups', { params: { query: { name: ROOT } } }))
console.log(`groups: ${groups.totalCount}`)
const demo = groups.groups?.[0]?.uid ?? ''

// A group and an identity.
const created = await answer(owner.POST('/iam/v2/groups/{uid}', { params: { path: { uid: demo } }, body: { name: 'web', description: 'The web team' } }))
console.log(`created: ${created.name}, ${created.description}`)
const web = created.uid ?? ''
const createIdentity = (body: components['schemas']['iam.v2.IdentityInput']) =>
  answer(owner.POST('/iam/v2/identities/{uid}', { params: { path: { uid: web } }, body }))
const issuer = `${API}/dev/issuer`
const identity = await createIdentity({ name: 'ci', claimMatch: { issuer, subject: 'ci' } })
const ci = identity.uid ?? ''
const viewer = await answer(owner.GET('/iam/v2/roles', { params: { query: { name: 'viewer' } } }))
const binding = await answer(
  owner.POST('/iam/v2/roleBindings/{uid}', { params: { path: { uid: web } }, body: { identityUid: ci, roleUid: viewer.roles?.[0]?.uid ?? '' } }),
)
console.log(`bound: ${binding.identity?.name} ${binding.group?.name} ${binding.role?.name}`)

// Who has access.
const access = await answer(owner.GET('/iam/v2/access', { params: { query: { resource: web, capability: 'CAP_IAM_GROUPS_LIST' } } }))
console.log(`access: ${access.totalCount}`)

// Sign in as that identity.
const { token = '' } = await answer(clientFor(CI_TOKEN).GET('/sts/exchange', { params: { query: { identity: ci } } }))
const job = clientFor(token)
console.log(`seen: ${names((await answer(job.GET('/iam/v2/groups'))).groups)}`)
const caller = await answer(job.GET('/auth/v1/ok'))
console.log(`caller: ${caller.subject === ci} ${caller.capabilities?.map(({ role }) => role?.name).join(' ')}`)
console.log(`denied: ${await refusal(job.DELETE('/iam/v2/groups/{uid}', { params: { path: { uid: web } } }))}`)
console.log(`hidden: ${await refusal(job.GET('/iam/v2/groups/{uid}', { params: { path: { uid: demo } } }))}`)

// Change a record.
const group = { path: { uid: web } }
const changed = await answer(
  owner.PATCH('/iam/v2/groups/{uid}', {
    params: { ...group, query: { updateMask: 'description' } },
    body: { name: 'ignored', description: 'Everything on the web' },
  }),
)
console.log(`changed: ${changed.name}, ${changed.description}`)
const unchanged = { ...group, header: { 'If-Match': `"${changed.etag}"` } }
console.log(`first: ${(await answer(owner.PATCH('/iam/v2/groups/{uid}', { params: unchanged, body: { description: 'First' } }))).description}`)
console.log(`second: ${await refusal(owner.PATCH('/iam/v2/groups/{uid}', { params: unchanged, body: { description: 'Second' } }))}`)

// Roles, and many bindings at once.
const role = await answer(
  owner.POST('/iam/v2/roles/{uid}', {
    params: { path: { uid: demo } },
    body: { name: 'deployer', capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_REPO_LIST', 'CAP_TAG_CREATE'] },
  }),
)
console.log(`role: ${role.capabilities?.join(' ')}`)
const released = await createIdentity({ name: 'release', claimMatch: { issuer, subjectPattern: 'release-.*' } })
const release = released.uid ?? ''
const bindings = await answer(
  owner.POST('/iam/v2/roleBindings:batchCreate', {
    body: { parent: web, roleUid: role.uid ?? '', requests: [{ roleBinding: { identityUid: ci } }, { roleBinding: { identityUid: release } }] },
  }),
)
console.log(`bindings: ${names(bindings.roleBindings?.map(({ identity: of }) => of ?? {}))}`)

// Lists.
const list = (pageToken?: string) =>
  answer(
    owner.GET('/iam/v2/identities', {
      params: { query: { 'uidp.descendantsOf': web, orderBy: 'created_at desc', pageSize: 1, ...(pageToken === undefined ? {} : { pageToken }) } },
    }),
  )
const page = await list()
const next = await list(page.nextPageToken)
console.log(`pages: ${names(page.identities)} ${names(next.identities)} of ${page.totalCount}`)

// Delete.
console.log(`full: ${await refusal(owner.DELETE('/iam/v2/groups/{uid}', { params: group }))}`)
for (const uid of [ci, release]) await owner.DELETE('/iam/v2/identities/{uid}', { params: { path: { uid } } })
console.log(`deleted: ${(await owner.DELETE('/iam/v2/groups/{uid}', { params: group })).response.status}`)
console.log(`signed out: ${await refusal(job.GET('/iam/v2/groups'))}`)

// The history of a tag.
const repos = await answer(owner.GET('/registry/v2/repos', { params: { query: { 'uidp.descendantsOf': demo, name: 'hello' } } }))
const repo = repos.repos?.[0]?.uid ?? ''
console.log(`tags: ${names((await answer(owner.GET('/registry/v2/tags', { params: { query: { 'uidp.childrenOf': repo } } }))).tags)}`)
const history = await answer(owner.GET('/registry/v2/repos/{repoUid}/history', { params: { path: { repoUid: repo }, query: { tag: 'latest' } } }))
const first = history.history?.[0]?.digest ?? ''
console.log(`history: ${history.history?.length}`)
const restored = await answer(
  owner.POST('/registry/v2/repos/{repoUid}:restoreTag', { params: { path: { repoUid: repo } }, body: { tag: 'latest', digest: first } }),
)
console.log(`restored: ${restored.name} ${restored.digest === first}`)

// A root group, which an operator creates.
const ann = await answer(clientFor(ANN_TOKEN).GET('/sts/exchange'))
const acme = await answer(clientFor(ann.token ?? '').POST('/iam/v2/groups', { body: { name: `${ROOT}-acme` } }))
console.log(`organisation: ${acme.name} ${acme.status}`)
