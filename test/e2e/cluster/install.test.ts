import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { fullTierDescribe, fullTierTest } from '../../support/tier.ts'
import { crane, type CraneOptions } from '../../support/parts/crane.ts'
import { requirePart } from '../../support/parts/require-part.ts'
import { until } from '../process/harness/ops.ts'
import { startCluster, describeWithCluster, type Cluster } from './harness/cluster.ts'
import { layerContent } from './harness/crane-pod.ts'
import { startIngressProxy, type IngressProxy } from './harness/ingress.ts'
import { ask } from './harness/load.ts'
import { orReport } from './harness/or-report.ts'
import { pushProgramImage } from './harness/program-image.ts'
import { startSigned } from './harness/signed-index.ts'
import { image, ReleaseUser, served } from './harness/release-user.ts'
import { shell } from './harness/shell.ts'
import { awaitRelease, importImages, podsOf, putRelease, release, taprootImages, valuesToTry, type Values } from './harness/release.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const samples = join(root, 'deploy', 'samples')
/** The host names after the change of values. */
const hosts = { api: 'platform.example.com', registry: 'registry.example.com' }
const readyWithinMs = 120_000

describeWithCluster('a release in a cluster', () => {
  let cluster: Cluster
  let tag = ''
  let notes = ''
  /** State that later tests use. */
  let user: ReleaseUser
  beforeAll(async () => {
    cluster = await startCluster()
    user = new ReleaseUser(cluster)
    tag = await importImages(cluster)
    await cluster.addVolumes(2)
  })
  afterAll(() => cluster?.stop())

  const put = (command: 'install' | 'upgrade', more: Values = {}): Promise<string> => putRelease(cluster, command, { values: valuesToTry(tag, more) })
  const ready = (): Promise<void> => orReport(cluster, () => awaitRelease(cluster))
  const larger = (): Values => ({ image: { repository: taprootImages[1], tag, pullPolicy: 'Never' }, api: { replicas: 3 }, registry: { replicas: 3 } })

  test('a release in a cluster is ready within two minutes, each role in its own pods, and passes helm test', async () => {
    const start = performance.now()
    notes = await put('install')
    await ready()
    expect(performance.now() - start).toBeLessThan(readyWithinMs)
    await user.signIn(notes)
    const pods = await Promise.all(['api', 'registry', 'controller', 'worker'].map((component) => podsOf(cluster, component)))
    expect(pods).toEqual(['api', 'registry', 'controller', 'worker'].map((component) => [expect.stringMatching(`^taproot-${component}-`)]))
    expect(await orReport(cluster, () => cluster.helm(['test', release, '--namespace', release]))).toMatch(/(Phase: +Succeeded[^]*){2}/)
  })

  test('a release in a cluster lets its operator create the first root group, as the notes explain', async () => {
    await user.makeOrganisation(notes)
    const { groups } = await user.record(ask(user.request('/iam/v2/groups')))
    expect(groups).toMatchObject([{ uid: user.group }])
  })

  test('a release in a cluster applies Kubernetes objects to the API, and mirrors API records as objects', async () => {
    await cluster.kubectl(['apply', '--filename', samples])
    await user.allReady()
    expect(await user.record(ask(user.request(`/iam/v2/groups/${await user.uidOf('platformgroup/web')}`)))).toMatchObject({
      name: 'web',
      description: 'The shop and its images',
    })
    const mirrors = (): Promise<string> =>
      cluster.kubectl(['--namespace', release, 'get', 'platformgroups', '--selector', 'taproot.dev/origin=api', '--output', 'jsonpath={.items[*].status.uid}'])
    await until(async () => (await mirrors()).split(' ').includes(user.group), 60_000)
    expect(await cluster.kubectl(['get', 'platform', '--all-namespaces'])).toMatch(
      new RegExp(`^taproot +platformgroup.taproot.dev/pg-\\w+ +True +True +\\S+ +${user.group} `, 'm'),
    )
  })

  test('a release in a cluster accepts an image from a service account that an object grants access, and returns it', async () => {
    await user.pushImage()
    expect(await user.runCrane('pulls', ['export', image, '-'])).toContain(layerContent)
  })

  fullTierTest('answers every request while it goes to another image and to three pods each', async () => {
    await user.underLoad(async () => {
      await put('upgrade', { image: { repository: taprootImages[1], tag, pullPolicy: 'Never' } })
      await ready()
      await put('upgrade', larger())
      await ready()
    })
    const counts = served.map(async (component) => (await podsOf(cluster, component)).length)
    expect(await Promise.all(counts)).toEqual([3, 3])
  })

  fullTierTest('answers every request while its pods are deleted one by one', async () => {
    const [apis = [], registries = []] = await Promise.all(served.map((component) => podsOf(cluster, component)))
    await user.underLoad(async () => {
      for (const [index, pod] of apis.entries()) {
        await cluster.kubectl(['--namespace', release, 'delete', 'pod', pod, registries[index] ?? '', '--timeout=120s'])
        await ready()
      }
    })
  })

  fullTierTest('goes, and its definitions, objects and data stay; installed again, with hosts of its own, it goes on with them', async () => {
    const web = await user.uidOf('platformgroup/web')
    await cluster.helm(['uninstall', release, '--namespace', release, '--wait', '--timeout', '2m'])
    expect(await podsOf(cluster, 'api')).toEqual([])
    expect((await cluster.kubectl(['get', 'crds', '--output', 'name'])).match(/taproot\.dev$/gm)).toHaveLength(7)
    expect((await cluster.kubectl(['--namespace', 'acme', 'get', 'platform', '--output', 'name'])).trim().split('\n')).toHaveLength(8)

    const ingress = { enabled: true, className: 'edge' }
    notes = await put('install', { baseUrl: `http://${hosts.api}`, api: { ingress }, registry: { host: hosts.registry, ingress } })
    await ready()
    await user.signIn(notes)
    expect(await user.record(ask(user.request(`/iam/v2/groups/${user.group}`)))).toMatchObject({ uid: user.group })
    await cluster.kubectl(['--namespace', 'acme', 'patch', 'platformgroup', 'web', '--type=merge', '--patch', '{"spec":{"description":"Another"}}'])
    await user.allReady()
    expect(await user.record(ask(user.request(`/iam/v2/groups/${web}`)))).toMatchObject({ uid: web, description: 'Another' })
  })

  fullTierTest('is put back from a backup of its etcd, and its objects after that, by the commands of docs/recovery.md', async () => {
    const home = await mkdtemp(join(tmpdir(), 'taproot-recovery-test-'))
    try {
      const snapshot = join(home, 'taproot.db')
      await shell(cluster, `deploy/recovery/backup-etcd.sh ${release} ${release} ${snapshot}`)
      const late = {
        apiVersion: 'taproot.dev/v1alpha1',
        kind: 'PlatformGroup',
        metadata: { name: 'late', namespace: 'acme' },
        spec: { parentRef: { name: 'web' } },
      }
      await cluster.kubectl(['apply', '--filename', '-'], JSON.stringify(late))
      await user.allReady()
      const [web, lost] = [await user.uidOf('platformgroup/web'), await user.uidOf('platformgroup/late')]
      await cluster.kubectl(['--namespace', 'acme', 'patch', 'platformgroup', 'web', '--type=merge', '--patch', '{"spec":{"description":"Later"}}'])
      await user.allReady()

      const cut = join(home, 'cut.db')
      await writeFile(cut, (await readFile(snapshot)).subarray(0, -4096))
      const refused = await shell(cluster, `deploy/recovery/restore-etcd.sh ${release} ${release} ${cut} 2>&1 || true`)
      expect(refused).toContain(`${cut} can not be restored; nothing was changed`)
      expect(await user.record(ask(user.request(`/iam/v2/groups/${lost}`)))).toMatchObject({ uid: lost })

      await orReport(cluster, () => shell(cluster, `deploy/recovery/restore-etcd.sh ${release} ${release} ${snapshot}`))
      await ready()
      await orReport(cluster, () =>
        cluster.kubectl(['--namespace', 'acme', 'wait', 'platformgroup/late', '--for=jsonpath={.status.conditions[0].reason}=ExternalLost', '--timeout=60s']),
      )
      expect(await ask(user.request(`/iam/v2/groups/${lost}`))).toMatchObject({ status: 404 })
      const page = await readFile(join(root, 'docs', 'recovery.md'), 'utf8')
      const [, refilled = ''] = /```sh\n(kubectl get platform -A[^`]+)```/.exec(page) ?? []
      expect(await shell(cluster, refilled)).toMatch(/platformgroup\S* annotated/)
      await user.allReady()
      expect(await user.uidOf('platformgroup/late')).not.toBe(lost)
      expect(await user.record(ask(user.request(`/iam/v2/groups/${web}`)))).toMatchObject({ uid: web, description: 'Later' })
    } finally {
      await rm(home, { recursive: true })
    }
  })

  fullTierTest('gets another encryption key by the commands of docs/recovery.md', async () => {
    const home = await mkdtemp(join(tmpdir(), 'taproot-key-test-'))
    try {
      const page = await readFile(join(root, 'docs', 'recovery.md'), 'utf8')
      const [, keep = ''] = /```sh\n(kubectl -n taproot get secret taproot-encryption [^\n]+)\n/.exec(page) ?? []
      const [, replace = ''] = /```sh\n(openssl rand [^`]+)```/.exec(page) ?? []
      const commands = `cd ${home}\n${keep}\n${replace.replace('charts/taproot', join(root, 'charts', 'taproot'))}`
      expect(await orReport(cluster, () => shell(cluster, commands))).toMatch(/added: 2 keys[^]*retired: 1 key /)
      await ready()
      expect(await user.record(ask(user.request(`/iam/v2/groups/${user.group}`)))).toMatchObject({ uid: user.group })
    } finally {
      await rm(home, { recursive: true })
    }
  })

  fullTierDescribe('through its Ingresses, by hosts that are not of the cluster', () => {
    let edge: IngressProxy
    let home = ''
    beforeAll(async () => {
      edge = await startIngressProxy(cluster, release)
      await cluster.addRegistry(hosts.registry, `http://${hosts.registry}`)
      home = await mkdtemp(join(tmpdir(), 'taproot-install-test-'))
      const config = { auths: { [hosts.registry]: { auth: await user.deployerLogin(hosts.registry) } } }
      await writeFile(join(home, 'config.json'), JSON.stringify(config))
    })
    afterAll(async () => {
      await edge?.stop()
      await rm(home, { recursive: true, force: true })
    })

    /** Options for crane on the machine, signed in as the service account of the samples. */
    const outside = (): CraneOptions => ({ env: { DOCKER_CONFIG: home, HTTP_PROXY: edge.url, http_proxy: edge.url, NO_PROXY: '', no_proxy: '' } })

    test('a release in a cluster serves records and images', async () => {
      const headers = { authorization: `Bearer ${user.operator}`, host: hosts.api }
      expect(await user.record(ask({ url: `${edge.url}/iam/v2/groups/${user.group}`, headers }))).toMatchObject({ uid: user.group })
      const path = `${hosts.registry}/acme/web/shop`
      expect(await crane(['--insecure', 'tag', `${path}:1`, 'again'], outside())).toMatchObject({ code: 0 })
      const { stdout, stderr } = await crane(['--insecure', 'export', `${path}:again`, '-'], outside())
      expect({ stdout, stderr }).toMatchObject({ stdout: expect.stringContaining(layerContent) })
    })

    test('a release in a cluster lets a cluster pull with the Secret of a pull token, until the token is revoked', async () => {
      const name = `${hosts.registry}/acme/web/pause:1`
      await pushProgramImage({ name, programs: [requirePart('pause')] }, outside())
      await cluster.kubectl(['create', 'namespace', 'customer'])
      const pull = (pod: string, secret?: string): Promise<string> => {
        const container = { name: 'pause', image: name, imagePullPolicy: 'Always' }
        const secrets = secret === undefined ? {} : { imagePullSecrets: [{ name: secret }] }
        const spec = { ...secrets, automountServiceAccountToken: false, containers: [container] }
        const object = { apiVersion: 'v1', kind: 'Pod', metadata: { name: pod }, spec }
        return cluster.kubectl(['--namespace', 'customer', 'apply', '--filename', '-'], JSON.stringify(object))
      }
      const refused = (pod: string): Promise<void> =>
        orReport(cluster, () =>
          until(async () => /401 Unauthorized|403 Forbidden/.test(await cluster.kubectl(['--namespace', 'customer', 'describe', 'pod', pod])), 60_000),
        )
      await pull('stranger')
      await refused('stranger')

      const token = join(home, 'token')
      await writeFile(token, user.operator)
      const page = await readFile(join(root, 'docs', 'registry.md'), 'utf8')
      const [, make = ''] = /```sh\n(taproot pull-token create [^\n]+ --secret [^\n]+)\n```/.exec(page) ?? []
      const taproot = `${process.execPath} bin/taproot.js`
      const here = `--url ${user.urls.api} --registry ${hosts.registry} --token-file ${token}`
      expect(await shell(cluster, make.replace('taproot', taproot).replace('--secret', `${here} --secret`))).toBe('secret/taproot-pull created\n')
      await pull('customer', 'taproot-pull')
      await orReport(cluster, () => cluster.kubectl(['--namespace', 'customer', 'wait', 'pod/customer', '--for=condition=Ready', '--timeout=60s']))

      const [, uid = ''] = /^(\S+) +customer /m.exec(await shell(cluster, `${taproot} pull-token list --group acme/web ${here}`)) ?? []
      expect(await shell(cluster, `${taproot} pull-token revoke ${uid} ${here}`)).toBe(`revoked ${uid}\n`)
      await pull('revoked', 'taproot-pull')
      await refused('revoked')
    })

    // docs/images.md#signed-images
    test('a release in a cluster lets a kubelet start what cosign signed as an index, and nothing else', () =>
      startSigned({ cluster, user, registry: hosts.registry, options: outside() }))
  })
})
