import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { HttpRequest } from '../load/load.ts'
import { compare } from '../measure.ts'
import { gets, taprootLoad } from './loads.ts'
import { costRow, type Row, type RowGroup, type RowSource } from './row.ts'

/** Requests of both versions that do the same. */
interface Pair {
  readonly id: string
  readonly title: string
  readonly atMost: number
  requests(places: { readonly root: string; readonly identities: readonly string[] }): {
    readonly v1: readonly HttpRequest[]
    readonly v2: readonly HttpRequest[]
  }
}

const description = 'A group that the benchmark made'

const pairs: readonly Pair[] = [
  {
    id: 'v1-get',
    title: 'cost of a list by id in version 1 to a get in version 2',
    atMost: 1.1,
    requests: ({ identities }) => ({
      v1: gets(identities.map((uid) => `/iam/v1/identities?id=${encodeURIComponent(uid)}`)),
      v2: gets(identities.map((uid) => `/iam/v2/identities/${uid}`)),
    }),
  },
  {
    id: 'v1-create',
    title: 'cost of a create in version 1 to one in version 2',
    atMost: 1.1,
    requests({ root }) {
      const creation = (version: string): HttpRequest => ({
        method: 'POST',
        path: `/iam/${version}/groups/${root}`,
        body: JSON.stringify({ name: `${version}-$N`, description }),
      })
      return { v1: [creation('v1')], v2: [creation('v2')] }
    },
  },
  {
    id: 'v1-update',
    title: 'cost of an update in version 1 to one in version 2',
    atMost: 1.1,
    requests({ identities }) {
      const body = (text: string): string =>
        JSON.stringify({ name: 'bench', description: text, claimMatch: { issuer: 'https://issuer.example', subject: 'bench' } })
      return {
        v1: identities.map((uid) => ({ method: 'PUT', path: `/iam/v1/identities/${uid}`, body: body('v1 $N') })),
        v2: identities.map((uid) => ({ method: 'PATCH', path: `/iam/v2/identities/${uid}?updateMask=*`, body: body('v2 $N') })),
      }
    },
  },
  {
    id: 'v1-list',
    title: 'cost of a list of 200 records in version 1 to a page in version 2',
    atMost: 2,
    requests: ({ root }) => ({
      v1: gets([`/iam/v1/identities?uidp.descendantsOf=${root}&pageSize=200`]),
      v2: gets([`/iam/v2/identities?uidp.descendantsOf=${root}&pageSize=200`]),
    }),
  },
]

function rowOf({ id, title, atMost, requests }: Pair): RowSource {
  return {
    id,
    async measure(environment: Environment): Promise<Row> {
      const { baseRecords: records, connections, rounds } = environment.scale
      const server = await environment.taproot({ records })
      const { etcd, plan } = await environment.stored(records)
      const { v1, v2 } = requests({ root: plan.root, identities: plan.someIdentities })
      const loadOf = (of: readonly HttpRequest[]) => taprootLoad(server, subjects.operator, { connections, requests: of })
      return environment.withGenerators([await loadOf(v1), await loadOf(v2)], async ([first, second]) => {
        const [pids, processes] = [
          [server.pid, etcd.pid],
          ['Taproot', 'etcd'],
        ]
        const comparison = await compare(
          { name: 'version 1', generator: first, pids, processes },
          { name: 'version 2', generator: second, pids, processes },
          rounds,
        )
        const row = costRow({ id, title, goal: { atMost }, note: 'by processor time' }, comparison)
        return { ...row, value: row.cpu ?? row.value }
      })
    },
  }
}

/** Version 1, compared with version 2. */
export const versionRows: RowGroup = {
  name: 'version-1',
  about: 'reads and writes in version 1 against the same in version 2',
  needs: 'etcd',
  rows: pairs.map(rowOf),
}
