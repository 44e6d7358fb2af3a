import { createHash } from 'node:crypto'
import { relative } from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Files that wait for outages, kills and time limits of real programs, and what they test. `npm test` leaves them out. */
export const campaigns: Readonly<Record<string, string>> = {
  'test/bench/bench.test.ts': 'rows of the benchmark',
  'test/conformance/cost/health.test.ts': 'the health endpoint under seven attacks',
  'test/conformance/fuzz/broken.test.ts': 'the fuzzer finds each fault',
  'test/e2e/chart/api-server.test.ts': 'the chart in an API server, for each set of values',
  'test/e2e/chart/rights/removed-rights.test.ts': 'each right of the chart is needed',
  'test/e2e/process/kills/catalogues.test.ts': 'catalogues across kills',
  'test/e2e/process/kills/contents.test.ts': 'contents of images across kills',
  'test/e2e/process/kills/vulnerability-counts.test.ts': 'vulnerabilities over time and life cycles across kills',
  'test/e2e/process/events.test.ts': 'deliveries across kills',
  'test/e2e/process/kill.test.ts': 'processes that are killed and started again',
  'test/e2e/process/large-blob.test.ts': 'a blob of 256 MiB',
  'test/e2e/process/lost-watch.test.ts': 'replicas whose watch is cut',
  'test/e2e/process/quota-alarm.test.ts': 'an etcd that is full',
  'test/e2e/process/restored-backup.test.ts': 'a store that is set back',
  'test/events/idle-cost.test.ts': 'readers that wait for half a minute',
  'test/faults/faults.test.ts': 'clusters of processes under faults',
  'test/faults/history/workload.test.ts': 'the workload finds each wrong answer',
  'test/kubernetes/client/leader.test.ts': 'candidates that are suspended or cut off',
  'test/kubernetes/controller-faults.test.ts': 'the controller across outages',
  'test/kubernetes/controller-kills.test.ts': 'controllers that are killed',
  'test/kubernetes/semantics-removal.test.ts': 'namespaces and definitions that are removed',
  'test/kubernetes/vanished.test.ts': 'objects that vanish while the controller is away',
  'test/registry/oci/kill.test.ts': 'pushes across kills',
  'test/store/etcd-faults.test.ts': 'etcd across cuts and pauses, with another clock',
}

/** Returns a third of the campaigns, chosen by the source tree: over time, `.ci/run` runs all. */
export function chosenCampaigns(seed: number): readonly string[] {
  const rank = (file: string): string => createHash('sha256').update(`${seed} ${file}`).digest('hex')
  const ranked = Object.keys(campaigns).sort((one, other) => (rank(one) < rank(other) ? -1 : 1))
  return ranked.slice(0, Math.ceil(ranked.length / 3))
}

/** Spreads the campaigns evenly over the files of their project: a few wait at any time, while other files compute. */
export class SpreadCampaigns extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isCampaign = ({ moduleId, project }: TestSpecification): boolean => project.name === 'main' && relative(this.ctx.config.root, moduleId) in campaigns
    const [waiting, others] = [sorted.filter(isCampaign), sorted.filter((file) => !isCampaign(file))]
    const start = others.findIndex(({ project }) => project.name === 'main')
    const count = others.filter(({ project }) => project.name === 'main').length
    for (const [at, file] of waiting.entries()) others.splice(start + at + Math.floor((at * count) / waiting.length), 0, file)
    return others
  }
}
