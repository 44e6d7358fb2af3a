import type { JsonObject } from '@bufbuild/protobuf'
import { fromBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { RepoReadmeSchema } from '../../../../src/gen/taproot/registry/v2/repos_pb.ts'
import { OutboxEventSchema } from '../../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { freshName, makeMember, makeOrganisation, type Organisation } from '../../../support/test-server.ts'
import { makeRole } from '../../walk/world.ts'
import { expectFailure, specSuite, uidOf } from '../spec-suite.ts'

const readme = `# nginx

A web server. [Docs](https://nginx.example/docs) and <a href="/local" title="here">more</a>, *soon*.

<!-- Written by hand -->
<p align="center"><img src="https://nginx.example/logo.png" alt="logo" width="120" height="60"></p>

| Tag | Since |
| :-- | ----: |
| 1.27 | today |

\`\`\`yaml
image: nginx # <script>in code it is text</script>
\`\`\`

<details><summary>More</summary>

- one &amp; two
- <kbd>Ctrl</kbd>

</details>
`

specSuite('readmes', (spec) => {
  const read = (uid: string, token: string) => spec.ok('GetRepoReadme', { uid }, { token })
  // Over gRPC an empty text without a mask counts as absent.
  const write = (uid: string, content: string, token: string) => spec.ok('UpdateRepoReadme', { repoReadme: { uid, content }, updateMask: 'content' }, { token })
  const attempt = (uid: string, content: string, token: string) => spec.call('UpdateRepoReadme', { repoReadme: { uid, content } }, { token })
  const withRepo = async (): Promise<Organisation & { uid: string }> => {
    const organisation = await makeOrganisation(spec.server)
    const repo = { name: freshName('repo') }
    return { ...organisation, uid: uidOf(await spec.ok('CreateRepo', { parent: organisation.group, repo }, { token: organisation.token })) }
  }

  // docs/spec/registry.md#readmes
  test('a repo without a readme returns an empty one', async () => {
    const { uid, token } = await withRepo()
    expect(await read(uid, token)).toMatchObject({ uid, content: '' })
  })

  // docs/spec/registry.md#readmes
  test('a readme is what was last written, and may be emptied', async () => {
    const { uid, token } = await withRepo()
    const written = await write(uid, readme, token)
    expect(written).toMatchObject({ uid, content: readme })
    expect(await read(uid, token)).toEqual(written)
    const cleared = await write(uid, '', token)
    expect(cleared).toMatchObject({ uid, content: '', createTime: written['createTime'] })
    expect(cleared['etag']).not.toBe(written['etag'])
    expect(Date.parse(String(cleared['updateTime']))).toBeGreaterThan(Date.parse(String(written['updateTime'])))
  })

  // docs/spec/storage.md#consistent-reads
  test('a write of a readme that is not in memory does not wait for the watch', async () => {
    const { uid, token } = await withRepo()
    await write(uid, 'the thread is there now', token)
    const startedAt = performance.now()
    for (let at = 0; at < 5; at++) await write(uid, `text ${at}`, token)
    // A replica that waits for what never comes gives up after 5 s, and asks after 3 s.
    expect(performance.now() - startedAt).toBeLessThan(2_500)
  })

  // docs/spec/registry.md#readmes
  test('a readme may have up to 512 KiB', async () => {
    const { uid, token } = await withRepo()
    const large = 'All work and no play. '.repeat(30_000).slice(0, 524_288)
    expect(await write(uid, large, token)).toMatchObject({ content: large })
    expectFailure(await attempt(uid, `${large}!`, token), { code: 3, fields: ['content'] })
    expect(await read(uid, token)).toMatchObject({ content: large })
  })

  // docs/spec/registry.md#readmes
  test.each([
    ['a script', 'Hello <script>alert(1)</script>'],
    ['a script in upper case', '<SCRIPT SRC=//evil.example/x.js></SCRIPT>'],
    ['an event handler', '<img src="x" onerror="alert(1)">'],
    ['a link with a javascript: URL', '[click](javascript:alert(1))'],
    ['an HTML link with a javascript: URL', '<a href="java&#10;script:alert(1)">click</a>'],
    ['a link with a javascript: URL in entities', '<a href="&#106;avascript:alert(1)">click</a>'],
    ['an image with a data: URL', '![x](data:text/html;base64,PHNjcmlwdD4=)'],
    ['an autolink with a javascript: URL', '<javascript:alert(1)>'],
    ['a reference with a javascript: URL', '[click][1]\n\n[1]: vbscript:alert(1)'],
    ['a frame', '<iframe src="https://evil.example"></iframe>'],
    ['a form', '<form action="https://evil.example"><input name="password"></form>'],
    ['a style', '<p style="position:fixed;inset:0">over everything</p>'],
    ['a style sheet', '<style>body { display: none }</style>'],
    ['an object', '<object data="x.swf"></object>'],
    ['an SVG drawing', '<svg onload="alert(1)"></svg>'],
    ['a MathML formula', '<math><mi xlink:href="javascript:alert(1)">x</mi></math>'],
    ['a meta tag', '<meta http-equiv="refresh" content="0;url=https://evil.example">'],
    ['a base element', '<base href="https://evil.example/">'],
    ['a body element with an event handler', '<body onload="alert(1)">'],
    ['an html element with an attribute', '<html lang="en">'],
    ['a comment that ends early', '<!--><img src=x onerror=alert(1)>-->'],
    ['a tag that is never closed', '<div onclick=alert(1) '],
    ['a tag that is never closed, after others', '# Title\n\ntext\n\n<p title="x'],
    ['a comment that is never closed', '<!-- to be continued'],
    ['text that hides the rest of the page', '<textarea>'],
    ['a title attribute that contains the start of a tag', '<pre title=\'<hr id="'],
    ['a custom element', '<x-evil>hello</x-evil>'],
    ['a class name of the page', '<p class="admin-only">hello</p>'],
  ])('a readme with %s is refused', async (_, content) => {
    const { uid, token } = await withRepo()
    expectFailure(await attempt(uid, content, token), { code: 3, domain: 'registry.taproot.dev', fields: ['content'] })
    expect(await read(uid, token)).toMatchObject({ content: '' })
  })

  // docs/spec/registry.md#readmes
  test.each([
    ['an image with its size', '<img src="https://a.example/x.png" width="10" height="20">'],
    ['a code block of a language', '```typescript\nlet a = 1 < 2 && 3\n```'],
    ['a language name with unusual letters', '```c++\nint a;\n```'],
    ['a comment', '<!-- badges -->\n\ntext'],
    ['a mailto: link', '[us](mailto:us@example.com) <us@example.com>'],
    ['a link inside the page', '<a id="top"></a> [up](#top)'],
    ['a table with alignment', '|a|b|c|\n|:-|:-:|-:|\n|1|2|3|'],
    ['quotes, entities and umlauts', '> "quoted" &quot;x&quot; &copy; äöü 👋 <br> &lt;script&gt;'],
    ['text that looks like a tag', 'a < b and `<script>`'],
    ['carriage returns', 'one\r\ntwo\r\n\r\n- three'],
    ['lists and rules', '1. one\n   - two\n\n---\n\n* * *'],
    [
      'a picture with a dark variant',
      '<picture><source srcset="https://a.example/d.png" media="(prefers-color-scheme: dark)"><img src="https://a.example/l.png"></picture>',
    ],
  ])('a readme with %s is accepted', async (_, content) => {
    const { uid, token } = await withRepo()
    expect(await write(uid, content, token)).toMatchObject({ content })
  })

  // docs/spec/storage.md#fairness
  test.each([
    ['deeply nested HTML', '<div>'.repeat(100_000)],
    ['deeply nested inline HTML', `x ${'<b>'.repeat(170_000)}`],
    ['deeply nested quotes', '>'.repeat(500_000)],
    ['many brackets', '['.repeat(500_000)],
    ['images that are never closed', '![['.repeat(170_000)],
  ])('a readme with %s is answered, and no other request waits for it', async (_, content) => {
    const { uid, token } = await withRepo()
    const slow = attempt(uid, content, token)
    const others = async (): Promise<number> => {
      const startedAt = performance.now()
      await spec.ok('GetRepo', { uid }, { token })
      return performance.now() - startedAt
    }
    const waits = [await others(), await others(), await others()]
    expect([0, 3]).toContain((await slow).code)
    expect(Math.max(...waits)).toBeLessThan(2_000)
  })

  // docs/spec/conventions.md#update-masks
  test('a readme is changed by mask, by wildcard, and without a mask', async () => {
    const { uid, token } = await withRepo()
    await write(uid, 'old', token)
    const update = (repoReadme: JsonObject, updateMask?: string) =>
      spec.ok('UpdateRepoReadme', { repoReadme: { uid, ...repoReadme }, ...(updateMask === undefined ? {} : { updateMask }) }, { token })
    expect(await update({})).toMatchObject({ content: 'old' })
    expect(await update({ content: 'new' }, 'content')).toMatchObject({ content: 'new' })
    expect(await update({}, '*')).toMatchObject({ content: '' })
    expectFailure(await spec.call('UpdateRepoReadme', { repoReadme: { uid }, updateMask: 'text' }, { token }), { code: 3, fields: ['update_mask'] })
  })

  // docs/spec/conventions.md#etag-preconditions
  test('a readme write checks If-Match and the etag in the body, also for the first write', async () => {
    const { uid, token } = await withRepo()
    const empty = await read(uid, token)
    const first = await spec.ok('UpdateRepoReadme', { repoReadme: { ...empty, content: 'first' } }, { token })
    expectFailure(await spec.call('UpdateRepoReadme', { repoReadme: { ...empty, content: 'late' } }, { token }), { code: 10, reason: 'ETAG_MISMATCH' })
    const stale = await spec.call('UpdateRepoReadme', { repoReadme: { uid, content: 'late' } }, { token, ifMatch: String(empty['etag']) })
    expectFailure(stale, { code: 10, reason: 'ETAG_MISMATCH' })
    const second = await spec.ok('UpdateRepoReadme', { repoReadme: { uid, content: 'second' } }, { token, ifMatch: String(first['etag']) })
    expect(await read(uid, token)).toEqual(second)
  })

  // docs/spec/conventions.md#dry-run
  test('a dry run of a readme write returns the result and changes nothing', async () => {
    const { uid, token } = await withRepo()
    const before = await write(uid, 'old', token)
    const dry = await spec.ok('UpdateRepoReadme', { repoReadme: { uid, content: 'new' } }, { token, validateOnly: true })
    expect(dry).toMatchObject({ content: 'new' })
    const bad = await spec.call('UpdateRepoReadme', { repoReadme: { uid, content: '<script>' } }, { token, validateOnly: true })
    expectFailure(bad, { code: 3, fields: ['content'] })
    expect(await read(uid, token)).toEqual(before)
  })

  // docs/spec/storage.md#transactions
  test('concurrent writes of a readme are each complete, and the last acknowledged one is kept', async () => {
    const { uid, token } = await withRepo()
    const written = await Promise.all(Array.from({ length: 8 }, (_, at) => write(uid, `text ${at}`, token)))
    const last = await read(uid, token)
    expect(written).toContainEqual(last)
    expect(new Set(written.map(({ etag }) => etag)).size).toBe(8)
  })

  // docs/spec/registry.md#readmes
  test('callers who may update the repo may write its readme, and those who may list it may read it', async () => {
    const { group, uid, token } = await withRepo()
    const member = async (...capabilities: string[]) => (await makeMember(spec.server, group, { role: await makeRole(spec.server, group, capabilities) })).token
    const [writer, reader] = [await member('repo.update'), await member('repo.list')]
    await write(uid, 'text', writer)
    expectFailure(await attempt(uid, 'text', reader), { code: 7 })
    expect(await read(uid, reader)).toMatchObject({ content: 'text' })
    expectFailure(await spec.call('GetRepoReadme', { uid }, { token: writer }), { code: 7 })
    expectFailure(await spec.call('GetRepoReadme', { uid }, { token: (await makeOrganisation(spec.server)).token }), { code: 5 })
    expect(token).toMatch(/./)
  })

  // docs/spec/registry.md#readmes
  test('a synced repo shows the readme of its source and refuses writes', async () => {
    const { group, uid: source, token } = await withRepo()
    const text = await write(source, '# Source', token)
    const uid = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: 'synced', syncConfig: { source } } }, { token }))
    const shown = await read(uid, token)
    expect(shown).toEqual({ ...text, uid })
    expectFailure(await attempt(uid, 'ours', token), { code: 3, fields: ['content'] })
    expect(await spec.ok('UpdateRepoReadme', { repoReadme: shown, updateMask: '*' }, { token })).toEqual(shown)
    await write(source, '# Newer', token)
    expect(await read(uid, token)).toMatchObject({ uid, content: '# Newer' })
    await spec.ok('DeleteRepo', { uid: source }, { token })
    expect(await read(uid, token)).toMatchObject({ uid, content: '' })
  })

  // docs/spec/conventions.md#deletion-order
  test('the readme of a deleted repo is deleted with it', async () => {
    const { uid, token } = await withRepo()
    await write(uid, 'text', token)
    const kept = () => spec.server.running.engine.store.get(`x/readme/${uid}`, AbortSignal.timeout(60_000))
    expect(await kept()).toBeDefined()
    await spec.ok('DeleteRepo', { uid }, { token })
    expect(await kept()).toBeUndefined()
    for (const rpc of ['GetRepoReadme'] as const) expectFailure(await spec.call(rpc, { uid }, { token }), { code: 5 })
    expectFailure(await attempt(uid, 'text', token), { code: 5 })
    expect(await kept()).toBeUndefined()
  })

  // docs/spec/storage.md#transactions
  test('a readme write that races with the deletion of the repo leaves nothing behind', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { store } = spec.server.running.engine
    for (let at = 0; at < 10; at++) {
      const uid = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: 'raced' } }, { token }))
      const [updated, deleted] = await Promise.all([attempt(uid, `text ${at}`, token), spec.call('DeleteRepo', { uid }, { token })])
      expect(deleted.code).toBe(0)
      expect([0, 5]).toContain(updated.code)
      expect(await store.get(`x/readme/${uid}`, AbortSignal.timeout(60_000))).toBeUndefined()
    }
  })

  // docs/spec/events.md#event-bodies
  test('a readme write causes an update event of the repo with the readme as its body', async () => {
    const { group, uid, token } = await withRepo()
    await write(uid, '# Told', token)
    const { entries } = await spec.server.running.engine.store.range({ prefix: 'x/outbox/', limit: 10_000 }, AbortSignal.timeout(60_000))
    const events = entries.map(({ value }) => fromBinary(OutboxEventSchema, value)).filter((event) => event.subject === uid)
    const event = events.find(({ type }) => type === 'dev.taproot.api.platform.registry.repo.updated.v1')
    expect(event).toMatchObject({ group, bodyType: 'taproot.registry.v2.RepoReadme' })
    expect(fromBinary(RepoReadmeSchema, event?.body ?? new Uint8Array())).toMatchObject({ uid, content: '# Told' })
  })
})
