import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import type { Cluster } from './cluster.ts'
import { buildTaprootImage } from './taproot-image.ts'

const ownChart = join(import.meta.dirname, '..', '..', '..', '..', 'charts', 'taproot')

/** Its name, and that of its namespace. */
export const release = 'taproot'

/** What `--values` of helm takes. */
export type Values = Readonly<Record<string, unknown>>

/** The image of this checkout on the node, under two names: the second is what an upgrade goes to. */
export const taprootImages = ['taproot.test/taproot', 'taproot.test/next'] as const

/** Makes all images known to the node that the chart and a walk through it need; the tag of Taproot's. */
export async function importImages(cluster: Cluster): Promise<string> {
  const { archive, tag } = await buildTaprootImage()
  for (const repository of taprootImages) await cluster.importImage(archive, repository)
  for (const name of ['registry', 'crane'] as const) await cluster.importPrograms({ name: `taproot.test/${name}:1`, programs: [requirePart(name)] })
  await cluster.importPrograms({ name: 'taproot.test/etcd:1', programs: [requirePart('etcd'), requirePart('etcdutl')] })
  return tag
}

/** The values for trying out, with images of the node and volumes that it has; `more` replaces whole top-level values. */
export function valuesToTry(tag: string, more: Values = {}): Values {
  const bundled = (name: string): Values => ({ image: { repository: `taproot.test/${name}`, tag: '1', pullPolicy: 'Never' }, persistence: { size: '5Gi' } })
  return { image: { repository: taprootImages[0], tag, pullPolicy: 'Never' }, etcd: bundled('etcd'), upstream: bundled('registry'), ...more }
}

/** Installs or upgrades the release by a chart, that of this checkout by default. Returns the notes that it printed. Does not wait for pods. */
export async function putRelease(
  cluster: Cluster,
  command: 'install' | 'upgrade',
  { values, chart = ownChart }: { values: Values; chart?: string },
): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-release-'))
  try {
    const file = join(directory, 'values.yaml')
    await writeFile(file, JSON.stringify(values))
    const make = command === 'install' ? ['--create-namespace'] : []
    return await cluster.helm([command, release, chart, '--namespace', release, '--values', file, ...make])
  } finally {
    await rm(directory, { recursive: true })
  }
}

/** Waits until all that the release runs is ready, in its newest form and nothing else. */
export async function awaitRelease(cluster: Cluster): Promise<void> {
  const args = ['get', 'statefulsets,deployments', '--selector', `app.kubernetes.io/instance=${release}`, '--output', 'name']
  const workloads = (await cluster.kubectl(['--namespace', release, ...args])).trim().split('\n')
  for (const workload of workloads) await cluster.kubectl(['--namespace', release, 'rollout', 'status', workload, '--timeout=180s'])
}

/** The names of its pods of one component, without those that are going. */
export async function podsOf(cluster: Cluster, component: string): Promise<string[]> {
  const list = await cluster.kubectl(['--namespace', release, 'get', 'pods', '--selector', `app.kubernetes.io/component=${component}`, '--output', 'json'])
  // A cast: what every list of objects is.
  const { items } = JSON.parse(list) as { items: readonly { metadata: { name: string; deletionTimestamp?: string } }[] }
  return items.filter(({ metadata }) => metadata.deletionTimestamp === undefined).map(({ metadata }) => metadata.name)
}
