import { clone, create, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { RepoSchema } from '../../../../src/gen/taproot/registry/v2/repos_pb.ts'
import { ChangeSet } from '../../../../src/engine/change-set.ts'
import { createManaged, type ObjectCaller } from '../../../../src/domains/managed-records.ts'
import { endExpiredSyncs } from '../../../../src/registry/records/mirrors.ts'
import { StoreError } from '../../../../src/store/store.ts'
import { failNext } from '../../../support/fail-next.ts'
import { repoKind } from '../../../../src/registry/records/repos.ts'
import type { Resource } from '../../../../src/cache/records/cached-record.ts'
import { setOf } from '../../../../src/base/capability.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import { freshName, makeMember, makeOrganisation, makePerson, roleUid, type Organisation } from '../../../support/test-server.ts'
import { reinstate, suspend } from '../../../support/suspend.ts'
import { makeRole } from '../../walk/world.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

const dayMs = 24 * 3600 * 1000
const catalogue = { catalogTier: 'CATALOG_TIER_BASE', bundles: ['base'], aliases: ['library/nginx:latest'], activeTags: ['1'] }
const nothing = { catalogTier: 'CATALOG_TIER_UNSPECIFIED', bundles: [], aliases: [], activeTags: [] }

// The leader would end mirrors itself some seconds after a test moved the clock.
const suiteOptions = { leads: false }

specSuite(
  'mirrors of a repo',
  (spec) => {
    const signal = (): AbortSignal => AbortSignal.timeout(60_000)
    const operator = () => spec.server.operatorToken()

    /** An organisation with a repo and its readme. */
    const withSource = async (): Promise<Organisation & { source: string }> => {
      const organisation = await makeOrganisation(spec.server)
      const { group, token } = organisation
      const source = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: freshName('source'), ...catalogue } }, { token }))
      await spec.ok('UpdateRepoReadme', { repoReadme: { uid: source, content: '# Source' } }, { token })
      return { ...organisation, source }
    }
    const bind = async (parent: string, identityUid: string, role = roleUid('owner')): Promise<string> =>
      uidOf(await spec.ok('CreateRoleBinding', { parent, roleBinding: { identityUid, roleUid: role } }, { token: await operator() }))
    const unbind = async (uid: string) => spec.ok('DeleteRoleBinding', { uid }, { token: await operator() })

    /** A person who owns an organisation and may pull in that of the source: they mirror it. */
    const mirrored = async (source: string, role?: string) => {
      const { group } = await makeOrganisation(spec.server)
      const person = await makePerson(spec.server, { issuer: 'https://login.example', subject: freshName('person') })
      await bind(group, person.uid)
      const right = await bind(source.slice(0, 40), person.uid, role ?? roleUid('registry.pull'))
      const mirror = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: freshName('mirror'), syncConfig: { source } } }, { token: person.token }))
      return { group, person, right, mirror }
    }
    const tokenOf = (uid: string) => spec.server.tokenFor(uid)
    /** What the owner of a mirror is shown of its source, in every way. */
    const shown = async (mirror: string, token: string): Promise<JsonObject[]> => {
      const listed = itemsOf(await spec.ok('ListRepos', { uidp: { ids: [mirror] } }, { token }), 'repos')[0]
      const { content = '' } = await spec.ok('GetRepoReadme', { uid: mirror }, { token })
      return [await spec.ok('GetRepo', { uid: mirror }, { token }), listed ?? {}, { content }]
    }
    const expectShown = async (mirror: string, token: string) =>
      expect(await shown(mirror, token)).toMatchObject([catalogue, catalogue, { content: '# Source' }])
    const expectHidden = async (mirror: string, token: string) => expect(await shown(mirror, token)).toMatchObject([nothing, nothing, { content: '' }])

    test('mirrors of a repo show their source only while the identity that created them may pull there', async () => {
      const { source } = await withSource()
      const { mirror, right, person } = await mirrored(source)
      expect(await spec.ok('GetRepo', { uid: mirror }, { token: person.token })).toMatchObject({ syncConfig: { source, identityUid: person.uid } })
      await expectShown(mirror, person.token)
      await unbind(right)
      await expectHidden(mirror, person.token)
      await bind(source.slice(0, 40), person.uid, roleUid('viewer'))
      await expectShown(mirror, person.token)
    })

    test.each(['repo.list', 'manifest.list', 'repo.blobs.get'])(
      'mirrors of a repo show nothing once the role loses %s or the identity is deleted',
      async (lost) => {
        const { group, source, token } = await withSource()
        const needed = ['repo.list', 'manifest.list', 'repo.blobs.get']
        const role = await makeRole(spec.server, group, needed)
        const { mirror, person } = await mirrored(source, role)
        await expectShown(mirror, person.token)
        const capabilities = async (names: string[]) =>
          spec.ok('UpdateRole', { role: { uid: role, capabilities: names.map((name) => `CAP_${name.toUpperCase().replaceAll('.', '_')}`) } }, { token })
        await capabilities(needed.filter((name) => name !== lost))
        await expectHidden(mirror, person.token)
        await capabilities(needed)
        await expectShown(mirror, person.token)
        await spec.ok('DeleteIdentity', { uid: person.uid }, { token: await operator() })
        await expectHidden(mirror, await operator())
      },
    )

    test('mirrors of a mirror need the rights at every hop', async () => {
      const { source } = await withSource()
      const one = await mirrored(source)
      const two = await mirrored(one.mirror)
      await expectShown(two.mirror, two.person.token)
      await unbind(one.right)
      await expectHidden(two.mirror, two.person.token)
      await bind(source.slice(0, 40), one.person.uid, roleUid('registry.pull'))
      await expectShown(two.mirror, two.person.token)
      await unbind(two.right)
      await expectHidden(two.mirror, two.person.token)
      await expectShown(one.mirror, one.person.token)
    })

    test('mirrors of a repo hide a source in a suspended organisation', async () => {
      const { group, source } = await withSource()
      const { mirror, person } = await mirrored(source)
      await suspend(spec.server, group)
      await expectHidden(mirror, person.token)
      await reinstate(spec.server, group)
      await expectShown(mirror, person.token)
    })

    test('mirrors of a repo can not be created with session roles or a narrowed token, which end before the mirror', async () => {
      const { group, source } = await withSource()
      const home = await makeOrganisation(spec.server)
      const member = await makeMember(spec.server, home.group, { role: 'owner' })
      const create = (token: string) => spec.call('CreateRepo', { parent: home.group, repo: { name: freshName('mirror'), syncConfig: { source } } }, { token })
      const mapped = await spec.server.tokenFor(member.uid, { roles: [{ group: trustedUid(group), role: trustedUid(roleUid('viewer')) }] })
      expectFailure(await create(mapped), { code: 3, fields: ['sync_config.source'] })
      const { person, group: own } = await mirrored(source)
      const cut = await spec.server.tokenFor(person.uid, { capabilities: setOf(['repo.create', 'repo.list']) })
      const reply = await spec.call('CreateRepo', { parent: own, repo: { name: freshName('mirror'), syncConfig: { source } } }, { token: cut })
      expectFailure(reply, { code: 3, fields: ['sync_config.source'] })
    })

    test('mirrors of a repo do not reveal hidden content in an update', async () => {
      const { source } = await withSource()
      const { mirror, right, person } = await mirrored(source)
      await unbind(right)
      const reply = await spec.call('UpdateRepo', { repo: { uid: mirror, bundles: catalogue.bundles } }, { token: person.token })
      expectFailure(reply, { code: 3, fields: ['bundles'] })
    })

    test('mirrors of a repo without a recorded identity, from the previous version, show a source of their own organisation only', async () => {
      const { group, source, token } = await withSource()
      const own = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: freshName('own'), syncConfig: { source } } }, { token }))
      const foreign = await mirrored(source)
      const { cache, store } = spec.server.running.engine
      for (const uid of [own, foreign.mirror]) {
        const cached = cache.tables.get('Repo', uid)
        if (cached === undefined) throw new Error('no such repo')
        const record = clone(RepoSchema, cached.message)
        if (record.syncConfig !== undefined) record.syncConfig.identityUid = ''
        const changes = new ChangeSet()
        changes.update(repoKind, { cached, record: record, facts: cached })
        const outcome = await store.transact(changes, signal())
        if (outcome.committed) await cache.reached(outcome.revision, signal())
      }
      await expectShown(own, token)
      await expectHidden(foreign.mirror, foreign.person.token)
    })

    test('mirrors of a repo are created by a Kubernetes object as its grant allows, within its organisation', async () => {
      const { group, source, token } = await withSource()
      const other = await withSource()
      const { services } = spec.server.running.engine
      const object = (): ObjectCaller => ({
        managedBy: `cluster/ns/${freshName('repo')}`,
        identity: trustedUid('c'.repeat(40)),
        permissions: () => ({
          operator: false,
          grants: [group, other.group].map((at) => ({
            group: trustedUid(at),
            capabilities: setOf(['repo.create', 'repo.list', 'manifest.list', 'repo.blobs.get']),
          })),
        }),
        authorize: () => undefined,
        requestId: 'test',
        signal: signal(),
      })
      const draft = (from: string) => ({
        kind: 'Repo',
        parent: group,
        record: create(RepoSchema, { name: freshName('object'), syncConfig: { source: from } }) as unknown as Resource,
        paths: ['name', 'sync_config'],
      })
      const made = await createManaged(services, object(), draft(source))
      await expectShown(made.uid, token)
      await expect(createManaged(services, object(), draft(other.source))).rejects.toMatchObject({ code: 3 })
    })

    test('mirrors of a repo show nothing after their expirationTime; an update that names the source starts them again', async () => {
      const { source } = await withSource()
      const { mirror, person, right } = await mirrored(source)
      const end = async () => {
        const { syncConfig } = await spec.ok('GetRepo', { uid: mirror }, { token: await tokenOf(person.uid) })
        return Date.parse(String((syncConfig as JsonObject)['expirationTime'])) // a time of the answer
      }
      const first = await end()
      const name = async () => spec.ok('UpdateRepo', { repo: { uid: mirror, syncConfig: { source } } }, { token: await tokenOf(person.uid) })
      await name()
      expect(await end()).toBe(first)
      spec.clock.advance(8 * dayMs)
      await spec.ok('UpdateRepo', { repo: { uid: mirror, description: 'no word of the source' } }, { token: await tokenOf(person.uid) })
      expect(await end()).toBe(first)
      await name()
      expect((await end()) - first).toBeGreaterThanOrEqual(8 * dayMs)
      spec.clock.advance(14 * dayMs - 60_000)
      await expectShown(mirror, await tokenOf(person.uid))
      spec.clock.advance(60_000)
      await expectHidden(mirror, await tokenOf(person.uid))
      await name()
      await expectShown(mirror, await tokenOf(person.uid))
      spec.clock.advance(14 * dayMs)
      await unbind(right)
      // Without the right it stays as it is.
      await name()
      await expectHidden(mirror, await tokenOf(person.uid))
    })

    test('mirrors of a repo are ended by the leader after they expire', async () => {
      const { source } = await withSource()
      const [old, young] = [await mirrored(source), await mirrored(source)]
      spec.clock.advance(8 * dayMs)
      await spec.ok('UpdateRepo', { repo: { uid: young.mirror, syncConfig: { source } } }, { token: await tokenOf(young.person.uid) })
      spec.clock.advance(7 * dayMs)
      const { services } = spec.server.running.engine
      expect(await endExpiredSyncs(services, signal())).toBeGreaterThan(0)
      expect(await endExpiredSyncs(services, signal())).toBe(0)
      expect(await spec.ok('GetRepo', { uid: old.mirror }, { token: await tokenOf(old.person.uid) })).not.toHaveProperty('syncConfig')
      expect(await spec.ok('GetRepo', { uid: young.mirror }, { token: await tokenOf(young.person.uid) })).toMatchObject({ syncConfig: { source } })
      const ended = (await eventsOf(spec, old.mirror)).at(-1)
      expect(ended).toMatchObject({ type: 'dev.taproot.api.platform.registry.repo.updated.v1', group: old.group, actorSubject: '' })
    })

    test('mirrors of a repo that can not be ended do not delay others', async () => {
      const { services } = spec.server.running.engine
      // Those of other tests.
      spec.clock.advance(15 * dayMs)
      await endExpiredSyncs(services, signal())
      const { source } = await withSource()
      const old = [await mirrored(source), await mirrored(source)]
      spec.clock.advance(15 * dayMs)
      failNext(spec.server, () => Promise.reject(new StoreError('too_large', 'too large')), 'r/Repo/')
      await expect(endExpiredSyncs(services, signal())).rejects.toMatchObject({ code: 3 })
      const synced = async (): Promise<number> => {
        const repos = await Promise.all(old.map(async ({ mirror, person }) => spec.ok('GetRepo', { uid: mirror }, { token: await tokenOf(person.uid) })))
        return repos.filter((repo) => 'syncConfig' in repo).length
      }
      expect(await synced()).toBe(1)
      expect(await endExpiredSyncs(services, signal())).toBe(1)
      expect(await synced()).toBe(0)
    })

    test('mirrors of a repo are listed, page by page, for callers who may change the source, with whether they show anything', async () => {
      const { source, token } = await withSource()
      expect(await spec.ok('ListMirrors', { parent: source }, { token })).toMatchObject({ mirrors: [], totalCount: '0', skipped: 0 })
      const made = [await mirrored(source), await mirrored(source), await mirrored(source)].sort((one, other) => (one.mirror < other.mirror ? -1 : 1))
      await mirrored(made[0]?.mirror ?? '')
      await unbind(made[1]?.right ?? '')
      const page = await spec.ok('ListMirrors', { parent: source, pageSize: 2 }, { token })
      expect(page).toMatchObject({ totalCount: '3', skipped: 0 })
      const rest = await spec.ok('ListMirrors', { parent: source, pageSize: 2, pageToken: page['nextPageToken'] ?? '' }, { token })
      const mirrors = [...itemsOf(page, 'mirrors'), ...itemsOf(rest, 'mirrors')]
      expect(mirrors).toMatchObject(
        made.map(({ mirror, group, person }, at) => ({ uid: mirror, organizationUid: group, identityUid: at === 1 ? '' : person.uid, active: at !== 1 })),
      )
      const [first] = mirrors
      expect(first?.['organizationName']).toBe((await spec.ok('GetGroup', { uid: made[0]?.group ?? '' }, { token: await operator() }))['name'])
      expect(Date.parse(String(first?.['expirationTime']))).toBeGreaterThan(spec.clock.now())
      const backwards = itemsOf(await spec.ok('ListMirrors', { parent: source, orderBy: 'uid desc', skip: 1 }, { token }), 'mirrors')
      expect(backwards.map(uidOf)).toEqual(
        made
          .map(({ mirror }) => mirror)
          .reverse()
          .slice(1),
      )
      for (const [request, field] of [
        [{ orderBy: 'name' }, 'order_by'],
        [{ pageToken: 'garbage' }, 'page_token'],
        [{ pageToken: page['nextPageToken'] ?? '', orderBy: 'uid desc' }, 'page_token'],
      ] as const)
        expectFailure(await spec.call('ListMirrors', { parent: source, ...request }, { token }), { code: 3, fields: [field] })
    })

    test('mirrors of a repo are listed only with identities that the caller may see', async () => {
      const { group, source, token } = await withSource()
      const { mirror, person, right, group: theirs } = await mirrored(source)
      const workload = await makeMember(spec.server, group, { role: 'editor' })
      const own = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: 'own', syncConfig: { source } } }, { token: workload.token }))
      const editor = await makeMember(spec.server, group, { role: await makeRole(spec.server, group, ['repo.update']) })
      const named = async (bearer: string): Promise<unknown> =>
        Object.fromEntries(
          itemsOf(await spec.ok('ListMirrors', { parent: source }, { token: bearer }), 'mirrors').map(({ uid, identityUid }) => [uid, identityUid]),
        )
      // The owner lists the bindings and identities of the organisation.
      expect(await named(token)).toEqual({ [mirror]: person.uid, [own]: workload.uid })
      expect(await named(workload.token)).toEqual({ [mirror]: person.uid, [own]: workload.uid })
      expect(await named(editor.token)).toEqual({ [mirror]: '', [own]: '' })
      await unbind(right)
      expect(await named(token)).toEqual({ [mirror]: '', [own]: workload.uid })
      expect(await named(await operator())).toEqual({ [mirror]: person.uid, [own]: workload.uid })
      // An owner of both organisations lists the bindings of the mirror's, too.
      const both = await makePerson(spec.server, { issuer: 'https://login.example', subject: freshName('person') })
      for (const place of [group, theirs]) await bind(place, both.uid)
      expect(await named(both.token)).toEqual({ [mirror]: person.uid, [own]: workload.uid })
    })

    test('mirrors of a repo are hidden from callers who may not change the source; an ended mirror becomes an independent repo', async () => {
      const { group, source, token } = await withSource()
      const { mirror, person, group: theirs } = await mirrored(source)
      const two = await mirrored(mirror)
      const viewer = await makeMember(spec.server, group, { role: 'viewer' })
      for (const [rpc, request] of [
        ['ListMirrors', { parent: source }],
        ['EndMirror', { parent: source, mirrorUid: mirror }],
      ] as const) {
        expectFailure(await spec.call(rpc, request, { token: viewer.token }), { code: 7 })
        expectFailure(await spec.call(rpc, request, { token: (await makeOrganisation(spec.server)).token }), { code: 5 })
        expectFailure(await spec.call(rpc, { ...request, parent: `${group}/${'0'.repeat(16)}` }, { token }), { code: 5 })
      }
      const end = (mirrorUid: string, validateOnly = false) => spec.call('EndMirror', { parent: source, mirrorUid }, { token, validateOnly })
      for (const uid of [source, two.mirror, `${theirs}/${'0'.repeat(16)}`]) expectFailure(await end(uid), { code: 5 })
      expect((await end(mirror, true)).code).toBe(0)
      await expectShown(mirror, person.token)
      expect((await end(mirror)).code).toBe(0)
      expect(await spec.ok('GetRepo', { uid: mirror }, { token: person.token })).not.toHaveProperty('syncConfig')
      await expectHidden(mirror, person.token)
      // The mirror of the mirror shows what that has of its own.
      await expectHidden(two.mirror, two.person.token)
      expect(await spec.ok('UpdateRepo', { repo: { uid: mirror, bundles: ['ai'] } }, { token: person.token })).toMatchObject({ bundles: ['ai'] })
      expectFailure(await end(mirror), { code: 5 })
      expect(itemsOf(await spec.ok('ListMirrors', { parent: source }, { token }), 'mirrors')).toEqual([])
      const events = await eventsOf(spec, mirror)
      expect(events.some(({ type, group: at }) => type === 'dev.taproot.api.platform.registry.repo.updated.v1' && at === theirs)).toBe(true)
    })

    test('mirrors of a repo within one organisation also end when their creator loses the right to pull', async () => {
      const { group, source, token } = await withSource()
      const sub = await subgroup(spec, group, token)
      const editor = await makeMember(spec.server, group, { role: await makeRole(spec.server, group, ['repo.create', 'repo.list']), bindAt: sub })
      const pull = await bind(group, editor.uid, roleUid('registry.pull'))
      const mirror = uidOf(await spec.ok('CreateRepo', { parent: sub, repo: { name: 'mirror', syncConfig: { source } } }, { token: editor.token }))
      await expectShown(mirror, token)
      await unbind(pull)
      await expectHidden(mirror, token)
    })
  },
  suiteOptions,
)
