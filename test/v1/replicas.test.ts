import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { itemsOf } from '../conformance/spec/spec-suite.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { shareEtcd } from '../support/parts/etcd.ts'
import { describeWithPart } from '../support/parts/require-part.ts'

describeWithPart('etcd', 'two replicas and version 1', () => {
  const servers: TestServer[] = []
  let organisation: Organisation
  // Both have the same key.
  let dataDir = ''

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'taproot-replicas-'))
    const etcd = await shareEtcd()
    for (let replica = 0; replica < 2; replica++) servers.push(await startTestServer({ store: 'etcd', etcd, dataDir }))
    organisation = await makeOrganisation(replicaAt(0))
  })
  afterAll(async () => {
    for (const server of servers) await server.stop()
    await rm(dataDir, { recursive: true, force: true })
  })

  function replicaAt(at: number): TestServer {
    const server = servers[at % 2]
    if (server === undefined) throw new Error('no server')
    return server
  }

  /** Calls a replica with a token of its own, because the replicas have two addresses here. */
  const call = async (at: number, rpc: string, request: JsonObject): Promise<JsonObject> =>
    ok(await replicaAt(at).rest.call(rpc, request, { token: await replicaAt(at).tokenFor(organisation.owner) }))

  // docs/spec/advisories.md#hand-made-advisories
  test('a write of a hand-made advisory at one replica is in the next answer of the other', async () => {
    const artifactName = freshName('own')
    const made = await call(0, 'Advisories/Create', { parentId: organisation.group, advisory: { advisoryId: 'X-1', artifactName, artifactType: 'PyPI' } })
    const id = String(made['id'])
    for (let round = 0; round < 6; round++) {
      const [writer, reader] = [round, round + 1]
      const event = await call(writer, 'Advisories/CreateAdvisoryEvent', { parentId: id, advisoryEvent: { detection: { manual: {} } } })
      const events = itemsOf(await call(reader, 'Advisories/ListAdvisoryEvents', { parentId: id }), 'items')
      expect(events).toHaveLength(round + 1)
      expect(events).toContainEqual(event)
      const updated = await call(writer, 'Advisories/Update', { id, artifactName, aliases: [`CVE-${round}`] })
      expect(itemsOf(await call(reader, 'Advisories/List', { aliases: [`CVE-${round}`] }), 'items')).toEqual([updated])
      expect(itemsOf(await call(reader, 'ListAdvisories', { aliases: [`CVE-${round - 1}`] }), 'advisories')).toEqual([])
      const shown = itemsOf(await call(reader, 'ListAdvisories', { artifactNames: [artifactName] }), 'advisories')
      expect(shown).toMatchObject([{ uid: id, aliases: [`CVE-${round}`] }])
    }
    await call(1, 'Advisories/Delete', { id })
    expect(itemsOf(await call(0, 'Advisories/List', { id }), 'items')).toEqual([])
    expect(itemsOf(await call(0, 'ListAdvisories', { artifactNames: [artifactName] }), 'advisories')).toEqual([])
  })

  // docs/spec/version-1.md#deployments
  test('charts that one replica writes are those that the other reads and replaces', async () => {
    const repoId = String((await call(0, 'Registry/CreateRepo', { parentId: organisation.group, repo: { name: freshName('repo') } }))['id'])
    for (let round = 0; round < 4; round++) {
      const charts = [{ repo: `oci://charts.example/${round}` }]
      await call(round, 'Registry/UpdateDeployment', { repoId, charts })
      expect(await call(round + 1, 'Registry/GetDeployment', { repoId })).toEqual({ id: repoId, charts })
    }
  })
})
