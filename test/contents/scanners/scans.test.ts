import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'
import type { OciClient, TestManifest } from '../../registry/oci/oci-client.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { freshName } from '../../support/test-server.ts'
import { ScanWorld } from './scan-world.ts'
import type { ScanRequest } from './scanner-service.ts'

/** For as long as this takes: reading contents and reports each start a process. */
const patience = { timeout: 120_000, interval: 100 }

describeOnStores('scans by a scanner of Harbor', (store) => {
  let world: ScanWorld
  beforeAll(async () => void (world = await new ScanWorld().start(store)))
  afterAll(() => world.stop())

  const freshPath = (): string => `${world.organisation}/${freshName('app')}`
  const pushed = async (path: string): Promise<TestManifest> => (await world.pusher()).pushImage(path, 'latest')
  const uidOf = (path: string): string => {
    const target = findRepository(world.server.running.engine.cache.tables, path)
    return target?.kind === 'repo' ? target.uid : ''
  }
  const referrersOf = async (path: string, { digest }: TestManifest): Promise<readonly Record<string, unknown>[]> => {
    const { body } = await (await world.pusher()).send('GET', `/v2/${path}/referrers/${digest}`)
    return (JSON.parse(body.toString()) as { manifests: Record<string, unknown>[] }).manifests
  }
  const scansOf = ({ digest }: TestManifest): readonly ScanRequest[] => world.service.scans.filter(({ artifact }) => artifact.digest === digest)
  const scanned = (path: string, image: TestManifest): Promise<void> => vi.waitFor(async () => expect(await referrersOf(path, image)).toHaveLength(1), patience)

  test('scans a pushed image with a token for its repo only, and keeps the report as a referrer', async () => {
    const [path, other] = [freshPath(), freshPath()]
    const unrelated = await pushed(other)
    await scanned(other, unrelated)
    const statuses: Record<string, number> = {}
    world.service.onScan = async ({ registry, artifact: { repository, digest } }) => {
      if (repository !== path) return
      const client: OciClient = world.client(registry.authorization.replace(/^Bearer /, ''))
      const statusOf = async (method: string, target: string): Promise<number> => (await client.send(method, target)).status
      const pulled = await client.send('GET', `/v2/${repository}/manifests/${digest}`)
      const [layer] = (JSON.parse(pulled.body.toString()) as { layers: { digest: string }[] }).layers
      statuses['manifest'] = pulled.status
      statuses['layer'] = await statusOf('GET', `/v2/${repository}/blobs/${layer?.digest ?? ''}`)
      statuses['push'] = await statusOf('POST', `/v2/${repository}/blobs/uploads/`)
      statuses['delete'] = await statusOf('DELETE', `/v2/${repository}/manifests/${digest}`)
      statuses['other'] = await statusOf('GET', `/v2/${other}/manifests/${unrelated.digest}`)
      statuses['catalog'] = await statusOf('GET', '/v2/_catalog')
    }
    const image = await pushed(path)
    await scanned(path, image)
    expect(statuses).toEqual({ manifest: 200, layer: 200, push: 401, delete: 401, other: 403, catalog: 401 })
    expect(scansOf(image)).toMatchObject([
      { registry: { url: `http://${world.server.config.registry.host}` }, artifact: { repository: path, mime_type: image.mediaType } },
    ])
    expect(await referrersOf(path, image)).toMatchObject([
      { artifactType: 'application/vnd.security.vulnerability.report', annotations: { 'dev.taproot.scanner': 'stand-in' } },
    ])
    for (const over of ['rest', 'grpc'] as const) {
      const answer = await world.call('ListScannerReports', { repoUid: uidOf(path), digest: image.digest }, over)
      expect(answer['reports']).toMatchObject([{ format: 'HARBOR_REPORT', scannerName: 'Stand-in', scannerVersion: '1.0' }])
    }
    expect(world.service.strayPaths).toEqual([])
  })
})
