import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Json } from '../../src/cli/client/client-error.ts'
import { createPlatformClient, type PlatformClient } from '../../src/cli/client/platform-client.ts'
import { findKind } from '../../src/cli/client/kinds.ts'
import { findRecord } from '../../src/cli/get.ts'
import { printAccess } from '../../src/cli/inspect/access.ts'
import { edit } from '../../src/cli/write/edit.ts'
import { recordOf, type GivenFlags } from '../../src/cli/write/field-flags.ts'
import { writableKinds, type WritableKind } from '../../src/cli/write/writable-kinds.ts'
import { create, describe as describeRecord, remove, update } from '../../src/cli/write/write.ts'
import { freshDirectory, runProcess, type Ending } from '../e2e/process/harness/taproot-process.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { freshName, ok, startTestServer } from '../support/test-server.ts'
import { contextOf, type TestContext } from './client-world.ts'

function kindOf(name: string): WritableKind {
  const found = writableKinds().find(({ kind }) => kind === findKind(name, 'taproot'))
  if (found === undefined) throw new Error(`no ${name}`)
  return found
}

const digest = `sha256:${'cd'.repeat(32)}`

test.for<[what: string, kind: string, given: GivenFlags, record: Json]>([
  [
    'capabilities by their dotted names',
    'role',
    { capabilities: ['groups.list,tag.list', 'CAP_REPO_LIST'] },
    { capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_TAG_LIST', 'CAP_REPO_LIST'] },
  ],
  ['an enum without its prefix', 'repo', { catalogTier: 'ai' }, { catalogTier: 'CATALOG_TIER_AI' }],
  [
    'fields of a message within',
    'identity',
    { claimMatchIssuer: 'https://i.example', claimMatchClaims: ['a=b=c', 'd='] },
    { claimMatch: { issuer: 'https://i.example', claims: { a: 'b=c', d: '' } } },
  ],
  ['a time', 'identity', { staticKeysExpirationTime: '2027-01-31' }, { staticKeys: { expirationTime: '2027-01-31T00:00:00.000Z' } }],
  ['a duration in days', 'groupinvite', { ttl: '7d', singleUse: 'true' }, { ttl: '604800s', singleUse: true }],
  ['a text that starts with @', 'repo', { description: '@@team' }, { description: '@team' }],
  ['JSON, one or a list', 'pullpolicy', { rules: ['{"name":"a"}', '[{"name":"b"}]'] }, { rules: [{ name: 'a' }, { name: 'b' }] }],
])('a command line option sets %s', ([, kind, given, record]) => {
  expect(recordOf(kindOf(kind).create?.flags ?? [], given)).toEqual(record)
})

test.for<[what: string, kind: string, given: GivenFlags, message: RegExp]>([
  ['an unknown name', 'role', { capabilities: ['groups.lst'] }, /^--capabilities cannot be "groups\.lst": did you mean groups\.list\?$/],
  ['a switch', 'tag', { deprecated: 'maybe' }, /^--deprecated is true or false, not "maybe"$/],
  ['a duration without a unit', 'groupinvite', { ttl: '7' }, /^--ttl needs a duration such as 90m, 12h or 7d/],
  ['no time', 'identity', { staticKeysExpirationTime: 'tomorrow' }, /^--static-keys-expiration-time needs a time such as/],
  ['no pair', 'identity', { claimMatchClaims: ['a'] }, /^--claim-match-claims needs key=value, not "a"$/],
  ['no JSON', 'pullpolicy', { rules: ['{'] }, /^--rules needs JSON/],
  ['a file that is not there', 'repo', { description: '@/nowhere' }, /^--description: \/nowhere cannot be read \(ENOENT\)$/],
])('a command line option refuses %s', ([, kind, given, message]) => {
  expect(() => recordOf(kindOf(kind).create?.flags ?? [], given)).toThrow(message)
})

test('each field that a caller may set has an option with a name of its own', () => {
  for (const { kind, create: made, update: changed } of writableKinds()) {
    for (const flags of [made?.flags ?? [], changed?.flags ?? []]) {
      const names = flags.map(({ name }) => name)
      expect([kind.kind, names]).toEqual([kind.kind, [...new Set(names)]])
      expect(names).not.toContain('etag')
    }
  }
  expect(kindOf('rolebinding').create?.flags.map(({ name }) => name)).toEqual(['identity', 'role'])
  expect(kindOf('tag').update).toBeUndefined()
})

describe('commands that change records', () => {
  let world: RegistryWorld
  let mine: Tenant
  let context: TestContext
  const plain = { flags: {}, dryRun: false, format: undefined } as const

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer({ keepsContent: false }))
    mine = await world.tenant(freshName('mine'))
  })
  afterAll(() => world.server.stop())

  const make = async (kind: string, path: string, flags: GivenFlags = {}, dryRun = false): Promise<string> => {
    context = contextOf(world.server, mine.token)
    await create(context, kindOf(kind), { ...plain, path, flags, dryRun })
    return context.printed()
  }
  const change = async (kind: string, record: string, { flags = {}, clear = [] }: { flags?: GivenFlags; clear?: readonly string[] }): Promise<string> => {
    context = contextOf(world.server, mine.token)
    await update(context, kindOf(kind), { ...plain, record, flags, clear })
    return context.printed()
  }
  const shown = async (kind: string, record: string): Promise<string> => {
    context = contextOf(world.server, mine.token)
    await describeRecord(context, findKind(kind, 'taproot'), record)
    return context.printed()
  }

  const uidOf = async (kind: string, record: string): Promise<string> =>
    String((await findRecord(contextOf(world.server, mine.token).client, findKind(kind, 'taproot'), { record, filter: [] }))['uid'])

  test('records are created by their paths, with references by path, and described', async () => {
    const { name } = mine
    expect(await make('group', `${name}/web`, { description: 'The shop' })).toMatch(new RegExp(`^group ${name}/web created \\([0-9a-f/]+\\)\n$`))
    await make('repo', `${name}/web/app`)
    await make('tag', `${name}/web/app:1.0`, { digest })
    await make('identity', `${name}/ci`, { claimMatchIssuer: 'https://ci.example', claimMatchSubject: 'build' })
    await make('role', `${name}/reader`, { capabilities: ['groups.list', 'repo.list'] })
    await make('rolebinding', `${name}/web`, { identity: `${name}/ci`, role: `${name}/reader` })
    const bindings = ok(await world.server.rest.call('ListRoleBindings', { uidp: { childrenOf: await uidOf('group', `${name}/web`) } }, { token: mine.token }))[
      'roleBindings'
    ]
    expect(bindings).toMatchObject([{ identity: { name: 'ci' }, role: { name: 'reader' } }])
    const printed = await shown('repo', `${name}/web/app`)
    expect(printed).toMatch(new RegExp(`^repo ${name}/web/app\n`))
    expect(printed).toMatch(/\n {2}name +app\n/)
    expect(await shown('identity', `${name}/ci`)).toMatch(/\n {2}claimMatch\.issuer +https:\/\/ci\.example\n/)
    expect(await shown('tag', `${name}/web/app:1.0`)).toMatch(new RegExp(`\n {2}digest +${digest}\n`))
  })

  test('secrets that are shown once are printed, with a note', async () => {
    expect(await make('subscription', mine.name, { sink: 'https://sink.example/', signing: 'standard-webhooks' })).toMatch(/\nsecret: \S+\n$/)
    expect(context.notes).toEqual(['Keep the secret: it is shown only now.'])
    expect(await make('groupinvite', mine.name, { role: 'viewer', ttl: '1d' })).toMatch(/\ncode: \S+\n$/)
  })

  test('a secret is not lost with an output format that has no place for it', async () => {
    context = contextOf(world.server, mine.token)
    await create(context, kindOf('groupinvite'), { path: mine.name, flags: { role: 'viewer', ttl: '1d' }, dryRun: false, format: 'name' })
    expect(context.printed()).toMatch(/^[0-9a-f/]+\n$/)
    expect(context.notes).toEqual([expect.stringMatching(/^code: \S+$/), 'Keep the code: it is shown only now.'])
  })

  test('a secret whose first answer was lost is missed', async () => {
    const own = contextOf(world.server, mine.token)
    const call: PlatformClient['call'] = async (one) => {
      const { secret: _secret, code: _code, ...answer } = await own.client.call(one)
      return answer
    }
    const without = async (kind: string, flags: GivenFlags): Promise<readonly string[]> => {
      context = { ...contextOf(world.server, mine.token), client: { ...own.client, call } }
      await create(context, kindOf(kind), { path: mine.name, flags, dryRun: false, format: undefined })
      return context.notes
    }
    const sink = 'https://sink.example/lost'
    expect(await without('subscription', { sink, signing: 'standard-webhooks' })).toEqual([expect.stringMatching(/the secret is lost: rotate it with POST/)])
    expect(await without('groupinvite', { role: 'viewer', ttl: '1d' })).toEqual([expect.stringMatching(/the code is lost: delete the invite/)])
    expect(await without('subscription', { sink: `${sink}-not` })).toEqual([])
  })

  test('a path of a group and of a repo is refused where both can be meant', async () => {
    const path = `${mine.name}/both`
    await make('group', path)
    await make('repo', path)
    await expect(printAccess(context, { resource: path, capability: undefined, format: 'table' })).rejects.toThrow(
      `${path} is the path of a group and of a repo: use the uid`,
    )
    expect(await make('tag', `${path}:1.0`, { digest })).toMatch(/ created /)
  })

  test('a name that two records in one place have is refused, whatever is asked', async () => {
    const path = `${mine.name}/twin`
    for (const subject of ['one', 'two']) await make('identity', path, { claimMatchIssuer: 'https://ci.example', claimMatchSubject: subject })
    const twins = /^2 identities in one place are named twin: choose one by its uid/
    await expect(make('rolebinding', mine.name, { identity: path, role: 'viewer' })).rejects.toThrow(twins)
    await expect(change('identity', path, { flags: { description: 'x' } })).rejects.toThrow(twins)
    await expect(shown('identity', path)).rejects.toThrow(twins)
  })

  test('control characters of records do not reach the terminal', async () => {
    const path = `${mine.name}/steering`
    await make('identity', path, { claimMatchIssuer: 'https://ci.example', claimMatchSubject: 'x', claimMatchClaims: ['a\u001b]52;b\n=c\u0007'] })
    expect((await shown('identity', path)).replaceAll('\n', '')).not.toMatch(/[\u0000-\u001f]/)
    expect(await shown('identity', path)).toMatch(/\n {2}claimMatch\.claims\.a \]52;b +c \n/)
  })

  test('a dry run changes nothing', async () => {
    expect(await make('group', `${mine.name}/dry`, {}, true)).toBe(`group ${mine.name}/dry would be created\n`)
    await expect(shown('group', `${mine.name}/dry`)).rejects.toThrow(/^there is no group/)
  })

  test('an update changes the named fields only, clears others, and is refused without any', async () => {
    const path = `${mine.name}/changing`
    await make('repo', path, { description: 'before', aliases: ['a:1', 'b:2'] })
    expect(await change('repo', path, { flags: { description: 'after' } })).toMatch(/ changed \(/)
    expect(await shown('repo', path)).toMatch(/\n {2}description +after\n(?:.*\n)*? {2}aliases +a:1, b:2\n/)
    await change('repo', path, { clear: ['aliases', 'description'] })
    expect(await shown('repo', path)).not.toMatch(/aliases|description/)
    await expect(change('repo', path, {})).rejects.toThrow(/^nothing to change/)
    await expect(change('repo', path, { flags: { description: 'x' }, clear: ['description'] })).rejects.toThrow(/^--clear description cannot be combined/)
    await expect(change('repo', path, { clear: ['color'] })).rejects.toThrow(/^repos have no field color/)
  })

  test('a new record needs a name and a parent that the caller may see', async () => {
    await expect(make('tag', `${mine.name}:a/b:1.0`)).rejects.toThrow(/is not a path: write names/)
    await expect(make('repo', 'app')).rejects.toThrow(/^a repo needs a parent: write its path, such as demo\/app/)
    await expect(make('tag', 'app')).rejects.toThrow(/^a tag needs a parent: write its path, such as app:1\.0$/)
    await expect(make('repo', `${mine.name}/`)).rejects.toThrow(/has no name at its end$/)
    await expect(make('repo', 'elsewhere/app')).rejects.toThrow(/^there is no group elsewhere/)
    await expect(make('identity', `${mine.group}/${'0'.repeat(16)}`)).rejects.toThrow(/^the path of a new identity has a name at its end/)
  })

  test('an answer without a record is not taken for success', async () => {
    const other = createServer((_request, response) => void response.end('{}')).listen(0, '127.0.0.1')
    onTestFinished(() => void other.close())
    await once(other, 'listening')
    const client = createPlatformClient({ baseUrl: `http://127.0.0.1:${(other.address() as AddressInfo).port}`, token: 'x' }) // a cast: it listens on a port
    const made = create({ ...contextOf(world.server, mine.token), client }, kindOf('group'), { ...plain, path: 'acme' })
    await expect(made).rejects.toThrow(/^the answer has no uid/)
  })

  test('records are deleted after the question is answered, all or none', async () => {
    for (const name of ['one', 'two']) await make('group', `${mine.name}/${name}`)
    const paths = [`${mine.name}/one`, `${mine.name}/two`]
    const questions: string[] = []
    const drop = async (records: readonly string[], answer: boolean): Promise<string> => {
      context = contextOf(world.server, mine.token)
      const confirm = (question: string) => {
        questions.push(question)
        return Promise.resolve(answer)
      }
      await remove(context, kindOf('group'), { records, dryRun: false, confirm })
      return context.printed()
    }
    expect(await drop(paths, false)).toBe('')
    await expect(drop([...paths, `${mine.name}/three`], true)).rejects.toThrow(/^there is no group/)
    const shownPaths = paths.map((path) => `${path} \\([0-9a-f/]+\\)`).join(', ')
    expect(questions).toEqual([expect.stringMatching(new RegExp(`^Delete groups ${shownPaths}\\?$`))])
    await expect(drop([...paths, `${mine.group}/${'0'.repeat(16)}`], true)).rejects.toMatchObject({ code: 5 })
    expect(await drop(paths, true)).toBe(paths.map((path) => `group ${path} deleted\n`).join(''))
    await expect(shown('group', paths[0] ?? '')).rejects.toThrow(/^there is no group/)
  })

  /** Returns the command of an editor that runs a script on the file. */
  const editorOf = async (script: string): Promise<string> => {
    const editor = join(await freshDirectory(), 'editor')
    await writeFile(editor, `#!/bin/sh\n${script}\n`)
    await chmod(editor, 0o755)
    return editor
  }
  const edited = async (record: string, script: string): Promise<TestContext> => {
    context = contextOf(world.server, mine.token)
    await edit(context, kindOf('repo'), { record, env: { EDITOR: await editorOf(script) } })
    return context
  }

  test('an edit sends the fields that were changed', async () => {
    const path = `${mine.name}/edited`
    await make('repo', path, { description: 'before', aliases: ['a:1'] })
    expect((await edited(path, `sed -i 's/before/after/' "$1"`)).printed()).toBe(`repo ${path} changed: description\n`)
    expect(await shown('repo', path)).toMatch(/\n {2}description +after\n(?:.*\n)*? {2}aliases +a:1\n/)
    for (const script of ['true', ': > "$1"']) expect((await edited(path, script)).notes).toEqual(['nothing was changed'])
    await expect(edited(path, 'exit 1')).rejects.toThrow(/failed: nothing was changed$/)
    expect(context.notes).toEqual([])
  })

  test.for<[what: string, script: string, message: RegExp]>([
    ['it is no YAML', `echo '[' > "$1"`, /^the text is not YAML/],
    ['it has unknown fields', `echo 'colour: red' >> "$1"`, /^repos have no field colour/],
    ['the API refuses it', `sed -i 's/^name: .*/name: ""/' "$1"`, /name/],
  ])('the text of an edit is kept if %s', async ([what, script, message]) => {
    const path = `${mine.name}/kept-${what.length}`
    await make('repo', path)
    await expect(edited(path, script)).rejects.toThrow(message)
    const [, file = ''] = /^Your text is in (\S+)\.$/.exec(context.notes[0] ?? '') ?? []
    expect(await readFile(file, 'utf8')).not.toBe('')
  })

  test('an edit of a record that changed meanwhile is refused', async () => {
    const path = `${mine.name}/contested`
    await make('repo', path, { description: 'before' })
    const url = `${world.server.config.baseUrl}/registry/v2/repos/${await uidOf('repo', path)}`
    const patch = `curl -sf -X PATCH -H 'authorization: Bearer ${mine.token}' -H 'content-type: application/json' -d '{"description":"theirs"}' '${url}' > /dev/null`
    await expect(edited(path, `sed -i 's/before/mine/' "$1"; ${patch}`)).rejects.toMatchObject({ code: 10 })
    expect(await shown('repo', path)).toMatch(/\n {2}description +theirs\n/)
  })

  test('the program creates, changes and deletes, and asks only at a terminal', async () => {
    const env = { TAPROOT_SERVER: world.server.config.baseUrl, TAPROOT_TOKEN: mine.token }
    const run = async (...args: readonly string[]): Promise<Ending> => runProcess({ args, env, cwd: await freshDirectory() })
    const path = `${mine.name}/by-program`
    expect(await run('create', 'repos', path, '--description', 'x')).toMatchObject({ code: 0, stderr: '' })
    const binding = await run('create', 'rolebinding', mine.name, '--identity', mine.name, '--role', 'viewer')
    expect(binding).toMatchObject({ code: 1, stderr: expect.stringMatching(/there is no identity/) as unknown })
    expect(await run('update', 'repo', path, '--clear', 'description', '-o', 'json')).toMatchObject({ code: 0 })
    expect(await run('delete', 'repo', path)).toMatchObject({ code: 2, stderr: expect.stringMatching(/Delete repo .*\? Add --yes/) as unknown })
    expect(await run('delete', 'repo', path, '--yes')).toEqual({ code: 0, stdout: `repo ${path} deleted\n`, stderr: '' })
  })
})
