import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { Etcd3 } from 'etcd3'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { Store } from '../../src/store/store.ts'
import { EtcdCluster } from '../faults/cluster/etcd-cluster.ts'
import type { Member } from '../faults/cluster/member.ts'
import { Network } from '../faults/cluster/network.ts'
import { until } from '../faults/cluster/until.ts'
import type { Reply } from '../support/api-clients.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { commit, committed, failureOf, put, silentLog, soon, text } from '../store/store-harness.ts'

/** Maximum time in milliseconds from a member to its leader. */
const withinMs = 20_000
const settles = { withinMs, what: 'the writer key is deleted' }

/** A call through the follower, changes while its transaction is held, and changes that undo these. */
interface Story {
  /** Bytes that only the transaction of this call contains. */
  readonly marker: string
  call(server: TestServer): Promise<Reply>
  meanwhile(): Promise<void>
  undo(): Promise<void>
}

describeWithPart('etcd', 'a transaction that arrives late at the etcd leader', () => {
  const network = new Network()
  let directory: string
  let etcd: EtcdCluster
  let follower: Member
  let leader: Member
  /** A server connected to the leader. */
  let other: TestServer
  let organisation: Organisation
  let env: Record<string, string>

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-late-'))
    etcd = await EtcdCluster.start({ directory: join(directory, 'etcd'), network, members: 3, hasLongTimeouts: true })
    leader = await etcd.leader()
    follower = etcd.members.find((member) => member !== leader) ?? leader
    const keyFile = join(directory, 'encryption.key')
    await writeFile(keyFile, randomBytes(32).toString('hex'))
    env = { TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
    other = await startTestServer({ store: 'etcd', etcd: { endpoints: [leader.clientUrl] }, env })
    organisation = await makeOrganisation(other)
  })

  afterAll(async () => {
    await other?.stop()
    await etcd?.stop()
    await network.close()
    await rm(directory, { recursive: true, force: true })
  })

  function open(endpoints: readonly string[], prefix: string): Store {
    const store = createEtcdStore({ endpoints, prefix, log: silentLog, requestTimeoutMs: 2000 })
    onTestFinished(() => store.close())
    return store
  }

  /** The keys of writers in the store of this prefix. */
  async function writerKeys(prefix: string): Promise<{ hasLease: boolean }[]> {
    const client = new Etcd3({ hosts: [leader.clientUrl] })
    try {
      const { kvs } = await client.getAll().prefix(`${prefix}!fence/`).exec()
      return kvs.map(({ lease }) => ({ hasLease: lease !== '0' }))
    } finally {
      client.close()
    }
  }

  async function deleteWriterKeys(prefix: string): Promise<void> {
    const client = new Etcd3({ hosts: [leader.clientUrl] })
    try {
      await client.delete().prefix(`${prefix}!fence/`).exec()
    } finally {
      client.close()
    }
  }

  function hold(marker: string): void {
    network.set(follower.name, leader.name, { holds: (message) => message.includes(marker) })
    onTestFinished(() => network.set(follower.name, leader.name, { holds: undefined }))
  }

  function held(): Promise<void> {
    return until(() => network.isHolding(follower.name, leader.name), { withinMs, what: 'the follower sends the transaction to its leader' })
  }

  /** Releases the transaction. Resolves once the leader has it: a later write takes the same path. */
  async function deliver(): Promise<void> {
    expect(network.isHolding(follower.name, leader.name)).toBe(true)
    network.set(follower.name, leader.name, { holds: undefined })
    await commit(open([follower.clientUrl], `/probe-${freshName('x')}/`), put('r/probe'))
  }

  async function asOwner(rpc: string, request: JsonObject): Promise<JsonObject> {
    return ok(await other.rest.call(rpc, request, { token: organisation.token }))
  }

  /** Runs the scenario, and returns the answer to the call. */
  async function perform({ marker, call, meanwhile, undo }: Story): Promise<Reply> {
    const endpoints = [follower, leader].map(({ clientUrl }) => clientUrl)
    const server = await startTestServer({ store: 'etcd', etcd: { endpoints }, env })
    try {
      hold(marker)
      const answer = call(server)
      await held()
      await meanwhile()
      const reply = await answer
      await undo()
      await deliver()
      return reply
    } finally {
      await server.stop()
    }
  }

  test('a late transaction of a plain etcd client, without a fence, does commit', async () => {
    const [client, key] = [new Etcd3({ hosts: [follower.clientUrl] }), freshName('plain')]
    const reader = new Etcd3({ hosts: [leader.clientUrl] })
    onTestFinished(() => [client, reader].forEach((each) => each.close()))
    hold('late-value')
    const answer = client.put(key).value('late-value').exec()
    await held()
    expect(await reader.get(key).string()).toBeNull()
    await deliver()
    await answer
    expect(await reader.get(key).string()).toBe('late-value')
  })

  test.each([
    { title: 'after a fence', fence: (store: Store) => store.fence(soon()) },
    { title: 'after the next write of the same process', fence: (store: Store) => commit(store, put('r/next')) },
    {
      title: 'although its caller makes no further call',
      fence: (_: Store, prefix: string) => until(async () => (await writerKeys(prefix)).length === 0, settles),
    },
  ])('a late transaction never commits $title', async ({ fence }) => {
    const prefix = `/fenced-${freshName('x')}/`
    const store = open([follower.clientUrl], prefix)
    await commit(store, put('r/a'))
    expect(await writerKeys(prefix)).toEqual([{ hasLease: true }])
    hold('fenced-value')
    expect(await failureOf(commit(store, put('r/late', 'fenced-value')))).toBe('indeterminate')
    await fence(store, prefix)
    await deliver()
    expect(await store.get('r/late', soon())).toBeUndefined()
    await commit(store, put('r/late', 'again'))
  })

  test('a late transaction never commits after a fence, even as one of a group whose caller went away', async () => {
    const store = open([follower.clientUrl], `/group-${freshName('x')}/`)
    const away = new AbortController()
    await commit(store, put('r/connected'))
    hold('group-value')
    // The first two are sent alone; the others share the next transaction.
    const alone = ['r/a', 'r/b'].map((key) => commit(store, put(key)))
    const left = store.transact({ guards: [], writes: [put('r/left', 'group-value')] }, away.signal)
    const stayed = commit(store, put('r/stayed', 'group-value')).catch((error: unknown) => error)
    await Promise.all(alone)
    await held()
    away.abort(new Error('the caller went away'))
    await expect(left).rejects.toMatchObject({ kind: 'indeterminate' })
    await store.fence(soon())
    await deliver()
    expect(await stayed).toMatchObject({ kind: 'indeterminate' })
    expect((await store.range({ prefix: 'r/', limit: 10 }, soon())).entries.map(({ key }) => key)).toEqual(['r/a', 'r/b', 'r/connected'])
  })

  test('a late transaction is sent again if it failed only because the writer key was deleted, and commits once', async () => {
    const prefix = `/resent-${freshName('x')}/`
    const store = open([follower.clientUrl], prefix)
    const start = await commit(store, put('r/a', '1'))
    await deleteWriterKeys(prefix)
    const guards = [{ kind: 'unchanged', key: 'r/a', revision: start }] as const
    const second = committed(await store.transact({ guards, writes: [put('r/a', '2')] }, soon()))
    expect((await store.get('r/a', soon()))?.revision).toBe(second)
    await deleteWriterKeys(prefix)
    expect(await store.transact({ guards, writes: [put('r/a', '3')] }, soon())).toEqual({ committed: false })
    expect(text((await store.get('r/a', soon()))?.value)).toBe('2')
    expect(await writerKeys(prefix)).toEqual([{ hasLease: true }])
  })

  test('a late transaction is refused if the writer key is deleted before each attempt, and never commits', async () => {
    const prefix = `/hunted-${freshName('x')}/`
    const store = open([follower.clientUrl], prefix)
    await commit(store, put('r/a'))
    let sends = 0
    let isOver = false
    hold('hunted-value')
    const outcome = failureOf(commit(store, put('r/b', 'hunted-value'))).finally(() => (isOver = true))
    while (!isOver) {
      await until(() => isOver || network.isHolding(follower.name, leader.name), { withinMs, what: 'the transaction is sent, or refused' })
      if (isOver) break
      sends += 1
      await deleteWriterKeys(prefix)
      network.set(follower.name, leader.name, { holds: undefined })
      network.set(follower.name, leader.name, { holds: (message) => message.includes('hunted-value') })
    }
    expect(await outcome).toBe('unavailable')
    expect(sends).toBe(8)
    expect(await store.get('r/b', soon())).toBeUndefined()
  })

  test('a late transaction is not known to be fenced until etcd acknowledges the fence, which can be repeated', async () => {
    const store = open([follower.clientUrl], `/again-${freshName('x')}/`)
    await commit(store, put('r/a'))
    network.set(follower.name, leader.name, { holds: () => true })
    onTestFinished(() => network.set(follower.name, leader.name, { holds: undefined }))
    expect(await failureOf(commit(store, put('r/late', 'doubtful')))).toBe('indeterminate')
    expect(await failureOf(store.fence(soon()))).toBe('unavailable')
    network.set(follower.name, leader.name, { holds: undefined })
    await store.fence(soon())
    const outcome = (await store.get('r/late', soon()))?.revision
    await commit(store, put('r/b'))
    expect((await store.get('r/late', soon()))?.revision).toBe(outcome)
  })

  test('a late transaction never creates a record after its create was refused with code 6', async () => {
    const name = freshName('late')
    let uid = ''
    const create = { parent: organisation.group, group: { name } }
    const reply = await perform({
      marker: name,
      call: async (server) => server.rest.call('CreateGroup', create, { token: await server.tokenFor(organisation.owner) }),
      meanwhile: async () => void (uid = String((await asOwner('CreateGroup', create))['uid'])),
      undo: async () => void (await asOwner('DeleteGroup', { uid })),
    })
    expect(reply).toMatchObject({ code: 6 })
    expect(await asOwner('ListGroups', { uidp: { childrenOf: organisation.group }, name })).toMatchObject({ totalCount: '0' })
  })

  test('a late transaction never deletes a group after the delete was refused with code 9', async () => {
    const group = await asOwner('CreateGroup', { parent: organisation.group, group: { name: freshName('kept') } })
    const uid = String(group['uid'])
    let child = ''
    const reply = await perform({
      marker: uid,
      call: async (server) => server.rest.call('DeleteGroup', { uid }, { token: await server.tokenFor(organisation.owner) }),
      meanwhile: async () => void (child = String((await asOwner('CreateGroup', { parent: uid, group: { name: 'child' } }))['uid'])),
      undo: async () => void (await asOwner('DeleteGroup', { uid: child })),
    })
    expect(reply).toMatchObject({ code: 9 })
    expect(await asOwner('GetGroup', { uid })).toMatchObject({ uid })
  })

  test('a late transaction never grants rights after its role binding was refused with code 6, even once the other binding is deleted', async () => {
    const identity = { name: freshName('late'), claimMatch: { issuer: 'https://issuer.example', subject: freshName('subject') } }
    const identityUid = String((await asOwner('CreateIdentity', { parent: organisation.group, identity }))['uid'])
    const create = { parent: organisation.group, roleBinding: { identityUid, roleUid: roleUid('viewer') } }
    let uid = ''
    const reply = await perform({
      marker: identityUid,
      call: async (server) => server.rest.call('CreateRoleBinding', create, { token: await server.tokenFor(organisation.owner) }),
      meanwhile: async () => void (uid = String((await asOwner('CreateRoleBinding', create))['uid'])),
      undo: async () => void (await asOwner('DeleteRoleBinding', { uid })),
    })
    expect(reply).toMatchObject({ code: 6 })
    expect(await asOwner('ListRoleBindings', { uidp: { childrenOf: organisation.group }, identity: identityUid })).toMatchObject({ totalCount: '0' })
  })
})
