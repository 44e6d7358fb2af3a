import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { makeImageWorld, pushPackages, withRegistry, type ImageWorld } from '../../contents/counts/image-world.ts'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { ok, startTestServer, type TestServer } from '../../support/test-server.ts'

// docs/spec/registry.md#pull-policies
test('a server that starts again refuses at once what it refused before', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'taproot-restart-'))
  onTestFinished(() => rm(dataDir, { recursive: true }))
  const clock = new TestClock()
  const start = (): Promise<TestServer> => startTestServer({ dataDir, store: 'sqlite', clock, env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })
  const statusOf = (world: ImageWorld): Promise<number> =>
    withRegistry(world, async (client) => (await client.send('GET', `/v2/${world.path}/manifests/1.0`)).status)
  const first = await start()
  const world = await makeImageWorld(first)
  await pushPackages(world, '1.0', { musl: '1' })
  const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '2' }] }] }]
  const severity = [{ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }]
  await importDocuments(first, world.group, [osvDocument('CVE-2026-1001', { affected, severity })])
  const pullPolicy = { name: 'no-critical', rules: [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }] }
  ok(await first.rest.call('CreatePullPolicy', { parent: world.group, pullPolicy }, { token: world.token }))
  await vi.waitFor(
    async () => {
      // The worker looks for images once a second.
      clock.advance(1_000)
      expect(await statusOf(world)).toBe(403)
    },
    { timeout: 120_000 },
  )
  await first.stop()
  const second = await start()
  onTestFinished(() => second.stop())
  expect(await statusOf({ ...world, server: second })).toBe(403)
})
