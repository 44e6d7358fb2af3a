import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../../registry/oci/oci-client.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { ok } from '../../support/test-server.ts'
import { pollOptions, ScanWorld } from './scan-world.ts'
import { reportOf, sendReport, sendWait, usualAnswer, type ScanRequest } from './scanner-service.ts'

describeOnStores('scans by a scanner of Harbor', (store) => {
  let world: ScanWorld
  beforeAll(async () => void (world = await new ScanWorld().start(store)))
  afterAll(() => world.stop())
  beforeEach(() => {
    world.service.answer = usualAnswer
    world.service.onScan = () => Promise.resolve()
  })

  const scansOf = ({ digest }: TestManifest): readonly ScanRequest[] => world.service.scans.filter(({ artifact }) => artifact.digest === digest)
  const begun = (image: TestManifest, count = 1): Promise<void> => vi.waitFor(() => expect(scansOf(image)).toHaveLength(count), pollOptions)

  test('scans a pushed image with a token for this image only, and keeps the report as a referrer', async () => {
    const [path, other] = [world.freshPath(), world.freshPath()]
    const [unrelated, neighbour] = [await world.push(other), await world.push(path)]
    await Promise.all([world.scanned(other, unrelated), world.scanned(path, neighbour)])
    const statuses: Record<string, number> = {}
    world.service.onScan = async ({ registry, artifact: { repository, digest } }) => {
      if (repository !== path || digest === neighbour.digest) return
      const client = world.client(registry.authorization.replace(/^Bearer /, ''))
      const statusOf = async (method: string, target: string): Promise<number> => (await client.send(method, target)).status
      const pulled = await client.send('GET', `/v2/${repository}/manifests/${digest}`)
      const { config, layers } = JSON.parse(pulled.body.toString()) as { config: { digest: string }; layers: { digest: string }[] }
      const foreign = (JSON.parse(neighbour.bytes.toString()) as { layers: { digest: string }[] }).layers
      const of = async (name: string, status: Promise<number>): Promise<void> => void (statuses[name] = await status)
      statuses['manifest'] = pulled.status
      await of('config', statusOf('GET', `/v2/${repository}/blobs/${config.digest}`))
      await of('layer', statusOf('GET', `/v2/${repository}/blobs/${layers[0]?.digest ?? ''}`))
      await of('neighbour', statusOf('GET', `/v2/${repository}/manifests/${neighbour.digest}`))
      await of('layer of the neighbour', statusOf('GET', `/v2/${repository}/blobs/${foreign[0]?.digest ?? ''}`))
      await of('tag', statusOf('GET', `/v2/${repository}/manifests/latest`))
      await of('tags', statusOf('GET', `/v2/${repository}/tags/list`))
      await of('history', statusOf('GET', `/v2/${repository}/_service/history/latest`))
      await of('referrers', statusOf('GET', `/v2/${repository}/referrers/${digest}`))
      statuses['push'] = await statusOf('POST', `/v2/${repository}/blobs/uploads/`)
      statuses['delete'] = await statusOf('DELETE', `/v2/${repository}/manifests/${digest}`)
      statuses['other'] = await statusOf('GET', `/v2/${other}/manifests/${unrelated.digest}`)
      statuses['catalog'] = await statusOf('GET', '/v2/_catalog')
      const api = await world.server.rest.call('ListRepos', {}, { token: registry.authorization.replace(/^Bearer /, '') })
      statuses['api'] = api.code
    }
    const image = await world.push(path)
    await world.scanned(path, image)
    const refused = { push: 401, delete: 401, other: 403, catalog: 401, api: 16 }
    const notOfImage = { neighbour: 403, 'layer of the neighbour': 403, tag: 403, tags: 403, history: 403, referrers: 403 }
    expect(statuses).toEqual({ manifest: 200, config: 200, layer: 200, ...notOfImage, ...refused })
    const [, claims = ''] = scansOf(image)[0]?.registry.authorization.split('.') ?? []
    const { exp, iat } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { exp: number; iat: number }
    expect(exp - iat).toBe(30 * 60)
    const artifact = { repository: path, mime_type: image.mediaType }
    expect(scansOf(image)).toMatchObject([{ registry: { url: `http://${world.server.config.registry.host}` }, artifact }])
    expect(await world.referrers(path, image)).toMatchObject([
      { artifactType: 'application/vnd.security.vulnerability.report', annotations: { 'dev.taproot.scanner': 'stand-in' } },
    ])
    for (const over of ['rest', 'grpc'] as const) {
      // A report is pending until it was read.
      await vi.waitFor(async () => {
        const answer = await world.call('ListScannerReports', { repoUid: world.uidOf(path), digest: image.digest }, over)
        expect(answer['reports']).toMatchObject([{ format: 'HARBOR_REPORT', scannerName: 'Stand-in', scannerVersion: '1.0' }])
      }, pollOptions)
    }
    const audited = world.server.logs.map(({ fields }) => fields).filter(({ name }) => name === `${path}@${image.digest}`)
    expect(audited.filter(({ transport }) => transport === 'worker')).toMatchObject([
      { method: 'registry/token', identity: world.scanner },
      { method: 'registry/putManifest', identity: world.scanner, claimedSubject: 'scanner:stand-in' },
    ])
    expect(world.service.strayPaths).toEqual([])
  })

  test('scans each image once: not after another tag, not as an index, and no attestation', async () => {
    const path = world.freshPath()
    const images = [await world.push(path), await world.push(path)]
    const client = await world.pusher()
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: images.map(descriptorOf) })
    expect((await client.putManifest(path, 'both', index)).status).toBe(201)
    for (const image of images) await world.scanned(path, image)
    const [first] = images
    if (first !== undefined) expect((await client.putManifest(path, 'again', first)).status).toBe(201)
    await world.idle()
    expect(images.map((image) => scansOf(image).length)).toEqual([1, 1])
    expect(scansOf(index)).toEqual([])
    const answer = await world.call('ListScannerReports', { repoUid: world.uidOf(path), digest: index.digest })
    expect(answer['reports']).toHaveLength(2)
  })

  test('goes on with a scan after a restart, and begins again if the scanner has lost it', async () => {
    const path = world.freshPath()
    world.service.answer = (_, response) => sendWait(response)
    const image = await world.push(path)
    await world.noted(path, image)
    await world.restart()
    world.service.answer = usualAnswer
    await world.scanned(path, image)
    expect(scansOf(image)).toHaveLength(1)

    world.service.answer = (_, response) => sendWait(response)
    const lost = await world.push(path)
    await begun(lost)
    world.service.answer = usualAnswer
    world.service.forget()
    await world.scanned(path, lost)
    expect(scansOf(lost)).toHaveLength(2)
  })

  test('images wait while the scanner is down', async () => {
    await world.service.down()
    const path = world.freshPath()
    const image = await world.push(path)
    const failures = (): unknown[] =>
      world.server.logs.filter(({ message, fields }) => message.startsWith('background work failed') && fields['work'] === 'scans')
    await vi.waitFor(() => expect(failures()).not.toEqual([]), pollOptions)
    expect(await world.referrers(path, image)).toEqual([])
    await world.service.up()
    await world.scanned(path, image)
  })

  test('keeps nothing once the identity has lost its rights, its token pulls nothing then, and with its rights come the images', async () => {
    const path = world.freshPath()
    world.service.answer = (_, response) => sendWait(response)
    const image = await world.push(path)
    await begun(image)
    await world.withdraw()
    world.service.answer = (scan, response) => sendReport(response, reportOf(scan.artifact.digest))
    await vi.waitFor(async () => expect(await world.counted('denied')).toBe(1), pollOptions)
    expect(await world.referrers(path, image)).toEqual([])
    const [scan] = scansOf(image)
    const client = world.client(scan?.registry.authorization.replace(/^Bearer /, '') ?? '')
    expect((await client.send('GET', `/v2/${path}/manifests/${image.digest}`)).status).toBe(403)
    const between = world.freshPath()
    const late = await world.push(between)
    await world.idle()
    expect(scansOf(late)).toEqual([])
    await world.grant()
    await Promise.all([world.scanned(path, image), world.scanned(between, late)])
  })

  test('scans the images of an organisation that was suspended for a moment', async () => {
    const path = world.freshPath()
    world.service.answer = (_, response) => sendWait(response)
    const image = await world.push(path)
    await begun(image)
    const token = await world.server.operatorToken()
    ok(await world.server.rest.call('SuspendGroup', { uid: world.group }, { token }))
    await world.idle()
    world.service.answer = usualAnswer
    ok(await world.server.rest.call('ResumeGroup', { uid: world.group }, { token }))
    await world.scanned(path, image)
  })

  test('keeps nothing for an image that was deleted meanwhile', async () => {
    const path = world.freshPath()
    world.service.answer = (_, response) => sendWait(response)
    const image = await world.push(path)
    await begun(image)
    expect((await (await world.pusher()).send('DELETE', `/v2/${path}/manifests/${image.digest}`)).status).toBe(202)
    world.service.answer = usualAnswer
    await world.idle()
    expect(await world.referrers(path, image)).toEqual([])
  })

  test('a new scanner scans the images from before, with its credential, and one that comes back those from meanwhile', async () => {
    const path = world.freshPath()
    const image = await world.push(path)
    await world.scanned(path, image)
    const tokenFile = join(world.server.config.dataDir, 'scanner-credential')
    await writeFile(tokenFile, 'user:password\n')
    await world.restart({ name: 'second', authorization: 'basic', tokenFile })
    await world.scanned(path, image, 2)
    const between = world.freshPath()
    const late = await world.push(between)
    await world.scanned(between, late)
    await world.restart()
    await world.scanned(between, late, 2)
    expect(await world.referrers(path, image)).toHaveLength(2)
    expect(world.service.credentials).toContain(`Basic ${Buffer.from('user:password').toString('base64')}`)
  })
})
