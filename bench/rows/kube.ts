import { subjects } from '../data/generate.ts'
import type { WrittenPlan } from '../data/write-dataset.ts'
import type { Environment } from '../environment.ts'
import type { HttpRequest } from '../load/load.ts'
import { compare, type Comparison } from '../measure.ts'
import { kubeLabelOf, kubeNameOf, kubePath } from '../subjects/kube.ts'
import { gets, kubeLoad, listPath, taprootLoad } from './loads.ts'
import { ratioRow, type RowGroup, type RowSource } from './row.ts'

/** The same requests for Taproot and for kube-apiserver. */
interface Requests {
  readonly ours: readonly HttpRequest[]
  readonly theirs: readonly HttpRequest[]
}

/** Work that Taproot and kube-apiserver can both do. */
interface Task {
  readonly title: string
  readonly atLeast: number
  requests(plan: WrittenPlan): Requests
}

/** Number of replicas of Taproot. One replica uses one core, while kube-apiserver uses all cores. */
type Replicas = 1 | 2

/** Compares the same work on Taproot and kube-apiserver, both over TLS and on the same etcd. */
async function against(environment: Environment, requestsOf: Task['requests'], replicas: Replicas = 1): Promise<Comparison> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const { etcd, plan } = await environment.stored(records)
  const requests = requestsOf(plan)
  const kube = await environment.kube(records)
  const server = await environment.taproot({ records, tls: true })
  const others = replicas === 1 ? [] : [await environment.taproot({ records, tls: true, baseUrl: server.baseUrl })]
  const load = await taprootLoad(server, subjects.member, { connections, requests: requests.ours })
  const ours = { ...load, otherPorts: others.map(({ port }) => port) }
  const theirs = kubeLoad(kube, { connections, requests: requests.theirs })
  return environment.withGenerators([ours, theirs], ([first, second]) =>
    compare(
      { name: replicas === 1 ? 'Taproot' : 'two replicas of Taproot', generator: first, pids: [...[server, ...others].map(({ pid }) => pid), etcd.pid] },
      { name: 'kube-apiserver', generator: second, pids: [kube.server.pid, etcd.pid] },
      rounds,
    ),
  )
}

/** Tasks by the middle part of the rows' ids. */
const tasks = {
  get: {
    title: "GET one record to kube-apiserver's GET",
    atLeast: 5,
    requests: ({ someIdentities }) => ({
      ours: gets(someIdentities.map((uid) => `/iam/v2/identities/${uid}`)),
      theirs: gets(someIdentities.map((uid) => `${kubePath}/identities/${kubeNameOf(uid)}`)),
    }),
  },
  list: {
    title: "filtered, ordered, counted page of 50 to kube-apiserver's",
    atLeast: 20,
    requests({ root }) {
      const selector = encodeURIComponent(`relationship=claimMatch,root=${kubeLabelOf(root)}`)
      return {
        ours: gets([listPath({ 'uidp.descendantsOf': root })]),
        theirs: gets([`${kubePath}/identities?limit=50&labelSelector=${selector}`]),
      }
    },
  },
  create: {
    title: "create to kube-apiserver's create",
    atLeast: 3,
    requests({ root }) {
      const spec = { name: 'team-$N', description: 'A group that the benchmark made' }
      const custom = { apiVersion: 'bench.taproot.dev/v1', kind: 'Group', metadata: { name: 'team-$N', labels: { root: kubeLabelOf(root) } }, spec }
      return {
        ours: [{ method: 'POST', path: `/iam/v2/groups/${root}`, body: JSON.stringify(spec) }],
        theirs: [{ method: 'POST', path: `${kubePath}/groups`, body: JSON.stringify(custom) }],
      }
    },
  },
} as const satisfies Record<string, Task>

function rowOf(name: keyof typeof tasks): RowSource {
  const { title, atLeast, requests } = tasks[name]
  const row = { id: `kube-${name}`, title, goal: { atLeast } }
  return { id: row.id, measure: async (environment) => ratioRow(row, await against(environment, requests)) }
}

function replicasRowOf(name: keyof typeof tasks): RowSource {
  const { title, requests } = tasks[name]
  const row = { id: `kube-${name}-replicas`, title: `for comparison: with two replicas, ${title}` }
  return { id: row.id, measure: async (environment) => ratioRow(row, await against(environment, requests, 2)) }
}

/** Taproot compared with kube-apiserver, with the same records as custom resources. */
export const kubeRows: RowGroup = {
  name: 'kube',
  about: 'GET, list of 50 and create against kube-apiserver with the same records as custom resources on the same etcd, both over TLS',
  needs: 'kube-apiserver',
  rows: [rowOf('get'), rowOf('list'), rowOf('create'), replicasRowOf('list'), replicasRowOf('create')],
}
