import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../process/harness/ops.ts'
import { describeWithCluster, startCluster, type Cluster } from './harness/cluster.ts'
import { ask } from './harness/load.ts'
import { orReport } from './harness/or-report.ts'
import { isNextLifetime, startOutsideStores, type OutsideStores } from './harness/outside-stores.ts'
import { awaitRelease, importImages, podsOf, putRelease, release, taprootImages, valuesToTry, type Values } from './harness/release.ts'
import { ReleaseUser, served } from './harness/release-user.ts'
import { shell } from './harness/shell.ts'
import { nodeName } from './harness/servers.ts'

const root = join(import.meta.dirname, '..', '..', '..')
/** An issuer like that of a cloud provider, not kubeadm's. */
const issuer = 'https://oidc.cloud.example/id/4711'
const rowTimeout = 900_000
const waitMs = 120_000

/** The cluster and release in which a values file is tried. */
interface Trial {
  readonly cluster: Cluster
  readonly user: ReleaseUser
  readonly outside: OutsideStores
  /** Upgrades to these values and the other image, and waits until everything is ready. */
  upgrade(values: Values): Promise<void>
}

interface Row {
  readonly title: string
  readonly values: (trial: Pick<Trial, 'cluster' | 'outside'>) => Values
  /** Prepares the cluster. */
  readonly prepare?: (trial: Pick<Trial, 'cluster' | 'outside'>) => Promise<unknown>
  /** Checks the installed release. */
  readonly installed: (trial: Trial) => Promise<void>
  /** The change under load; a plain upgrade if absent. */
  readonly change?: (trial: Trial, values: Values) => Promise<void>
  /** Checks the release after the change. */
  readonly changed?: (trial: Trial) => Promise<void>
}

const taint = 'dedicated=platform:NoSchedule'
const note = { 'example.com/owner': 'platform-team' }

function tainted(minReplicas: number, maxReplicas: number): Values {
  const place = {
    nodeSelector: { 'example.com/pool': 'platform' },
    tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'platform', effect: 'NoSchedule' }],
    podAnnotations: note,
  }
  const scaled = { ...place, autoscaling: { enabled: true, minReplicas, maxReplicas, targetMemoryUtilizationPercentage: 75 } }
  const { etcd, upstream } = valuesToTry('')
  return {
    api: scaled,
    registry: scaled,
    controller: { ...place, replicas: 2 },
    worker: place,
    etcd: { ...(etcd as Values), ...place }, // a cast: sections of values
    upstream: { ...(upstream as Values), ...place },
    initSecrets: place,
    tests: place,
  }
}

const untilPods = (cluster: Cluster, count: number): Promise<void> =>
  orReport(cluster, () =>
    until(async () => (await Promise.all(served.map((component) => podsOf(cluster, component)))).every((pods) => pods.length === count), waitMs),
  )

/** Returns the remaining lifetimes in seconds of the etcd client certificates, from the metrics of a role's pods. */
async function certificateLifetimes(cluster: Cluster, component: string): Promise<number[]> {
  const selector = `app.kubernetes.io/component=${component}`
  const addresses = await cluster.kubectl(['-n', release, 'get', 'pods', '-l', selector, '-o', 'jsonpath={.items[*].status.podIP}'])
  const texts = addresses.split(' ').map(async (address) => (await fetch(`http://${address}:9090/metrics`)).text())
  return (await Promise.all(texts)).map((text) => Number(/^taproot_certificate_expiry_seconds\{setting="store.etcd.tls.certFile".*\} (\S+)$/m.exec(text)?.[1]))
}

const rows: readonly Row[] = [
  {
    title: 'defaults on a cluster whose token issuer is not the one of kubeadm',
    prepare: async ({ cluster }) => {
      await cluster.kubectl(['create', 'namespace', 'ops'])
      await cluster.kubectl(['-n', 'ops', 'create', 'serviceaccount', 'robot'])
    },
    values: () => ({ operators: [{ subject: 'system:serviceaccount:ops:robot' }] }),
    installed: async ({ cluster, user }) => {
      const token = await cluster.kubectl(['-n', 'ops', 'create', 'token', 'robot', '--audience', `http://taproot-api.${release}.svc.cluster.local`])
      await user.record(ask(user.request('/iam/v2/groups', { headers: { authorization: `Bearer ${token.trim()}` } })))
      const document = await cluster.kubectl(['get', '--raw', '/.well-known/openid-configuration'])
      expect(JSON.parse(document)).toMatchObject({ issuer })
      const identity = await user.record(ask(user.request(`/iam/v2/identities/${await user.uidOf('platformidentity/deployer')}`)))
      expect(identity).toMatchObject({ claimMatch: { issuer } })
    },
  },
  {
    title: 'external etcd and registry, over TLS, with certificates that change',
    prepare: async ({ cluster, outside }) => {
      await cluster.kubectl(['create', 'namespace', release])
      await outside.putSecrets('first')
    },
    values: ({ outside }) => outside.values,
    installed: async ({ cluster }) => {
      expect((await cluster.kubectl(['-n', release, 'get', 'statefulsets', '-o', 'name'])).trim()).toBe('')
      const lifetimes = await certificateLifetimes(cluster, 'api')
      expect(lifetimes.map(isNextLifetime)).toEqual([false])
    },
    change: async ({ cluster, outside, upgrade }, values) => {
      await outside.putSecrets('both')
      const all = ['api', 'registry', 'controller', 'worker']
      const isKnown = async (): Promise<boolean> =>
        (await Promise.all(all.map((component) => certificateLifetimes(cluster, component)))).flat().every((lifetime) => isNextLifetime(lifetime))
      await orReport(cluster, () => until(isKnown, waitMs))
      await outside.replaceCertificates()
      await upgrade(values)
      await outside.putSecrets('next')
      await upgrade({ ...values, commonAnnotations: note })
    },
  },
  {
    title: 'all pods on a tainted node, scaled by a HorizontalPodAutoscaler, with annotations',
    prepare: async ({ cluster }) => {
      await cluster.kubectl(['taint', 'node', nodeName, taint])
      await cluster.kubectl(['label', 'node', nodeName, 'example.com/pool=platform'])
    },
    values: () => tainted(2, 4),
    installed: async ({ cluster }) => {
      await untilPods(cluster, 2)
      const list = JSON.parse(await cluster.kubectl(['-n', release, 'get', 'hpa', '-o', 'json'])) as { items: readonly object[] } // a cast of a list
      const expected = served.map((component) => ({
        spec: { scaleTargetRef: { kind: 'Deployment', name: `taproot-${component}` }, minReplicas: 2, maxReplicas: 4 },
        status: { conditions: expect.arrayContaining([expect.objectContaining({ type: 'AbleToScale', status: 'True' })]) as unknown },
      }))
      expect(list.items).toMatchObject(expected)
      const annotations = await cluster.kubectl([
        '-n',
        release,
        'get',
        'pods',
        '-o',
        'jsonpath={range .items[*]}{.metadata.annotations.example\\.com/owner}{" "}{end}',
      ])
      // Two pods each of api, registry and controller, then worker, etcd, upstream, the Job, and two pods of helm test.
      expect(annotations.trim().split(' ')).toEqual(Array<string>(12).fill('platform-team'))
    },
    change: async ({ cluster, upgrade }) => {
      await upgrade(tainted(3, 4))
      await untilPods(cluster, 3)
      await awaitRelease(cluster)
      await upgrade(tainted(1, 2))
      await untilPods(cluster, 2)
      await awaitRelease(cluster)
    },
  },
]

describeWithCluster('a release with a values file', () => {
  let cluster: Cluster
  let outside: OutsideStores
  let tag = ''
  let commands: readonly string[] = []
  beforeAll(async () => {
    cluster = await startCluster({ serviceAccountIssuer: issuer })
    tag = await importImages(cluster)
    await cluster.addVolumes(4)
    outside = await startOutsideStores(cluster)
    const [, section = ''] = /## Remove everything\n([^]+?)\nIf the controller was/.exec(await readFile(join(root, 'docs', 'install.md'), 'utf8')) ?? []
    commands = [...section.matchAll(/```sh\n([^`]+)```/g)].map(([, text = '']) => text)
    expect(commands).toHaveLength(2)
  })
  afterAll(async () => {
    await outside?.stop()
    await cluster?.stop()
  })

  const put = async (command: 'install' | 'upgrade', values: Values): Promise<string> => {
    const image = { repository: taprootImages[command === 'install' ? 0 : 1], tag, pullPolicy: 'Never' }
    const notes = await putRelease(cluster, command, { values: valuesToTry(tag, { ...values, image }) })
    await orReport(cluster, () => awaitRelease(cluster))
    return notes
  }

  const use = async (user: ReleaseUser, notes: string): Promise<void> => {
    await user.signIn(notes)
    await user.makeOrganisation(notes)
    await cluster.kubectl(['apply', '--filename', join(root, 'deploy', 'samples')])
    await user.allReady()
    await user.pushImage()
  }

  const passesTests = async (): Promise<void> => {
    expect(await orReport(cluster, () => cluster.helm(['test', release, '--namespace', release]))).toMatch(/(Phase: +Succeeded[^]*){2}/)
  }

  /** Returns the objects of the release outside its namespace. */
  const clusterObjects = (): Promise<string> => {
    const kinds = 'clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds'
    return cluster.kubectl(['get', kinds, '-l', `app.kubernetes.io/instance=${release}`, '-o', 'name'])
  }

  test.for(rows)('$title: installs, passes helm test, upgrades under load, uninstalls', { timeout: rowTimeout }, async (row) => {
    const user = new ReleaseUser(cluster)
    const upgrade = async (values: Values): Promise<void> => void (await put('upgrade', values))
    const trial: Trial = { cluster, outside, user, upgrade }
    await row.prepare?.(trial)
    const values = row.values(trial)
    const notes = await put('install', values)
    await passesTests()
    await use(user, notes)
    await row.installed(trial)

    await user.underLoad(() => row.change?.(trial, values) ?? upgrade(values))
    await user.allReady()
    await passesTests()

    expect(await clusterObjects()).not.toBe('')
    for (const text of commands) await orReport(cluster, () => shell(cluster, text))
    expect(await clusterObjects()).toBe('')
    await cluster.kubectl(['delete', 'namespace', 'acme', '--timeout=120s'])
  })
})
