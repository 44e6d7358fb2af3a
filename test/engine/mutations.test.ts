import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { capabilities, setOf } from '../../src/base/capability.ts'
import { expireIdempotencyKeys } from '../../src/engine/jobs/idempotency.ts'
import { idempotencyHourPrefix } from '../../src/engine/idempotency.ts'
import { StoreError, type Store } from '../../src/store/store.ts'
import {
  freshName,
  makeMember,
  makeOrganisation,
  makePerson,
  ok,
  roleUid,
  startTestServer,
  type Organisation,
  type TestServer,
} from '../support/test-server.ts'

const person = { issuer: 'https://people.example', subject: 'ada' }

/** Returns the store, but loses the answer to the next transaction after its commit. `meanwhile` runs before the caller gets the error. */
function losingOneAnswer(store: Store, meanwhile: () => Promise<unknown>): Store {
  let lost = false
  return new Proxy(store, {
    get(target, name) {
      if (name === 'transact' && !lost) {
        return async (...call: Parameters<Store['transact']>) => {
          lost = true
          await target.transact(...call)
          await meanwhile()
          throw new StoreError('indeterminate', 'the answer got lost')
        }
      }
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

describe('changes of records', () => {
  let server: TestServer
  let organisation: Organisation
  beforeAll(async () => {
    server = await startTestServer()
    organisation = await makeOrganisation(server)
  })
  afterAll(() => server.stop())

  /** Runs `call` while the store loses one answer. */
  async function withLostAnswer<T>(meanwhile: () => Promise<unknown>, call: () => Promise<T>): Promise<T> {
    // The only place where a real store is made to fail: services are passed by reference.
    const services = server.running.engine.services as { store: Store }
    const { store } = services
    services.store = losingOneAnswer(store, meanwhile)
    try {
      return await call()
    } finally {
      services.store = store
    }
  }

  test('a create whose answer was lost happens once, even if another client changed the record in between', async () => {
    const { group, token } = organisation
    const name = freshName('lost')
    const identity = { name, claimMatch: { issuer: 'https://i.example', subject: 's' } }
    const change = async (): Promise<void> => {
      const list = ok(await server.rest.call('ListIdentities', { name }, { token }))
      const [made] = list['identities'] as JsonObject[]
      ok(await server.rest.call('UpdateIdentity', { identity: { uid: made?.['uid'] ?? '', description: 'changed' } }, { token }))
    }
    ok(await withLostAnswer(change, () => server.rest.call('CreateIdentity', { parent: group, identity }, { token })))
    expect(ok(await server.rest.call('ListIdentities', { name }, { token }))).toMatchObject({ totalCount: '1', identities: [{ description: 'changed' }] })
  })

  test('a delete whose answer was lost succeeds, and the record is gone for the next reader', async () => {
    const { group, token } = organisation
    const made = ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('gone') } }, { token }))
    const uid = String(made['uid'])
    ok(
      await withLostAnswer(
        () => Promise.resolve(),
        () => server.rest.call('DeleteGroup', { uid }, { token }),
      ),
    )
    expect((await server.rest.call('GetGroup', { uid }, { token })).code).toBe(5)
  })

  test('an update with If-Match whose answer was lost does not conflict with itself', async () => {
    const { group, token } = organisation
    const made = ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('kept') } }, { token }))
    const update = { group: { uid: made['uid'] ?? '', description: 'new' } }
    const reply = await withLostAnswer(
      () => Promise.resolve(),
      () => server.rest.call('UpdateGroup', update, { token, ifMatch: String(made['etag']) }),
    )
    expect(ok(reply)['description']).toBe('new')
  })

  test.each([
    ['capabilities', { capabilities: setOf(['groups.list']) }],
    ['scopes', { scopes: [] as string[] }],
  ])('a person whose token is narrowed by %s can not create a root group, even with self service', async (_by, restrictions) => {
    const { uid, token } = await makePerson(server, person)
    const restricted = await server.tokenFor(uid, 'scopes' in restrictions ? { scopes: [organisation.group as never] } : restrictions)
    expect((await server.rest.call('CreateGroup', { group: { name: freshName('root') } }, { token: restricted })).code).toBe(7)
    expect((await server.rest.call('CreateGroup', { group: { name: freshName('root') } }, { token })).code).toBe(0)
  })

  test('a person who never signed in does not count as the required owner of a root group', async () => {
    const { uid: creator, token } = await makePerson(server, { ...person, subject: 'grace' })
    const group = String(ok(await server.rest.call('CreateGroup', { group: { name: freshName('root') } }, { token }))['uid'])
    ok(await server.rest.call('CreateRoleBinding', { parent: group, roleBinding: { identityUid: 'f'.repeat(40), roleUid: roleUid('owner') } }, { token }))
    const list = ok(await server.rest.call('ListRoleBindings', { identity: creator, uidp: { childrenOf: group } }, { token }))
    const [binding] = list['roleBindings'] as JsonObject[]
    const reply = await server.rest.call('DeleteRoleBinding', { uid: String(binding?.['uid']) }, { token })
    expect(reply).toMatchObject({ code: 9, details: { ErrorInfo: { reason: 'LAST_OWNER' } } })
  })

  test('a batch of 25 bindings with 25 roles fits into one transaction', async () => {
    const { group, token } = organisation
    const made = await Promise.all(
      Array.from({ length: 25 }, async (_, at) => {
        const role = { name: freshName('role'), capabilities: [capabilities.find(({ name }) => name === 'groups.list')?.enumName ?? ''] }
        const roleMade = ok(await server.rest.call('CreateRole', { parent: group, role }, { token }))
        const member = await makeMember(server, group)
        return { roleBinding: { identityUid: member.uid, roleUid: roleMade['uid'] ?? '' }, at }
      }),
    )
    const reply = await server.rest.call('BatchCreateRoleBindings', { parent: group, requests: made.map(({ roleBinding }) => ({ roleBinding })) }, { token })
    expect((ok(reply)['roleBindings'] as JsonObject[]).length).toBe(25)
  })

  test('the order of map keys in the body does not matter for an Idempotency-Key', async () => {
    const { group, token } = organisation
    const identityWith = (claims: Record<string, string>): JsonObject => ({ name: 'mapped', claimMatch: { issuer: 'https://i.example', subject: 's', claims } })
    const idempotencyKey = freshName('key')
    const first = ok(await server.rest.call('CreateIdentity', { parent: group, identity: identityWith({ a: '1', b: '2' }) }, { token, idempotencyKey }))
    const second = ok(await server.rest.call('CreateIdentity', { parent: group, identity: identityWith({ b: '2', a: '1' }) }, { token, idempotencyKey }))
    expect(second['uid']).toBe(first['uid'])
  })

  test('a subgroup sent back as read may be written by an owner: its inherited kind is unchanged', async () => {
    const operator = await server.operatorToken()
    const root = { name: `${freshName('acme')}.example`, verified: true, kind: 'ORG_KIND_CUSTOMER' }
    const group = String(ok(await server.rest.call('CreateGroup', { group: root }, { token: operator }))['uid'])
    const { token } = await makeMember(server, group, { role: 'owner' })
    const made = ok(await server.rest.call('CreateGroup', { parent: group, group: { name: 'sub' } }, { token }))
    expect(made['kind']).toBe('ORG_KIND_CUSTOMER')
    expect((await server.rest.call('UpdateGroup', { group: { ...made, description: 'sent back' }, updateMask: '*' }, { token })).code).toBe(0)
    const other = await server.rest.call('UpdateGroup', { group: { uid: made['uid'] ?? '', kind: 'ORG_KIND_STARTER' } }, { token })
    expect(other).toMatchObject({ code: 3, details: { BadRequest: { fieldViolations: [{ field: 'kind' }] } } })
  })

  test('an Idempotency-Key used again after 24 hours is not removed with its first use', async () => {
    const { store } = server.running.engine
    const { group, token } = organisation
    const idempotencyKey = freshName('key')
    const create = { parent: group, group: { name: freshName('once') } }
    const first = ok(await server.rest.call('CreateGroup', create, { token, idempotencyKey }))
    const signal = AbortSignal.timeout(60_000)
    const nowMs = Date.now()
    // The state after a first use more than a day ago: an hour's entry with the same key.
    const { entries } = await store.range({ prefix: idempotencyHourPrefix, limit: 1_000 }, signal)
    const old = entries.map(({ key }) => ({ kind: 'put', key: key.replace(/^(x\/idem\/t\/)[0-9a-f]+/, '$100000001'), value: new Uint8Array() }) as const)
    await store.transact({ guards: [], writes: old.slice(0, 100) }, signal)
    await expireIdempotencyKeys(store, nowMs, signal)
    const left = await store.range({ prefix: idempotencyHourPrefix, limit: 1_000 }, signal)
    expect(left.entries.map(({ key }) => key)).toEqual(entries.map(({ key }) => key))
    expect(ok(await server.rest.call('CreateGroup', create, { token, idempotencyKey }))['uid']).toBe(first['uid'])
    await expireIdempotencyKeys(store, nowMs + 26 * 3_600_000, signal)
    expect((await store.range({ prefix: 'x/idem/', limit: 10 }, signal)).entries).toEqual([])
  })

  test('a token of a person who was deleted and registered again is refused for both', async () => {
    const again = { issuer: 'https://people.example', subject: 'twice' }
    const { uid, token } = await makePerson(server, again)
    expect((await server.rest.call('ListGroups', {}, { token })).code).toBe(0)
    ok(await server.rest.call('DeleteIdentity', { uid }, { token: await server.operatorToken() }))
    expect((await server.rest.call('ListGroups', {}, { token })).code).toBe(16)
    const { token: fresh } = await makePerson(server, again)
    expect((await server.rest.call('ListGroups', {}, { token })).code).toBe(16)
    expect((await server.rest.call('ListGroups', {}, { token: fresh })).code).toBe(0)
  })
})
