import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { HttpRequest } from '../load/load.ts'
import { compare, type Comparison } from '../measure.ts'
import { kubeLabelOf, kubeNameOf, kubePath } from '../subjects/kube.ts'
import { gets, kubeLoad, listPath, taprootLoad } from './loads.ts'
import { ratioRow, type Row, type RowGroup } from './row.ts'

/** The same work given to both, both over TLS and on the same etcd. */
async function against(environment: Environment, requests: { ours: readonly HttpRequest[]; theirs: readonly HttpRequest[] }): Promise<Comparison> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const { etcd } = await environment.stored(records)
  const kube = await environment.kube(records)
  const server = await environment.taproot({ records, tls: true })
  const ours = await taprootLoad(server, subjects.member, { connections, requests: requests.ours })
  const theirs = kubeLoad(kube, { connections, requests: requests.theirs })
  return environment.withGenerators([ours, theirs], ([first, second]) =>
    compare(
      { name: 'Taproot', generator: first, pids: [server.pid, etcd.pid] },
      { name: 'kube-apiserver', generator: second, pids: [kube.server.pid, etcd.pid] },
      rounds,
    ),
  )
}

async function run(environment: Environment): Promise<readonly Row[]> {
  const { plan } = await environment.stored(environment.scale.baseRecords)
  const get = await against(environment, {
    ours: gets(plan.someIdentities.map((uid) => `/iam/v2/identities/${uid}`)),
    theirs: gets(plan.someIdentities.map((uid) => `${kubePath}/identities/${kubeNameOf(uid)}`)),
  })
  const selector = encodeURIComponent(`relationship=claimMatch,root=${kubeLabelOf(plan.root)}`)
  const list = await against(environment, {
    ours: gets([listPath({ 'uidp.descendantsOf': plan.root })]),
    theirs: gets([`${kubePath}/identities?limit=50&labelSelector=${selector}`]),
  })
  const description = 'A group that the benchmark made'
  const parent = plan.root
  const custom = { apiVersion: 'bench.taproot.dev/v1', kind: 'Group', metadata: { name: 'team-$N', labels: { root: kubeLabelOf(parent) } } }
  const create = await against(environment, {
    ours: [{ method: 'POST', path: `/iam/v2/groups/${parent}`, body: JSON.stringify({ name: 'team-$N', description }) }],
    theirs: [{ method: 'POST', path: `${kubePath}/groups`, body: JSON.stringify({ ...custom, spec: { name: 'team-$N', description } }) }],
  })
  return [
    ratioRow({ id: 'kube-get', title: "GET one record to kube-apiserver's GET", goal: { atLeast: 5 } }, get),
    ratioRow({ id: 'kube-list', title: "filtered, ordered, counted page of 50 to kube-apiserver's", goal: { atLeast: 20 } }, list),
    ratioRow({ id: 'kube-create', title: "create to kube-apiserver's create", goal: { atLeast: 3 } }, create),
  ]
}

/** The same records as custom resources. */
export const kubeRows: RowGroup = {
  name: 'kube',
  about: 'GET, list of 50 and create against kube-apiserver with the same records as custom resources on the same etcd, both over TLS',
  needs: 'kube-apiserver',
  run,
}
