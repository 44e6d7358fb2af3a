import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { countUse } from '../../../src/domains/usage.ts'
import type { Reply } from '../../support/api-clients.ts'
import { freshName, makeOrganisation, makePerson, roleUid, type Organisation } from '../../support/test-server.ts'
import { expectFailure, specSuite, uidOf, type Spec } from './spec-suite.ts'

const exceeded = { code: 8, reason: 'QUOTA_EXCEEDED' }

function metadataOf({ details }: Reply): JsonObject {
  return details['ErrorInfo']?.['metadata'] as JsonObject // the shape of google.rpc.ErrorInfo
}

/** The refusal names the limit and the use, and promises nothing for later. */
function expectExceeded(reply: Reply, expected: { limit: string; max: string; use: string; scope: string }): void {
  expectFailure(reply, exceeded)
  expect(metadataOf(reply)).toMatchObject(expected)
  expect(reply.details['RetryInfo']).toBeUndefined()
  expect(reply.header('retry-after')).toBeUndefined()
}

async function organisationWith(spec: Spec, resourceLimits: Record<string, number>): Promise<Organisation> {
  const organisation = await makeOrganisation(spec.server)
  await spec.ok('SetGroupLimits', { uid: organisation.group, resourceLimits }, { token: await spec.server.operatorToken() })
  return organisation
}

specSuite(
  'quotas',
  (spec) => {
    const usage = async ({ group, token }: Organisation): Promise<JsonObject> =>
      (await spec.ok('GetGroupUsage', { uid: group }, { token }))['usage'] as JsonObject
    const newGroup = ({ group, token }: Organisation, parent = group): Promise<Reply> =>
      spec.call('CreateGroup', { parent, group: { name: freshName('team') } }, { token })

    test('a reached limit refuses one more record and names limit and use; a deletion makes room', async () => {
      const org = await organisationWith(spec, { groups: 3 })
      const first = uidOf((await newGroup(org)).body)
      expect((await newGroup(org, first)).code).toBe(0)
      expectExceeded(await newGroup(org), { limit: 'groups', max: '3', use: '3', scope: org.group })
      // Also for operators, who can set another limit.
      expectFailure(await spec.call('CreateGroup', { parent: org.group, group: { name: 'team' } }, { token: await spec.server.operatorToken() }), exceeded)
      expect(await usage(org)).toMatchObject({ groups: '3' })
      const [child] = (await spec.ok('ListGroups', { uidp: { childrenOf: first } }, { token: org.token }))['groups'] as JsonObject[]
      await spec.ok('DeleteGroup', { uid: uidOf(child ?? {}) }, { token: org.token })
      expect((await newGroup(org)).code).toBe(0)
      expectFailure(await newGroup(org), exceeded)
    })

    test('a dry run over a limit is refused like the call, and uses nothing up', async () => {
      const org = await organisationWith(spec, { groups: 2 })
      const dryRun = (): Promise<Reply> =>
        spec.call('CreateGroup', { parent: org.group, group: { name: freshName('team') } }, { token: org.token, validateOnly: true })
      for (let at = 0; at < 3; at++) expect((await dryRun()).code).toBe(0)
      expect((await newGroup(org)).code).toBe(0)
      expectFailure(await dryRun(), exceeded)
    })

    test('limits apply to one kind of record in one organisation', async () => {
      const [org, other] = [await organisationWith(spec, { groups: 1, repositories: 1 }), await organisationWith(spec, {})]
      expectFailure(await newGroup(org), exceeded)
      expect((await newGroup(other)).code).toBe(0)
      await spec.ok('CreateRepo', { parent: org.group, repo: { name: 'app' } }, { token: org.token })
      expectFailure(await spec.call('CreateRepo', { parent: org.group, repo: { name: 'more' } }, { token: org.token }), exceeded)
      await spec.ok('CreateRole', { parent: org.group, role: { name: 'reader', capabilities: ['CAP_REPO_LIST'] } }, { token: org.token })
    })

    test('tags count towards the limit, moves of a tag do not', async () => {
      const org = await organisationWith(spec, { tags: 1 })
      const repo = uidOf(await spec.ok('CreateRepo', { parent: org.group, repo: { name: 'app' } }, { token: org.token }))
      const tag = (name: string, digit: string): Promise<Reply> =>
        spec.call('CreateTag', { parent: repo, tag: { name, digest: `sha256:${digit.repeat(64)}` } }, { token: org.token })
      expect((await tag('latest', 'a')).code).toBe(0)
      expect((await tag('latest', 'b')).code).toBe(0)
      expectFailure(await tag('other', 'a'), exceeded)
    })

    test('a batch that exceeds a limit is refused as a whole', async () => {
      const org = await organisationWith(spec, { role_bindings: 3 })
      const batch = (count: number): Promise<Reply> => {
        const requests = Array.from({ length: count }, (_, at) => ({ roleBinding: { identityUid: `${at}`.padStart(40, 'c'), roleUid: roleUid('viewer') } }))
        return spec.call('BatchCreateRoleBindings', { parent: org.group, requests }, { token: org.token })
      }
      // The operator who made it and its owner are bound already.
      expect(await usage(org)).toMatchObject({ role_bindings: '2' })
      expectExceeded(await batch(2), { limit: 'role_bindings', max: '3', use: '2', scope: org.group })
      expect((await batch(1)).code).toBe(0)
    })

    test('the size of records counts in MiB, including the growth of a record', async () => {
      const org = await organisationWith(spec, { record_mib: 1 })
      const { server } = spec
      const bytes = (): number => server.running.engine.cache.tables.usageOf(org.group as never)?.bytes ?? 0
      const before = bytes()
      let reply: Reply | undefined
      for (let at = 0; at < 40 && (reply === undefined || reply.code === 0); at++)
        reply = await spec.call('CreateGroup', { parent: org.group, group: { name: freshName('team'), description: 'd'.repeat(500) } }, { token: org.token })
      expect(reply?.code).toBe(0)
      expect(bytes()).toBeGreaterThan(before + 40 * 500)
      expect(await usage(org)).toMatchObject({ record_mib: '1' })
      await spec.ok('SetGroupLimits', { uid: org.group, resourceLimits: { record_mib: 0 } }, { token: await server.operatorToken() })
      const refused = await spec.call('UpdateGroup', { group: { uid: org.group, description: 'longer than before' } }, { token: org.token })
      expectFailure(refused, exceeded)
      expect(metadataOf(refused)).toMatchObject({ limit: 'record_mib', max: '0', use: '1' })
    })

    test('operators set all limits at once, members read them, and no other caller can set them', async () => {
      const org = await organisationWith(spec, { groups: 5, clusters: 2 })
      const operator = { token: await spec.server.operatorToken() }
      expect(await spec.ok('GetGroup', { uid: org.group }, { token: org.token })).toMatchObject({ resourceLimits: { groups: 5, clusters: 2 } })
      expect(await spec.ok('GetGroupUsage', { uid: org.group }, { token: org.token })).toMatchObject({ resourceLimits: { groups: 5, clusters: 2 } })
      const set = await spec.ok('SetGroupLimits', { uid: org.group, resourceLimits: { idps: 1 } }, operator)
      expect(set).toMatchObject({ uid: org.group, resourceLimits: { idps: 1 } })
      expect(set['resourceLimits']).toEqual({ idps: 1 })
      for (const token of [org.token]) expectFailure(await spec.call('SetGroupLimits', { uid: org.group, resourceLimits: {} }, { token }), { code: 7 })
      expectFailure(await spec.call('SetGroupLimits', { uid: org.group, resourceLimits: { groupz: 1 } }, operator), { code: 3 })
      const team = uidOf((await newGroup(org)).body)
      expectFailure(await spec.call('SetGroupLimits', { uid: team, resourceLimits: {} }, operator), { code: 3, fields: ['uid'] })
      expectFailure(await spec.call('GetGroupUsage', { uid: team }, { token: org.token }), { code: 3, fields: ['uid'] })
      expectFailure(await spec.call('SetGroupLimits', { uid: org.group, resourceLimits: {} }, { ...operator, ifMatch: 'stale' }), {
        code: 10,
        reason: 'ETAG_MISMATCH',
      })
    })

    test('a limit below the current use deletes nothing and allows no more', async () => {
      const org = await organisationWith(spec, {})
      for (let at = 0; at < 3; at++) expect((await newGroup(org)).code).toBe(0)
      await spec.ok('SetGroupLimits', { uid: org.group, resourceLimits: { groups: 2 } }, { token: await spec.server.operatorToken() })
      expectExceeded(await newGroup(org), { limit: 'groups', max: '2', use: '4', scope: org.group })
      await spec.ok('SetGroupLimits', { uid: org.group, resourceLimits: {} }, { token: await spec.server.operatorToken() })
      expect((await newGroup(org)).code).toBe(0)
    })

    test('new organisations start with the configured limits, which differ for those of operators and self-service ones', async () => {
      const own = await organisationMadeBy(spec, (await makePerson(spec.server, { issuer: 'https://issuer.example', subject: freshName('person') })).token)
      expect(own['resourceLimits']).toEqual({ groups: 2, repositories: 1 })
      const theirs = await organisationMadeBy(spec, await spec.server.operatorToken())
      expect(theirs['resourceLimits']).toEqual({ idps: 4 })
    })

    test('events, tag moves and idempotency keys are shown as last counted by the leader', async () => {
      const org = await makeOrganisation(spec.server)
      const { store } = spec.server.running.engine
      const signal = AbortSignal.timeout(60_000)
      const digest = (digit: string): string => `sha256:${digit.repeat(64)}`
      const repo = uidOf(await spec.ok('CreateRepo', { parent: org.group, repo: { name: 'app' } }, { token: org.token, idempotencyKey: freshName('key') }))
      for (const digit of ['a', 'b', 'c']) await spec.ok('CreateTag', { parent: repo, tag: { name: 'latest', digest: digest(digit) } }, { token: org.token })
      expect(await usage(org)).toMatchObject({ events: '0', tag_moves: '0', idempotency_keys: '0' })
      await countUse(store, signal)
      // The organisation, its owner and the binding; the repo and three moves.
      expect(await usage(org)).toMatchObject({ events: '7', event_mib: '1', tag_moves: '3', idempotency_keys: '1' })
      const { entries } = await store.range({ prefix: `x/usage/${org.group}`, limit: 1 }, signal)
      await countUse(store, signal)
      // What is as it was is not written again.
      expect((await store.range({ prefix: `x/usage/${org.group}`, limit: 1 }, signal)).entries).toEqual(entries)
    })

    test('a deleted organisation leaves no limits or counters behind', async () => {
      const operator = { token: await spec.server.operatorToken() }
      const uid = uidOf(await organisationMadeBy(spec, operator.token))
      await spec.ok('SetGroupLimits', { uid, resourceLimits: { groups: 4 } }, operator)
      const child = uidOf(await spec.ok('CreateGroup', { parent: uid, group: { name: 'team' } }, operator))
      const left = async (): Promise<string[]> => {
        const { entries } = await spec.server.running.engine.store.range({ prefix: `i/quota/${uid}`, limit: 10 }, AbortSignal.timeout(60_000))
        return entries.map(({ key }) => key)
      }
      expect(await left()).toEqual([`i/quota/${uid}`, `i/quota/${uid}/groups`])
      await spec.ok('DeleteGroup', { uid: child }, operator)
      await spec.ok('DeleteGroup', { uid }, operator)
      expect(await left()).toEqual([])
    })
  },
  {
    keepsContent: false,
    env: {
      TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'true',
      TAPROOT_LIMITS_SELF_SERVICE: JSON.stringify([
        { limit: 'groups', max: 2 },
        { limit: 'repositories', max: 1 },
      ]),
      TAPROOT_LIMITS_ORGANIZATIONS: JSON.stringify([{ limit: 'idps', max: 4 }]),
    },
  },
)

async function organisationMadeBy(spec: Spec, token: string): Promise<JsonObject> {
  return spec.ok('CreateGroup', { group: { name: freshName('org') } }, { token })
}
