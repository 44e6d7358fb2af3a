import { expect, onTestFinished, test, vi } from 'vitest'
import { makeOrganisation, ok, startTestServer } from '../../support/test-server.ts'
import { startEtcd } from '../../support/parts/etcd.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { sharedKey } from '../../kubernetes/client/key-file.ts'

const polling = { timeout: 120_000, interval: 50 }
const base64 = (text: string): string => Buffer.from(text).toString('base64')

describeWithPart('etcd', 'keys that are removed from the store', () => {
  test('after a replacement of signing keys every process has the same new key at once, and refuses tokens of the old one', async () => {
    const [env, etcd] = [await sharedKey(), await startEtcd()]
    onTestFinished(() => etcd.stop())
    const servers = await Promise.all([startTestServer({ store: 'etcd', etcd, env }), startTestServer({ store: 'etcd', etcd, env })])
    onTestFinished(async () => void (await Promise.all(servers.map((server) => server.stop()))))
    const [server] = servers
    const kids = (): string[] => servers.map(({ running }) => running.engine.signingKeys.current().kid)
    const [before = ''] = kids()
    const { token, group } = await makeOrganisation(server)
    ok(await server.rest.call('GetGroup', { uid: group }, { token }))
    await etcd.members[0]?.call('kv/deleterange', { key: base64('/taproot/meta/signing-keys/'), range_end: base64('/taproot/meta/signing-keys0') })
    await vi.waitFor(() => {
      const now = kids()
      expect(now).not.toContain(before)
      expect(new Set(now).size).toBe(1)
    }, polling)
    await vi.waitFor(async () => expect(await server.rest.call('GetGroup', { uid: group }, { token })).toMatchObject({ code: 16 }), polling)
    const after = await makeOrganisation(server)
    ok(await server.rest.call('GetGroup', { uid: after.group }, { token: after.token }))
  })
})
