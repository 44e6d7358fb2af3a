import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeMember, makeOrganisation } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

/** A digest of nothing in particular. */
function digest(seed: number): string {
  return `sha256:${seed.toString(16).padStart(64, '0')}`
}

interface Place {
  readonly group: string
  readonly token: string
  readonly repo: string
}

specSuite(
  'tags and their history',
  (spec) => {
    const place = async (): Promise<Place> => {
      const { group, token } = await makeOrganisation(spec.server)
      const repo = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: freshName('repo') } }, { token }))
      return { group, token, repo }
    }
    const put = (at: Place, name: string, of: number, more: JsonObject = {}): Promise<JsonObject> =>
      spec.ok('CreateTag', { parent: at.repo, tag: { name, digest: digest(of), ...more } }, { token: at.token })
    const names = async (at: Place, request: JsonObject): Promise<string[]> =>
      itemsOf(await spec.ok('ListTags', { uidp: { childrenOf: at.repo }, orderBy: 'name', ...request }, { token: at.token }), 'tags').map(({ name }) =>
        String(name),
      )
    const history = async (at: Place, request: JsonObject): Promise<JsonObject[]> =>
      itemsOf(await spec.ok('ListTagHistory', { repoUid: at.repo, ...request }, { token: at.token }), 'history')
    const digests = async (at: Place, request: JsonObject): Promise<unknown[]> => (await history(at, request)).map((record) => record['digest'])

    // docs/spec/resources.md#record-fields
    test('a tag has name, digest, deprecated and updateTime, and the common fields', async () => {
      const at = await place()
      const made = await put(at, 'latest', 1)
      expect(made).toMatchObject({ name: 'latest', digest: digest(1), deprecated: false, bundles: [] })
      expect(uidOf(made)).toMatch(new RegExp(`^${at.repo}/[0-9a-f]{16}$`))
      expect(made['updateTime']).toBe(made['createTime'])
      expect(await spec.ok('GetTag', { uid: uidOf(made) }, { token: at.token })).toEqual(made)
    })

    // docs/spec/registry.md#tag-creation
    test('creating an existing tag moves it: same uid, later time, one more history record', async () => {
      const at = await place()
      const first = await put(at, 'latest', 1)
      const second = await put(at, 'latest', 2)
      expect(uidOf(second)).toBe(uidOf(first))
      expect(second['createTime']).toBe(first['createTime'])
      expect(String(second['updateTime']) > String(first['updateTime'])).toBe(true)
      expect(second['etag']).not.toBe(first['etag'])
      expect(await names(at, {})).toEqual(['latest'])
      expect(await history(at, { tag: 'latest' })).toEqual([
        { updateTimestamp: first['updateTime'], digest: digest(1) },
        { updateTimestamp: second['updateTime'], digest: digest(2) },
      ])
    })

    // docs/spec/registry.md#tag-creation
    test('creating an existing tag with equal digest, deprecated and bundles changes nothing', async () => {
      const at = await place()
      const first = await put(at, 'latest', 1)
      expect(await put(at, 'latest', 1)).toEqual(first)
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1)])
    })

    // docs/spec/registry.md#tag-history
    test('deprecated and bundles may change without a new history record', async () => {
      const at = await place()
      await put(at, '1.0', 1)
      const changed = await put(at, '1.0', 1, { deprecated: true, bundles: ['fips'] })
      expect(changed).toMatchObject({ deprecated: true, bundles: ['fips'] })
      expect(await digests(at, { tag: '1.0' })).toEqual([digest(1)])
    })

    // docs/spec/registry.md#tag-creation
    test('a create with If-None-Match: * is code 6 for an existing name', async () => {
      const at = await place()
      await put(at, 'latest', 1)
      const reply = await spec.call('CreateTag', { parent: at.repo, tag: { name: 'latest', digest: digest(2) } }, { token: at.token, ifNoneMatch: '*' })
      expectFailure(reply, { code: 6 })
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1)])
    })

    // docs/spec/conventions.md#etag-preconditions
    test('a move with a stale If-Match is code 10', async () => {
      const at = await place()
      const { etag } = await put(at, 'latest', 1)
      await put(at, 'latest', 2)
      const reply = await spec.call('CreateTag', { parent: at.repo, tag: { name: 'latest', digest: digest(3) } }, { token: at.token, ifMatch: String(etag) })
      expectFailure(reply, { code: 10, reason: 'ETAG_MISMATCH' })
    })

    // docs/spec/conventions.md#etag-preconditions
    test('a create with If-Match does not recreate a tag deleted since it was read: code 10', async () => {
      const at = await place()
      const { uid, etag } = await put(at, 'latest', 1)
      await spec.ok('DeleteTag', { uid: String(uid) }, { token: at.token })
      for (const ifMatch of [String(etag), '*']) {
        const reply = await spec.call('CreateTag', { parent: at.repo, tag: { name: 'latest', digest: digest(1) } }, { token: at.token, ifMatch })
        expectFailure(reply, { code: 10, reason: 'ETAG_MISMATCH' })
      }
      expect(itemsOf(await spec.ok('ListTags', { uidp: { childrenOf: at.repo } }, { token: at.token }), 'tags')).toEqual([])
    })

    // docs/spec/conventions.md#dry-run
    test('a move with validateOnly changes nothing', async () => {
      const at = await place()
      await put(at, 'latest', 1)
      const request = { parent: at.repo, tag: { name: 'latest', digest: digest(2) } }
      expect(await spec.ok('CreateTag', request, { token: at.token, validateOnly: true })).toMatchObject({ digest: digest(2) })
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1)])
    })

    // docs/spec/registry.md#tag-names
    test.each([
      ['name', { digest: digest(1) }],
      ['digest', { name: 'latest' }],
      ['name', { name: '.bad', digest: digest(1) }],
      ['name', { name: 'x'.repeat(129), digest: digest(1) }],
      ['digest', { name: 'latest', digest: 'sha256:short' }],
      ['digest', { name: 'latest', digest: `sha512:${'0'.repeat(128)}` }],
    ])('a tag with an invalid %s is code 3 on that field: %j', async (field, tag) => {
      const at = await place()
      const reply = await spec.call('CreateTag', { parent: at.repo, tag }, { token: at.token })
      expectFailure(reply, { code: 3, fields: [field] })
    })

    // docs/spec/registry.md#tag-families
    test('lists hide referrer, dated and epoch tags by default, and an exact name finds hidden ones', async () => {
      const at = await place()
      const hidden = {
        referrer: `sha256-${'a'.repeat(64)}`,
        dated: '1.0-20240101',
        minute: '1.0-202401011230',
        epoch: '1.0-r2',
        both: '1.0-r2-20240101',
        plain: '1.0',
      }
      for (const [index, name] of Object.values(hidden).entries()) await put(at, name, index + 1)
      expect(await names(at, {})).toEqual(['1.0'])
      expect(await names(at, { includeReferrers: true })).toEqual(['1.0', hidden.referrer])
      expect(await names(at, { includeEpochs: true })).toEqual(['1.0', '1.0-r2'])
      expect(await names(at, { includeDates: true })).toEqual(['1.0', '1.0-20240101', '1.0-202401011230', '1.0-r2-20240101'])
      expect(await names(at, { includeReferrers: true, includeDates: true, includeEpochs: true })).toHaveLength(6)
      expect(await names(at, { name: '1.0-r2' })).toEqual(['1.0-r2'])
    })

    // docs/spec/registry.md#tag-filters
    test('digest is an exact filter of a list', async () => {
      const at = await place()
      await put(at, 'a', 1)
      await put(at, 'b', 2)
      await put(at, 'c', 1)
      expect(await names(at, { digest: digest(1) })).toEqual(['a', 'c'])
    })

    // docs/spec/registry.md#tag-filters
    test('updated_since selects strictly later tags, in any order, counted and paged', async () => {
      const at = await place()
      const times: string[] = []
      for (const [index, name] of ['c', 'a', 'd', 'b'].entries()) {
        spec.clock.advance(1000)
        times.push(String((await put(at, name, index + 1))['updateTime']))
      }
      const since = times[0] ?? ''
      expect(await names(at, { updatedSince: since })).toEqual(['a', 'b', 'd'])
      expect(await names(at, { updatedSince: since, orderBy: 'updated_at' })).toEqual(['a', 'd', 'b'])
      expect(await names(at, { updatedSince: since, orderBy: 'updated_at desc' })).toEqual(['b', 'd', 'a'])
      const page = await spec.ok('ListTags', { uidp: { childrenOf: at.repo }, updatedSince: since, orderBy: 'name', pageSize: 2 }, { token: at.token })
      expect(page['totalCount']).toBe('3')
      expect(await names(at, { updatedSince: since, pageSize: 2, pageToken: String(page['nextPageToken']) })).toEqual(['d'])
    })

    // docs/spec/conventions.md#tag-end-of-life
    test('end-of-life tags are found by listing 200 and selecting deprecated ones', async () => {
      const at = await place()
      await put(at, '1.0', 1, { deprecated: true })
      await put(at, '2.0', 2)
      const tags = itemsOf(await spec.ok('ListTags', { uidp: { childrenOf: at.repo }, pageSize: 200 }, { token: at.token }), 'tags')
      expect(tags.filter((tag) => tag['deprecated'] === true).map((tag) => tag['name'])).toEqual(['1.0'])
    })

    // docs/spec/registry.md#tag-history
    test('two moves in one millisecond get times one millisecond apart', async () => {
      const at = await place()
      await spec.clock.hold(async () => {
        for (const of of [1, 2, 3, 1]) await put(at, 'latest', of)
      })
      const records = await history(at, { tag: 'latest' })
      expect(records.map((record) => record['digest'])).toEqual([digest(1), digest(2), digest(3), digest(1)])
      const times = records.map((record) => Date.parse(String(record['updateTimestamp'])))
      expect(times.map((time) => time - (times[0] ?? 0))).toEqual([0, 1, 2, 3])
    })

    // docs/spec/registry.md#tag-history
    test('a history window includes its start and excludes its end', async () => {
      const at = await place()
      const times: string[] = []
      for (const of of [1, 2, 3, 4]) {
        spec.clock.advance(1000)
        times.push(String((await put(at, 'latest', of))['updateTime']))
      }
      const [, second = '', , fourth = ''] = times
      expect(await digests(at, { tag: 'latest', start: second, end: fourth })).toEqual([digest(2), digest(3)])
      expect(await digests(at, { tag: 'latest', start: fourth })).toEqual([digest(4)])
      expect(await digests(at, { tag: 'latest', end: second })).toEqual([digest(1)])
      expect(await digests(at, { tag: 'latest', start: '2999-01-01T00:00:00Z' })).toEqual([])
      expectFailure(await spec.call('ListTagHistory', { repoUid: at.repo, tag: 'latest', start: fourth, end: second }, { token: at.token }), {
        code: 3,
        fields: ['end'],
      })
    })

    test('a time between two milliseconds is used exactly: in a window, in updated_since and in a restore', async () => {
      const at = await place()
      const tag = { repoUid: at.repo, tag: 'latest' }
      const times: string[] = []
      await spec.clock.hold(async () => {
        for (const of of [1, 2, 3]) times.push(String((await put(at, 'latest', of))['updateTime']))
      })
      const [first = '', second = '', third = ''] = times
      for (const beyond of ['0004Z', '0006Z']) {
        const after = (time: string): string => time.replace('Z', beyond)
        expect(await digests(at, { tag: 'latest', start: after(first) })).toEqual([digest(2), digest(3)])
        expect(await digests(at, { tag: 'latest', end: after(second) })).toEqual([digest(1), digest(2)])
        expect(await digests(at, { tag: 'latest', start: after(second), end: third })).toEqual([])
        expect(await digests(at, { tag: 'latest', start: after(second), end: second.replace('Z', '0008Z') })).toEqual([])
        expect(await names(at, { updatedSince: after(second) })).toEqual(['latest'])
        expect(await names(at, { updatedSince: after(third) })).toEqual([])
        expect(await spec.ok('RestoreTag', { ...tag, time: after(second) }, { token: at.token, validateOnly: true })).toMatchObject({ digest: digest(2) })
      }
    })

    test('history in the platform API has pages that continue where the last one ended', async () => {
      const at = await place()
      for (const of of [1, 2, 3, 4, 5]) await put(at, 'latest', of)
      const seen: unknown[] = []
      let pageToken = ''
      do {
        const page = await spec.ok('ListTagHistory', { repoUid: at.repo, tag: 'latest', pageSize: 2, pageToken }, { token: at.token })
        seen.push(...itemsOf(page, 'history').map((record) => record['digest']))
        pageToken = String(page['nextPageToken'] ?? '')
      } while (pageToken !== '')
      expect(seen).toEqual([1, 2, 3, 4, 5].map(digest))
    })

    test('a page token of one tag is refused for another', async () => {
      const at = await place()
      for (const of of [1, 2, 3]) for (const name of ['one', 'two']) await put(at, name, of)
      const page = await spec.ok('ListTagHistory', { repoUid: at.repo, tag: 'one', pageSize: 1 }, { token: at.token })
      const reply = await spec.call('ListTagHistory', { repoUid: at.repo, tag: 'two', pageToken: String(page['nextPageToken']) }, { token: at.token })
      expectFailure(reply, { code: 3, fields: ['page_token'] })
    })

    // docs/spec/registry.md#tag-history
    test('a deleted tag keeps its history, without a record of the deletion', async () => {
      const at = await place()
      const { uid } = await put(at, 'latest', 1)
      await spec.ok('DeleteTag', { uid: String(uid) }, { token: at.token })
      expect(await names(at, {})).toEqual([])
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1)])
      await put(at, 'latest', 1)
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1), digest(1)])
    })

    // docs/spec/conventions.md#deletion-order
    test('a deleted repo takes its tags along, and their history stays', async () => {
      const at = await place()
      const { uid } = await put(at, 'latest', 1)
      await spec.ok('DeleteRepo', { uid: at.repo }, { token: at.token })
      expectFailure(await spec.call('GetTag', { uid: String(uid) }, { token: at.token }), { code: 5 })
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1)])
    })

    test('history of a tag that never existed, or of a repo out of reach, is code 5', async () => {
      const at = await place()
      const other = await place()
      await put(other, 'latest', 1)
      expectFailure(await spec.call('ListTagHistory', { repoUid: at.repo, tag: 'latest' }, { token: at.token }), { code: 5 })
      expectFailure(await spec.call('ListTagHistory', { repoUid: other.repo, tag: 'latest' }, { token: at.token }), { code: 5 })
    })

    test('restore by digest moves a tag back, and adds a history record', async () => {
      const at = await place()
      for (const of of [1, 2, 3]) await put(at, 'latest', of)
      const restored = await spec.ok('RestoreTag', { repoUid: at.repo, tag: 'latest', digest: digest(1) }, { token: at.token })
      expect(restored).toMatchObject({ name: 'latest', digest: digest(1) })
      expect(await digests(at, { tag: 'latest' })).toEqual([1, 2, 3, 1].map(digest))
    })

    // docs/spec/conventions.md#etag-preconditions
    test('a restore with a stale If-Match is code 10', async () => {
      const at = await place()
      const first = await put(at, 'latest', 1)
      const second = await put(at, 'latest', 2)
      const restore = (ifMatch: unknown) =>
        spec.call('RestoreTag', { repoUid: at.repo, tag: 'latest', digest: digest(1) }, { token: at.token, ifMatch: String(ifMatch) })
      expectFailure(await restore(first['etag']), { code: 10, reason: 'ETAG_MISMATCH' })
      expect((await restore(second['etag'])).code).toBe(0)
    })

    // docs/spec/registry.md#restore
    test('restore by time brings back the digest of that time, to the millisecond', async () => {
      const at = await place()
      const times: string[] = []
      for (const of of [1, 2, 3, 4, 5, 6, 7]) {
        spec.clock.advance(977)
        times.push(String((await put(at, 'latest', of))['updateTime']))
      }
      for (const [index, time] of times.entries()) {
        const request = { repoUid: at.repo, tag: 'latest' }
        expect(await spec.ok('RestoreTag', { ...request, time }, { token: at.token, validateOnly: true })).toMatchObject({ digest: digest(index + 1) })
        const before = new Date(Date.parse(time) - 1).toISOString()
        const reply = await spec.call('RestoreTag', { ...request, time: before }, { token: at.token, validateOnly: true })
        if (index === 0) expectFailure(reply, { code: 9, reason: 'DIGEST_NOT_IN_HISTORY' })
        else expect(reply.body).toMatchObject({ digest: digest(index) })
      }
    })

    test('restore brings a deleted tag back', async () => {
      const at = await place()
      const { uid } = await put(at, 'latest', 1)
      await spec.ok('DeleteTag', { uid: String(uid) }, { token: at.token })
      const restored = await spec.ok('RestoreTag', { repoUid: at.repo, tag: 'latest', digest: digest(1) }, { token: at.token })
      expect(restored['uid']).not.toBe(uid)
      expect(await names(at, {})).toEqual(['latest'])
    })

    test.each([
      ['neither digest nor time', {}],
      ['both', { digest: digest(1), time: '2026-01-01T00:00:00Z' }],
    ])('restore with %s is code 3', async (_title, more) => {
      const at = await place()
      await put(at, 'latest', 1)
      expectFailure(await spec.call('RestoreTag', { repoUid: at.repo, tag: 'latest', ...more }, { token: at.token }), { code: 3, fields: ['digest'] })
    })

    test('restore to a digest that the tag never had is code 9', async () => {
      const at = await place()
      await put(at, 'latest', 1)
      await put(at, 'other', 2)
      const reply = await spec.call('RestoreTag', { repoUid: at.repo, tag: 'latest', digest: digest(2) }, { token: at.token })
      expectFailure(reply, { code: 9, reason: 'DIGEST_NOT_IN_HISTORY' })
    })

    // docs/spec/conventions.md#method-scopes
    test('a viewer reads tags and history, and can not move, restore or delete', async () => {
      const at = await place()
      const { uid } = await put(at, 'latest', 1)
      const { token } = await makeMember(spec.server, at.group, { role: 'viewer' })
      expect(await digests({ ...at, token }, { tag: 'latest' })).toEqual([digest(1)])
      expectFailure(await spec.call('CreateTag', { parent: at.repo, tag: { name: 'x', digest: digest(1) } }, { token }), { code: 7 })
      expectFailure(await spec.call('RestoreTag', { repoUid: at.repo, tag: 'latest', digest: digest(1) }, { token }), { code: 7 })
      expectFailure(await spec.call('DeleteTag', { uid: String(uid) }, { token }), { code: 7 })
    })

    // docs/spec/conventions.md#idempotency-keys
    test("a create repeated with its idempotency key makes one move and returns the tag's current state", async () => {
      const at = await place()
      const request = { parent: at.repo, tag: { name: 'latest', digest: digest(1) } }
      const idempotencyKey = freshName('key')
      await spec.ok('CreateTag', request, { token: at.token, idempotencyKey })
      await put(at, 'latest', 2)
      expect(await spec.ok('CreateTag', request, { token: at.token, idempotencyKey })).toMatchObject({ digest: digest(2) })
      expect(await digests(at, { tag: 'latest' })).toEqual([digest(1), digest(2)])
    })
  },
  { keepsContent: false },
)
