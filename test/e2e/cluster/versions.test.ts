import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startCluster, describeWithCluster, type Cluster } from './harness/cluster.ts'
import { run } from './harness/command.ts'
import { ask } from './harness/load.ts'
import { orReport } from './harness/or-report.ts'
import { ReleaseUser } from './harness/release-user.ts'
import { awaitRelease, importImages, putRelease, taprootImages, valuesToTry } from './harness/release.ts'
import { buildTaprootImage, imageSources } from './harness/taproot-image.ts'

const root = join(import.meta.dirname, '..', '..', '..')
/** The Git revision of the earlier version. */
const previous = process.env['TAPROOT_PREVIOUS'] ?? '6fa7e7b'

/** A released version: its chart, and its image on the node. */
interface Version {
  readonly chart: string
  readonly image: { readonly repository: string; readonly tag: string; readonly pullPolicy: 'Never' }
}

describeWithCluster('the previous version and this one in turn', () => {
  let cluster: Cluster
  let home: string
  let user: ReleaseUser
  let earlier: Version
  let current: Version
  let web = ''
  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'taproot-versions-test-'))
    const archive = join(home, 'source.tar')
    await run('git', ['-C', root, 'archive', `--output=${archive}`, previous, 'charts', ...imageSources])
    await run('tar', ['--extract', `--file=${archive}`, `--directory=${home}`])
    const { archive: earlierImage, tag: earlierTag } = await buildTaprootImage(home)
    cluster = await startCluster()
    user = new ReleaseUser(cluster)
    const tag = await importImages(cluster)
    await cluster.importImage(earlierImage, taprootImages[1])
    await cluster.addVolumes(2)
    earlier = { chart: join(home, 'charts', 'taproot'), image: { repository: taprootImages[1], tag: earlierTag, pullPolicy: 'Never' } }
    current = { chart: join(root, 'charts', 'taproot'), image: { repository: taprootImages[0], tag, pullPolicy: 'Never' } }
  })
  afterAll(async () => {
    await cluster?.stop()
    await rm(home, { recursive: true, force: true })
  })

  /** Installs or upgrades with two pods of each role, so that both versions serve at the same time. */
  const put = async (command: 'install' | 'upgrade', { chart, image }: Version): Promise<string> => {
    const values = valuesToTry(image.tag, { image, api: { replicas: 2 }, registry: { replicas: 2 } })
    const notes = await putRelease(cluster, command, { chart, values })
    await orReport(cluster, () => awaitRelease(cluster))
    return notes
  }

  test('the previous version is installed and used', async () => {
    const notes = await put('install', earlier)
    await user.signIn(notes)
    await user.makeOrganisation(notes)
    await cluster.kubectl(['apply', '--filename', join(root, 'deploy', 'samples')])
    await user.allReady()
    await user.pushImage()
    web = await user.uidOf('platformgroup/web')
  })

  test.each(['upgrade', 'downgrade', 'upgrade again'])('during %s every request is answered, and all records remain', async (step) => {
    await user.underLoad(async () => void (await put('upgrade', step === 'downgrade' ? earlier : current)))
    expect(await user.record(ask(user.request(`/iam/v2/groups/${web}`)))).toMatchObject({ uid: web, name: 'web' })
    expect(await user.uidOf('platformgroup/web')).toBe(web)
    await user.allReady()
  })
})
