import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { apply, type ApplyRequest } from '../../src/cli/apply/apply.ts'
import { setOf } from '../../src/base/capability.ts'
import type { Json } from '../../src/cli/client/client-error.ts'
import { findKind } from '../../src/cli/client/kinds.ts'
import type { PlatformClient } from '../../src/cli/client/platform-client.ts'
import { findRecord } from '../../src/cli/get.ts'
import { freshDirectory, runProcess, type Ending } from '../e2e/process/harness/taproot-process.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { freshName, ok, startTestServer } from '../support/test-server.ts'
import { documentsOf } from '../kubernetes/crd/definitions.ts'
import { contextOf, type TestContext } from './client-world.ts'

const plain = { paths: ['-'], recursive: false, dryRun: false, diff: false, format: undefined, clusterIssuer: undefined } as const
const issuer = 'https://cluster.example'

describe('taproot apply', () => {
  let world: RegistryWorld
  let mine: Tenant
  let context: TestContext

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer({ keepsContent: false }))
    mine = await world.tenant(freshName('mine'))
  })
  afterAll(() => world.server.stop())

  /** The calls of the last command that were not reads. */
  let asked: string[] = []
  /** Returns the context of a command whose calls are noted. */
  const noting = (token: string): TestContext => {
    const own = contextOf(world.server, token)
    asked = []
    const call: PlatformClient['call'] = (one) => {
      if (one.method !== 'GET') asked.push(`${one.method}${one.query?.['validateOnly'] === 'true' ? ' dry' : ''}`)
      return own.client.call(one)
    }
    return { ...own, client: { ...own.client, call } }
  }
  /** Applies a text, and returns what is printed. */
  const applied = async (text: string, request: Partial<ApplyRequest> = {}, token = mine.token): Promise<string> => {
    context = noting(token)
    expect(await apply(context, { ...plain, readStdin: () => Promise.resolve(text), ...request })).toBe(true)
    return context.printed()
  }
  const record = (kind: string, path: string, token = mine.token): Promise<Json> =>
    findRecord(contextOf(world.server, token).client, findKind(kind, 'taproot'), { record: path, filter: [] })

  const run = async (...args: readonly string[]): Promise<Ending> =>
    runProcess({ args: ['apply', ...args], env: { TAPROOT_SERVER: world.server.config.baseUrl, TAPROOT_TOKEN: mine.token }, cwd: await freshDirectory() })

  /** A group with records of most kinds, the last ones first. */
  const team = (group: string): string => `
kind: subscription
path: ${group}
sink: https://hooks.example/${group}
types: [dev.taproot.registry.push.v1, dev.taproot.api.iam.]
suspend: true
---
kind: rolebinding
path: ${group}
identity: ${group}/ci
role: ${group}/reader
---
kind: rolebinding
path: ${group}
identity: ${group}/ci
role: registry.push
---
kind: repo
path: ${group}/app
description: The shop
aliases: ["b:2", "a:1"]
catalogTier: CATALOG_TIER_AI
---
kind: role
path: ${group}/reader
capabilities: [CAP_IAM_GROUPS_LIST, CAP_REPO_LIST, CAP_TAG_LIST]
---
kind: identity
path: ${group}/ci
claimMatch:
  issuer: https://ci.example
  subject: build
  claims: { b: "2", a: "1" }
---
kind: pullpolicy
path: ${group}/strict
rules: [{ denyDeprecated: true, mode: AUDIT }]
---
kind: group
path: ${group}
`

  test('a record is created, changed where it differs, and then stays as it is', async () => {
    const path = `${mine.name}/web`
    const document = (description: string): string => `kind: group\npath: ${path}\ndescription: ${description}\n`
    expect(await applied(document('The shop'))).toBe(`group/${path} created\n`)
    expect(await applied(document('The new shop'))).toBe(`group/${path} configured\n`)
    expect(await record('group', path)).toMatchObject({ description: 'The new shop' })
    expect(await applied(document('The new shop'))).toBe(`group/${path} unchanged\n`)
  })

  test('records of all kinds are created in the order of their references, and a second time nothing is written', async () => {
    const group = `${mine.name}/team`
    const created = await applied(team(group))
    expect(created.split('\n').toSorted()).toEqual(
      [
        '',
        `group/${group} created`,
        `identity/${group}/ci created`,
        `pullpolicy/${group}/strict created`,
        `repo/${group}/app created`,
        `role/${group}/reader created`,
        `rolebinding/${group} (${group}/reader -> ${group}/ci) created`,
        `rolebinding/${group} (registry.push -> ${group}/ci) created`,
        `subscription/${group} (https://hooks.example/${group}) created`,
      ].toSorted(),
    )
    expect((await applied(team(group))).replaceAll(/.* unchanged\n/g, '')).toBe('')
    expect(asked).toEqual([])
  })

  test('the samples for Kubernetes are applied, and a second time nothing is written', async () => {
    const request = { paths: ['deploy/samples'], clusterIssuer: issuer }
    const operator = await world.server.operatorToken()
    const printed = await applied('', request, operator)
    expect(printed.split('\n').filter((line) => line !== '' && !line.endsWith(' created'))).toEqual([])
    expect(context.notes).toEqual([
      'deploy/samples/grant.yaml, document 1: Namespace is left out, because only a cluster has it',
      'deploy/samples/grant.yaml, document 2: PlatformNamespaceGrant is left out, because only a cluster has it',
      'deploy/samples/organisation.yaml, document 3: ServiceAccount is left out, because only a cluster has it',
    ])
    expect(await record('identity', 'acme/deployer', operator)).toMatchObject({ claimMatch: { issuer, subject: 'system:serviceaccount:acme:deployer' } })
    expect((await applied('', request, operator)).replaceAll(/.* unchanged\n/g, '')).toBe('')
    expect(asked).toEqual([])
    // As objects that a cluster has, they are the same records.
    const objects = documentsOf('deploy/samples/organisation.yaml').map((object) => ({ ...object, status: { uid: 'x' } }))
    const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects })
    expect((await applied(list, { clusterIssuer: issuer }, operator)).replaceAll(/.* unchanged\n/g, '')).toBe('')
  })

  test('a list in another order, or an explicit default, is no difference', async () => {
    const path = `${mine.name}/ordered`
    await applied(`kind: role\npath: ${path}\ncapabilities: [CAP_REPO_LIST, CAP_TAG_LIST]\n`)
    expect(await applied(`kind: role\npath: ${path}\ncapabilities: [CAP_TAG_LIST, CAP_REPO_LIST]\ndescription: ""\n`)).toBe(`role/${path} unchanged\n`)
    expect(asked).toEqual(['PATCH dry'])
  })

  test('fields that a document does not have stay, and null resets one', async () => {
    const path = `${mine.name}/kept`
    await applied(`kind: repo\npath: ${path}\ndescription: one\naliases: ["a:1"]\n`)
    await applied(`kind: repo\npath: ${path}\ndescription: two\n`)
    expect(await record('repo', path)).toMatchObject({ description: 'two', aliases: ['a:1'] })
    expect(await applied(`kind: repo\npath: ${path}\naliases: null\n`, { diff: true })).toBe(`repo/${path} configured\n  - aliases: a:1\n`)
    expect(await record('repo', path)).toMatchObject({ description: 'two', aliases: [] })
  })

  test('a dry run prints what would change, and changes nothing', async () => {
    const path = `${mine.name}/dry`
    await applied(`kind: identity\npath: ${path}\nclaimMatch: { issuer: "https://a.example", subject: one }\n`)
    const text = `kind: identity
path: ${path}
claimMatch: { issuer: "https://b.example", subject: one }
---
kind: group
path: ${path}
description: new
---
kind: repo
path: ${path}/app
`
    expect(await applied(text, { dryRun: true, diff: true })).toBe(
      `identity/${path} would be configured
  - claimMatch.issuer: https://a.example
  + claimMatch.issuer: https://b.example
group/${path} would be created
  + name: dry
  + description: new
repo/${path}/app would be created
  + name: app
`,
    )
    const planned = JSON.parse(await applied(text, { dryRun: true, format: 'json' })) as unknown
    expect(planned).toMatchObject([
      { kind: 'Identity', path, result: 'configured', record: { claimMatch: { issuer: 'https://b.example' } } },
      { kind: 'Group', path, result: 'created', record: { name: 'dry', description: 'new' } },
      { kind: 'Repo', path: `${path}/app`, result: 'created' },
    ])
    expect(asked).toEqual(['PATCH dry', 'POST dry'])
    expect(await applied(text, { dryRun: true, format: 'name' })).toBe(`${String((await record('identity', path))['uid'])}\n`)
  })

  test('a suspended subscription is paused, and resumed when it is no longer suspended', async () => {
    const text = (suspend: boolean): string => `kind: subscription\npath: ${mine.name}\nsink: https://hooks.example/paused\nsuspend: ${String(suspend)}\n`
    const state = async (): Promise<unknown> =>
      (ok(await world.server.rest.call('ListSubscriptions', { uidp: { childrenOf: mine.group } }, { token: mine.token }))['subscriptions'] as Json[]).find(
        ({ sink }) => sink === 'https://hooks.example/paused',
      )?.['state']
    await applied(text(true))
    expect(await state()).toBe('PAUSED')
    const label = `subscription/${mine.name} (https://hooks.example/paused)`
    expect(await applied(text(true))).toBe(`${label} unchanged\n`)
    expect(await applied(text(false), { diff: true })).toBe(`${label} configured\n  + suspend: false\n`)
    expect(await state()).toBe('ACTIVE')
  })

  test('a record that the caller may create but not see is refused, since it may exist', async () => {
    const text = `kind: identity\npath: ${mine.name}/unseen\nclaimMatch: { issuer: "https://i.example", subject: unseen }\n`
    const tokenWith = (...names: readonly string[]): Promise<string> => world.server.tokenFor(mine.owner, { capabilities: setOf(['groups.list', ...names]) })
    await expect(applied(text, {}, await tokenWith('identity.create'))).rejects.toThrow(/nothing was changed$/)
    expect(context.notes).toEqual([expect.stringMatching(/you cannot list the identities of this group, so it may exist already: needs identity\.list$/)])
    expect(await applied(text, {}, await tokenWith('identity.create', 'identity.list'))).toMatch(/ created\n$/)
  })

  test('a record with a uid is renamed, and never replaced by a new one', async () => {
    await applied(`kind: repo\npath: ${mine.name}/old\n`)
    const uid = String((await record('repo', `${mine.name}/old`))['uid'])
    const text = `kind: repo\nuid: ${uid}\npath: ${mine.name}/new\n`
    expect(await applied(text, { diff: true })).toBe(`repo/${mine.name}/new configured\n  - name: old\n  + name: new\n`)
    expect((await record('repo', `${mine.name}/new`))['uid']).toBe(uid)
    await expect(applied(text.replace(/^uid: .*$/m, `uid: ${mine.group}/${'0'.repeat(16)}`))).rejects.toThrow(/nothing was changed$/)
    expect(context.notes).toEqual([expect.stringMatching(/^standard input, document 1: repo\/.*code 5/)])
    const twin = `kind: identity\npath: ${mine.name}/named\nclaimMatch: { issuer: "https://i.example", subject: named }\n`
    const binding = (role: string): string => `kind: rolebinding\npath: ${mine.name}\nidentity: ${mine.name}/named\nrole: ${role}\n`
    const [, bound = ''] = (await applied(`${twin}---\n${binding('viewer')}`, { format: 'name' })).split('\n')
    expect(await applied(`${binding('viewer')}uid: ${bound}\n`)).toMatch(/ unchanged\n$/)
    await expect(applied(`${binding('editor')}uid: ${bound}\n`)).rejects.toThrow(/nothing was changed$/)
    const elsewhere = `kind: repo\nuid: ${uid}\npath: ${mine.name}/kept/new\n`
    await expect(applied(`kind: group\npath: ${mine.name}/kept\n---\n${elsewhere}`)).rejects.toThrow(/nothing was changed$/)
  })

  const object = (kind: string, name: string, spec: string): string =>
    `apiVersion: taproot.dev/v1alpha1\nkind: ${kind}\nmetadata: { name: ${name}, namespace: team }\nspec: ${spec}\n`

  test.for<[what: string, text: string, note: RegExp]>([
    ['no YAML', 'kind: [', /^standard input, document 1: not YAML: .* at line \d+, column \d+:$/],
    ['no fields', 'group', /^standard input, document 1: has no fields/],
    ['no kind', 'path: a/b', /document 1: kind: is required/],
    ['an unknown kind', 'kind: grup\npath: a', /document 1: there is no kind "grup": did you mean group\?/],
    ['a kind that cannot be applied', 'kind: tag\npath: a:1', /document 1: kind: tags cannot be applied/],
    ['a misspelt path', 'kind: group\npaht: a', /document 1: paht: there is no such field that can be set: did you mean path\?/],
    ['no path', 'kind: group', /document 1: path: is required/],
    ['no group', 'kind: repo\npath: app', /document 1: a repo needs a parent/],
    ['an unknown field', 'kind: repo\npath: a/b\ndescripton: x', /document 1: descripton: there is no such field that can be set: did you mean description\?/],
    ['a field of the server', 'kind: repo\npath: a/b\ncreateTime: x', /document 1: createTime: there is no such field that can be set/],
    ['a missing reference', 'kind: rolebinding\npath: a\nidentity: a/ci', /document 1: role: is required/],
    ['a reference that is no text', 'kind: rolebinding\npath: a\nrole: [x]\nidentity: a/ci', /document 1: role: needs the path or uid of a role/],
    ['a malformed uid', 'kind: repo\npath: a/b\nuid: x', /document 1: uid: is not a uid/],
    ['suspend of another kind', 'kind: repo\npath: a/b\nsuspend: true', /document 1: suspend: /],
    ['a kind of object that there is not', object('PlatformTag', 'x', '{}'), /document 1: kind: there is no PlatformTag in taproot\.dev\/v1alpha1/],
    ['an apiVersion that is no text', 'apiVersion: 5\nkind: group', /document 1: apiVersion: must be text$/],
    ['a reference that is given twice', 'kind: rolebinding\npath: a\nidentity: a/x\nidentityUid: a/y\nrole: viewer', /: is given twice, also as identityUid$/],
    [
      'suspend of an object that is no boolean',
      object('PlatformSubscription', 'x', `{ parentRef: { uid: "${'0'.repeat(40)}" }, suspend: "true" }`),
      /spec\.suspend: is true or false$/,
    ],
    ['a list that contains itself', '&a [*a]', /is in too many lists$/],
    ['another version', 'apiVersion: taproot.dev/v9\nkind: PlatformGroup', /document 1: apiVersion: this command reads taproot\.dev\/v1alpha1/],
    ['an object without a name', 'apiVersion: taproot.dev/v1alpha1\nkind: PlatformGroup\nspec: {}', /document 1: metadata\.name: is required/],
    ['an unknown field of a spec', object('PlatformGroup', 'x', '{ nam: y }'), /document 1: spec\.nam: .* did you mean name\?/],
    ['a reference in no way', object('PlatformRepo', 'x', '{ parentRef: {} }'), /document 1: spec\.parentRef: needs exactly one of name, uid$/],
    [
      'a reference in two ways',
      object('PlatformRepo', 'x', '{ parentRef: { name: a, uid: b } }'),
      /document 1: spec\.parentRef: needs exactly one of name, uid$/,
    ],
    [
      'a built-in role that there is not',
      object('PlatformRoleBinding', 'x', '{ parentRef: { name: a }, identityRef: { name: b }, roleRef: { builtIn: boss } }'),
      /spec\.roleRef\.builtIn: there is no built-in role boss/,
    ],
    [
      'a reference to no document',
      object('PlatformRepo', 'x', '{ parentRef: { name: a } }'),
      /document 1: spec\.parentRef: there is no document of the group a in this namespace/,
    ],
    [
      'groups in each other',
      `${object('PlatformGroup', 'a', '{ parentRef: { name: b } }')}---\n${object('PlatformGroup', 'b', '{ parentRef: { name: a } }')}`,
      /document 1: spec\.parentRef: the groups are in each other/,
    ],
    [
      'a service account without an issuer',
      object('PlatformIdentity', 'x', '{ parentRef: { name: a }, serviceAccountRef: { name: b } }'),
      /spec\.serviceAccountRef: needs --cluster-issuer/,
    ],
    ['two documents for one path', 'kind: group\npath: a\n---\nkind: group\npath: a', /document 2: describes the same group as standard input, document 1/],
  ])('a document with %s is refused before any request', async ([, text, note]) => {
    await expect(applied(`${text}\n---\nkind: group\npath: ${mine.name}/refused\n`)).rejects.toThrow(
      /^(one document has an error|2 documents have errors): nothing was changed$/,
    )
    expect(context.notes).toContainEqual(expect.stringMatching(note))
    expect(asked).toEqual([])
  })

  test.for<[what: string, text: (root: string) => string, note: RegExp]>([
    ['a value of another type', (root) => `kind: repo\npath: ${root}/x\ndescription: 1`, /document 2: repo\/\S+: description.*expected string/],
    ['a value within', (root) => `kind: identity\npath: ${root}/x\nclaimMatch: { issuer: [] }`, /document 2: identity\/\S+: .*issuer.*expected string/],
    ['an unknown field within', (root) => `kind: identity\npath: ${root}/x\nclaimMatch: { isuer: x }`, /document 2: identity\/\S+: .*isuer/],
    ['a value that the schema refuses', (root) => `kind: repo\npath: ${root}/x\naliases: [""]`, /document 2: repo\/\S+: .*aliases/],
    ['a missing field', (root) => `kind: identity\npath: ${root}/x`, /document 2: identity\/\S+: .*is required/],
    ['a missing field in a new group', (root) => `kind: identity\npath: ${root}/refused/x`, /document 2: identity\/\S+: .*is required/],
    [
      'a secret',
      (root) => `kind: identityprovider\npath: ${root}/x\noidc: { issuer: "https://i.example", clientId: x, clientSecret: hush }`,
      /document 2: identityprovider\/\S+: oidc\.clientSecret: answers never contain it/,
    ],
    [
      'a group that the caller cannot see',
      () => 'kind: repo\npath: elsewhere/x',
      /document 2: repo\/elsewhere\/x: there is no group elsewhere that you may see \(code 5/,
    ],
    [
      'the binding of another document',
      (root) => ['', '---\n'].map((line) => `${line}kind: rolebinding\npath: ${root}\nidentity: ${root}/twin\nrole: viewer`).join('\n'),
      /document 3: rolebinding\/.*: describes the same rolebinding as standard input, document 2/,
    ],
  ])('a document with %s is refused before the first change', async ([, text, note]) => {
    await applied(`kind: identity\npath: ${mine.name}/twin\nclaimMatch: { issuer: "https://i.example", subject: twin }\n`)
    await expect(applied(`kind: group\npath: ${mine.name}/refused\n---\n${text(mine.name)}\n`)).rejects.toThrow(
      /^one document has an error: nothing was changed$/,
    )
    expect(context.notes).toEqual([expect.stringMatching(note)])
    expect(asked.filter((call) => !call.endsWith(' dry'))).toEqual([])
  })

  test('a failure tells what was applied and what was not, and the command continues when it is repeated', async () => {
    const path = `${mine.name}/partly`
    // The schema does not know that port 0 is refused, and the group to ask about does not exist yet.
    const text = (sink: string): string =>
      `kind: group\npath: ${path}\n---\nkind: subscription\npath: ${path}\nsink: ${sink}\n---\nkind: repo\npath: ${path}/app\n`
    const file = join(await freshDirectory(), 'partly.yaml')
    await writeFile(file, text('https://hooks.example:0/'))
    const refused =
      /^\S+partly\.yaml, document 2: subscription\/\S+ \(https:\/\/hooks\.example:0\/\): .*port 0.*\nnot applied: repo\/\S+\/app\nFix the cause and run the command again/
    expect(await run('-f', file)).toMatchObject({ code: 3, stdout: `group/${path} created\n`, stderr: expect.stringMatching(refused) as unknown })
    const label = `subscription/${path} (https://hooks.example/)`
    expect(await applied(text('https://hooks.example/'))).toBe(`group/${path} unchanged\n${label} created\nrepo/${path}/app created\n`)
  })

  test('files, folders and standard input are read', async () => {
    const folder = await freshDirectory()
    await mkdir(join(folder, 'below'))
    await writeFile(join(folder, 'one.yaml'), `---\n# nothing\n---\nkind: group\npath: ${mine.name}/one\n`)
    await writeFile(join(folder, 'notes.txt'), 'no document')
    await writeFile(join(folder, 'below', 'two.json'), JSON.stringify([{ kind: 'repo', path: `${mine.name}/one/two` }], undefined, '\t'))
    // A link that leads back, the lock of an editor, and a folder with the name of a file.
    await symlink('.', join(folder, 'loop'))
    await symlink('nowhere', join(folder, '.#one.yaml'))
    await mkdir(join(folder, 'folder.yaml'))
    expect(await applied('', { paths: [folder] })).toBe(`group/${mine.name}/one created\n`)
    const printed = await applied(`kind: group\npath: ${mine.name}/one/three\n`, { paths: [folder, '-'], recursive: true })
    expect(printed.split('\n').toSorted()).toEqual(
      ['', `group/${mine.name}/one unchanged`, `group/${mine.name}/one/three created`, `repo/${mine.name}/one/two created`].toSorted(),
    )
    await expect(applied('', { paths: ['nowhere'] })).rejects.toThrow(/^nowhere cannot be read \(ENOENT\)$/)
    await expect(applied('')).rejects.toThrow(/^there are no records in the input$/)
    expect(await run('-f', join(folder, 'notes.txt'))).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/notes\.txt, document 1: has no fields.*\ntaproot: one document has an error: nothing was changed\n$/) as unknown,
    })
  })
})
