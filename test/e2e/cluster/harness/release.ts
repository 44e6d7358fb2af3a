import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import type { Cluster } from './cluster.ts'
import { buildTaprootImage } from './taproot-image.ts'

const ownChart = join(import.meta.dirname, '..', '..', '..', '..', 'charts', 'taproot')

/** The name of the release and of its namespace. */
export const release = 'taproot'

/** Values for helm's `--values`. */
export type Values = Readonly<Record<string, unknown>>

/** The image of this checkout on the node, under two names: an upgrade changes to the second. */
export const taprootImages = ['taproot.test/taproot', 'taproot.test/next'] as const

/** Imports all images that the chart and its tests need into the node. Returns the tag of Taproot's image. */
export async function importImages(cluster: Cluster): Promise<string> {
  const { archive, tag } = await buildTaprootImage()
  for (const repository of taprootImages) await cluster.importImage(archive, repository)
  for (const name of ['registry', 'crane'] as const) await cluster.importPrograms({ name: `taproot.test/${name}:1`, programs: [requirePart(name)] })
  await cluster.importPrograms({ name: 'taproot.test/etcd:1', programs: [requirePart('etcd'), requirePart('etcdutl')] })
  return tag
}

/** Returns the values for trying out, with images and volumes of the node. `more` replaces top-level values. */
export function valuesToTry(tag: string, more: Values = {}): Values {
  const bundled = (name: string): Values => ({ image: { repository: `taproot.test/${name}`, tag: '1', pullPolicy: 'Never' }, persistence: { size: '5Gi' } })
  // One principal sends the whole load of a test. On a slow machine, that takes more than the share of a principal.
  const config = { rateLimit: { workMillisecondsPerSecond: 1_000, workBurstMilliseconds: 60_000 } }
  return { image: { repository: taprootImages[0], tag, pullPolicy: 'Never' }, config, etcd: bundled('etcd'), upstream: bundled('registry'), ...more }
}

/** Installs or upgrades the release with a chart, by default that of this checkout. Returns the printed notes. Does not wait for pods. */
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

/** Waits until all pods of the release are ready in their newest revision, and no others exist. */
export async function awaitRelease(cluster: Cluster): Promise<void> {
  const args = ['get', 'statefulsets,deployments', '--selector', `app.kubernetes.io/instance=${release}`, '--output', 'name']
  const workloads = (await cluster.kubectl(['--namespace', release, ...args])).trim().split('\n')
  for (const workload of workloads) await cluster.kubectl(['--namespace', release, 'rollout', 'status', workload, '--timeout=180s'])
}

/** Returns the names of its pods of one component, except terminating ones. */
export async function podsOf(cluster: Cluster, component: string): Promise<string[]> {
  const list = await cluster.kubectl(['--namespace', release, 'get', 'pods', '--selector', `app.kubernetes.io/component=${component}`, '--output', 'json'])
  // A cast: what every list of objects is.
  const { items } = JSON.parse(list) as { items: readonly { metadata: { name: string; deletionTimestamp?: string } }[] }
  return items.filter(({ metadata }) => metadata.deletionTimestamp === undefined).map(({ metadata }) => metadata.name)
}
