import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { forgetHeldNames } from '../../../../src/iam/records/held-names.ts'
import { heldNameKey } from '../../../../src/store/keys.ts'
import type { Reply } from '../../../support/api-clients.ts'
import { failNext } from '../../../support/fail-next.ts'
import { freshName, makePerson } from '../../../support/test-server.ts'
import { expectFailure, specSuite, uidOf, type Spec } from '../spec-suite.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs
const held = { code: 6, reason: 'NAME_HELD' }

/** The uid of a person, or an operator. */
type Caller = string

specSuite(
  'names of deleted and renamed organisations',
  (spec) => {
    const person = async (): Promise<string> => (await makePerson(spec.server, { issuer: 'https://people.example', subject: freshName('person') })).uid
    // Time moves on by more than a token lives.
    const tokenOf = (by: Caller): Promise<string> => (by === 'operator' ? spec.server.operatorToken() : spec.server.tokenFor(by))
    const create = async (name: string, by: Caller, validateOnly = false): Promise<Reply> =>
      spec.call('CreateGroup', { group: { name } }, { token: await tokenOf(by), validateOnly })
    const created = async (name: string, by: Caller): Promise<string> => uidOf(await spec.ok('CreateGroup', { group: { name } }, { token: await tokenOf(by) }))
    /** An organisation that is old enough to reserve its name. */
    const aged = async (name: string, by: Caller): Promise<string> => {
      const uid = await created(name, by)
      spec.clock.advance(hourMs)
      return uid
    }
    const rename = async (uid: string, name: string, by: Caller): Promise<Reply> =>
      spec.call('UpdateGroup', { group: { uid, name } }, { token: await tokenOf(by) })
    const remove = async (uid: string, by: Caller): Promise<JsonObject> => spec.ok('DeleteGroup', { uid }, { token: await tokenOf(by) })

    test('names of deleted and renamed organisations are reserved for 30 days after a deletion: no caller can take them, operators included', async () => {
      const [owner, other, name] = [await person(), await person(), freshName('acme')]
      await remove(await aged(name, owner), owner)
      const refused = await create(name, other)
      expectFailure(refused, held)
      expect(refused.message).toContain('operator')
      expect(refused.details['ErrorInfo']?.['metadata']).toMatchObject({ name, until: expect.stringMatching(/Z$/) as unknown })
      expectFailure(await create(name, other, true), held)
      expectFailure(await create(name, 'operator'), held)
      spec.clock.advance(30 * dayMs - 60_000)
      expectFailure(await create(name, await person()), held)
      spec.clock.advance(60_000)
      expect((await create(name, await person())).code).toBe(0)
    })

    test('names of deleted and renamed organisations can be taken again by the former owner, and are no longer reserved then', async () => {
      const [owner, name] = [await person(), freshName('acme')]
      await remove(await aged(name, owner), owner)
      const again = await aged(name, owner)
      expect(spec.server.running.engine.services.cache.tables.entry(heldNameKey(name))).toBeUndefined()
      expect((await create(name, await person())).code).toBe(6)
      await remove(again, owner)
      expectFailure(await create(name, await person()), held)
    })

    test('a create that was checked before another organisation used and released the name is refused', async () => {
      const [owner, other, name] = [await person(), await person(), freshName('acme')]
      failNext(spec.server, async (real, call) => {
        await remove(await aged(name, owner), owner)
        return real.transact(...call)
      })
      expectFailure(await create(name, other), held)
    })

    test('names of deleted and renamed organisations can be taken back by their former organisation, and by no other, with a rename', async () => {
      const [owner, other, name, next] = [await person(), await person(), freshName('acme'), freshName('acme')]
      const uid = await aged(name, owner)
      const another = await created(freshName('root'), other)
      expect((await rename(uid, next, owner)).code).toBe(0)
      expectFailure(await rename(another, name, other), held)
      expectFailure(await create(name, other), held)
      expect((await rename(uid, name, owner)).code).toBe(0)
      expectFailure(await rename(another, next, other), held)
    })

    test('names of deleted and renamed organisations are reserved for at most five renames of one organisation, and not in its first hour', async () => {
      const owner = await person()
      const names = Array.from({ length: 7 }, () => freshName('acme'))
      const [first = '', ...others] = names
      const uid = await created(first, owner)
      const early = freshName('acme')
      expect((await rename(uid, early, owner)).code).toBe(0)
      expect((await create(first, await person())).code).toBe(0)
      spec.clock.advance(hourMs)
      for (const name of others) expect((await rename(uid, name, owner)).code).toBe(0)
      const reserved = [early, ...others.slice(0, -1)].map((name) => spec.server.running.engine.services.cache.tables.entry(heldNameKey(name)) !== undefined)
      expect(reserved).toEqual([false, true, true, true, true, true])
    })

    test('names of deleted and renamed organisations can be released to everyone by operators', async () => {
      const [owner, other, name] = [await person(), await person(), freshName('acme')]
      await remove(await aged(name, owner), owner)
      expectFailure(await spec.call('ReleaseGroupName', { name }, { token: await tokenOf(other) }), { code: 7 })
      const token = await tokenOf('operator')
      await spec.ok('ReleaseGroupName', { name }, { token, validateOnly: true })
      expectFailure(await create(name, other), held)
      await spec.ok('ReleaseGroupName', { name }, { token })
      expectFailure(await spec.call('ReleaseGroupName', { name }, { token }), { code: 5 })
      expect((await create(name, other)).code).toBe(0)
    })

    test('names of subgroups are free at once after a deletion or rename', async () => {
      const owner = await person()
      const parent = await created(freshName('root'), owner)
      const child = async (): Promise<string> => uidOf(await spec.ok('CreateGroup', { parent, group: { name: 'team' } }, { token: await tokenOf(owner) }))
      await remove(await child(), owner)
      await child()
    })

    test('names of deleted and renamed organisations are removed from the store after their reservation ends', async () => {
      const [owner, name, later] = [await person(), freshName('acme'), freshName('acme')]
      await remove(await aged(name, owner), owner)
      spec.clock.advance(20 * dayMs)
      const next = await person()
      await remove(await aged(later, next), next)
      spec.clock.advance(10 * dayMs)
      const { services } = spec.server.running.engine
      await forgetHeldNames(services, AbortSignal.timeout(60_000))
      await services.cache.barrier()
      expect([name, later].map((each) => services.cache.tables.entry(heldNameKey(each)) !== undefined)).toEqual([false, true])
    })
  },
  { env: { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'true' } },
)

specSuite(
  'names of organisations without reservations',
  (spec: Spec) => {
    test('names of organisations without reservations are free at once with nameHoldDays 0', async () => {
      const name = freshName('acme')
      const make = async (): Promise<string> => {
        const maker = await makePerson(spec.server, { issuer: 'https://people.example', subject: freshName('person') })
        return uidOf(await spec.ok('CreateGroup', { group: { name } }, { token: maker.token }))
      }
      const uid = await make()
      spec.clock.advance(hourMs)
      await spec.ok('DeleteGroup', { uid }, { token: await spec.server.operatorToken() })
      await make()
    })
  },
  { env: { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'true', TAPROOT_ORGANIZATIONS_NAME_HOLD_DAYS: '0' } },
)
