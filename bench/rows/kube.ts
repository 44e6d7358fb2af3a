import { subjects } from '../data/generate.ts'
import type { WrittenPlan } from '../data/write-dataset.ts'
import type { Environment } from '../environment.ts'
import type { HttpRequest } from '../load/load.ts'
import { compare, type Comparison } from '../measure.ts'
import { kubeLabelOf, kubeNameOf, kubePath } from '../subjects/kube.ts'
import { gets, kubeLoad, listPath, taprootLoad } from './loads.ts'
import { ratioRow, type Row, type RowGroup } from './row.ts'

/** The requests of each side. */
interface Requests {
  readonly ours: readonly HttpRequest[]
  readonly theirs: readonly HttpRequest[]
}

/** How many replicas of Taproot there are: one uses one core, and kube-apiserver all of them. */
type Replicas = 1 | 2

/** The same work given to both, both over TLS and on the same etcd. */
async function against(environment: Environment, requests: Requests, replicas: Replicas = 1): Promise<Comparison> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const { etcd } = await environment.stored(records)
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

async function planOf(environment: Environment): Promise<WrittenPlan> {
  return (await environment.stored(environment.scale.baseRecords)).plan
}

async function measureGet(environment: Environment): Promise<Row> {
  const { someIdentities } = await planOf(environment)
  const comparison = await against(environment, {
    ours: gets(someIdentities.map((uid) => `/iam/v2/identities/${uid}`)),
    theirs: gets(someIdentities.map((uid) => `${kubePath}/identities/${kubeNameOf(uid)}`)),
  })
  return ratioRow({ id: 'kube-get', title: "GET one record to kube-apiserver's GET", goal: { atLeast: 5 } }, comparison)
}

async function compareLists(environment: Environment, replicas?: Replicas): Promise<Comparison> {
  const { root } = await planOf(environment)
  const selector = encodeURIComponent(`relationship=claimMatch,root=${kubeLabelOf(root)}`)
  const requests = {
    ours: gets([listPath({ 'uidp.descendantsOf': root })]),
    theirs: gets([`${kubePath}/identities?limit=50&labelSelector=${selector}`]),
  }
  return against(environment, requests, replicas)
}

const listTitle = "filtered, ordered, counted page of 50 to kube-apiserver's"

async function measureList(environment: Environment): Promise<Row> {
  return ratioRow({ id: 'kube-list', title: listTitle, goal: { atLeast: 20 } }, await compareLists(environment))
}

async function measureReplicasList(environment: Environment): Promise<Row> {
  return ratioRow({ id: 'kube-list-replicas', title: `for comparison: with two replicas, ${listTitle}` }, await compareLists(environment, 2))
}

async function compareCreates(environment: Environment, replicas?: Replicas): Promise<Comparison> {
  const { root } = await planOf(environment)
  const spec = { name: 'team-$N', description: 'A group that the benchmark made' }
  const custom = { apiVersion: 'bench.taproot.dev/v1', kind: 'Group', metadata: { name: 'team-$N', labels: { root: kubeLabelOf(root) } }, spec }
  const requests: Requests = {
    ours: [{ method: 'POST', path: `/iam/v2/groups/${root}`, body: JSON.stringify(spec) }],
    theirs: [{ method: 'POST', path: `${kubePath}/groups`, body: JSON.stringify(custom) }],
  }
  return against(environment, requests, replicas)
}

const createTitle = "create to kube-apiserver's create"

async function measureCreate(environment: Environment): Promise<Row> {
  return ratioRow({ id: 'kube-create', title: createTitle, goal: { atLeast: 3 } }, await compareCreates(environment))
}

async function measureReplicasCreate(environment: Environment): Promise<Row> {
  return ratioRow({ id: 'kube-create-replicas', title: `for comparison: with two replicas, ${createTitle}` }, await compareCreates(environment, 2))
}

/** The same records as custom resources. */
export const kubeRows: RowGroup = {
  name: 'kube',
  about: 'GET, list of 50 and create against kube-apiserver with the same records as custom resources on the same etcd, both over TLS',
  needs: 'kube-apiserver',
  rows: [
    { id: 'kube-get', measure: measureGet },
    { id: 'kube-list', measure: measureList },
    { id: 'kube-create', measure: measureCreate },
    { id: 'kube-list-replicas', measure: measureReplicasList },
    { id: 'kube-create-replicas', measure: measureReplicasCreate },
  ],
}
