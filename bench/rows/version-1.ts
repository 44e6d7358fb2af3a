import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { HttpRequest } from '../load/load.ts'
import { compare } from '../measure.ts'
import type { Taproot } from '../subjects/taproot.ts'
import { gets, taprootLoad } from './loads.ts'
import { costRow, type Row, type RowGroup, type RowSource } from './row.ts'

/** Where requests find records, and the number of identities below `root`. */
interface Places {
  readonly root: string
  readonly identities: readonly string[]
  readonly repos: readonly string[]
  readonly count: number
}

/** Requests of both versions that do the same. */
interface Pair {
  readonly id: string
  readonly title: string
  readonly atMost: number
  requests(places: Places): { readonly v1: readonly HttpRequest[]; readonly v2: readonly HttpRequest[] }
  /** Number of requests of version 2 that do what one of version 1 does; 1 by default. */
  requestsOfV2?(places: Places): number
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
    id: 'v1-create-repo',
    title: 'cost of a create of a repo in version 1 to one in version 2',
    atMost: 1.1,
    requests({ root }) {
      const creation = (version: string): HttpRequest => ({
        method: 'POST',
        path: `/registry/${version}/repos/${root}`,
        body: JSON.stringify({ name: `${version}-$N`, description: 'A repo that the benchmark made' }),
      })
      return { v1: [creation('v1')], v2: [creation('v2')] }
    },
  },
  {
    id: 'v1-update-repo',
    // Version 1 writes and answers both together.
    title: 'cost of an update of a repo and its readme in version 1 to both in version 2',
    atMost: 1.1,
    requestsOfV2: () => 2,
    requests({ repos }) {
      // Each version has repos of its own: the other one would replace their names.
      const bodies = (version: string): { path: string; body: string }[] =>
        repos.flatMap((uid, at) =>
          (at % 2 === 0) === (version === 'v1')
            ? [{ path: `/registry/${version}/repos/${uid}`, body: JSON.stringify({ name: repoName(at), description: `${version} $N` }) }]
            : [],
        )
      return {
        v1: bodies('v1').map((request) => ({ method: 'PUT', ...request })),
        v2: bodies('v2').flatMap(({ path, body }) => [{ method: 'PATCH', path: `${path}?updateMask=*`, body }, ...gets([`${path}/readme`])]),
      }
    },
  },
  {
    id: 'v1-list',
    title: 'cost of a whole list in version 1, in one answer, to its pages of 200 in version 2',
    atMost: 2,
    requests: ({ root }) => ({
      v1: gets([`/iam/v1/identities?uidp.descendantsOf=${root}`]),
      v2: gets([`/iam/v2/identities?uidp.descendantsOf=${root}&pageSize=${pageSize}`]),
    }),
    requestsOfV2: ({ count }) => count / pageSize,
  },
]

const pageSize = 200
const repoCount = 200

function repoName(at: number): string {
  return `version-${at}`
}

/** Creates repos, unless an earlier row created them. Resolves with their uids. */
async function makeRepos(server: Taproot, parent: string): Promise<readonly string[]> {
  const token = await server.tokenOf(subjects.operator)
  const listed = await server.call(token, `/registry/v2/repos?uidp.childrenOf=${parent}&name=${repoName(0)}`)
  const isMade = Number(listed['totalCount']) > 0
  if (!isMade) for (let at = 0; at < repoCount; at++) await server.call(token, `/registry/v2/repos/${parent}`, { name: repoName(at) })
  const { items } = (await server.call(token, `/registry/v1/repos?uidp.childrenOf=${parent}`)) as { items: { id: string; name: string }[] } // a list
  const uids = new Map(items.map(({ id, name }) => [name, id]))
  return Array.from({ length: repoCount }, (_, at) => uids.get(repoName(at)) ?? '')
}

function rowOf({ id, title, atMost, requests, requestsOfV2 }: Pair): RowSource {
  return {
    id,
    async measure(environment: Environment): Promise<Row> {
      const { baseRecords: records, connections, rounds } = environment.scale
      const server = await environment.taproot({ records })
      const { etcd, plan } = await environment.stored(records)
      const listed = await server.call(await server.tokenOf(subjects.operator), `/iam/v2/identities?uidp.descendantsOf=${plan.root}`)
      const repos = await makeRepos(server, plan.root)
      const places = { root: plan.root, identities: plan.someIdentities, repos, count: Number(listed['totalCount']) }
      const { v1, v2 } = requests(places)
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
        const times = requestsOfV2?.(places) ?? 1
        return { ...row, value: (row.cpu ?? row.value) / times, ...(row.cpu === undefined ? {} : { cpu: row.cpu / times }) }
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
