import { Agent, request } from 'node:https'
import { once } from 'node:events'
import { startKubeApiserver, type KubeApiserver } from '../../test/support/parts/kubernetes/kube-apiserver.ts'
import type { Identity } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { DatasetGenerator } from '../data/generate.ts'

const apiGroup = 'bench.taproot.dev'
const creators = 32

/** Path of the benchmark's custom resources. */
export const kubePath = `/apis/${apiGroup}/v1/namespaces/default`

/** A kube-apiserver with the identities of a dataset as custom resources. */
export interface Kube {
  readonly server: KubeApiserver
  stop(): Promise<void>
}

const textField = { type: 'string', maxLength: 512 }
const schemas = {
  identities: {
    kind: 'Identity',
    spec: {
      name: textField,
      description: textField,
      claimMatch: { type: 'object', properties: { issuer: textField, subject: textField } },
      staticKeys: { type: 'object', properties: { issuer: textField, subject: textField, issuerKeys: { type: 'string' } } },
    },
  },
  groups: { kind: 'Group', spec: { name: { ...textField, pattern: '^[a-z0-9 ._-]{3,63}$' }, description: textField } },
}

function definitionOf(plural: keyof typeof schemas): object {
  const { kind, spec } = schemas[plural]
  const openAPIV3Schema = { type: 'object', properties: { spec: { type: 'object', properties: spec } } }
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${apiGroup}` },
    spec: {
      group: apiGroup,
      scope: 'Namespaced',
      names: { plural, singular: kind.toLowerCase(), kind },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } }],
    },
  }
}

/** Returns the name of an identity's custom resource. */
export function kubeNameOf(uid: string): string {
  return uid.replaceAll('/', '.')
}

/** Returns the label value for a root group. Label values have at most 63 characters. */
export function kubeLabelOf(root: string): string {
  return root.slice(0, 40)
}

function customIdentity(uid: string, record: Identity): object {
  const { name, description, relationship } = record
  const labels = { root: kubeLabelOf(uid), relationship: relationship.case ?? 'none' }
  const match = relationship.case === 'claimMatch' ? { claimMatch: { issuer: relationship.value.iss.value, subject: relationship.value.sub.value } } : {}
  const keys =
    relationship.case === 'staticKeys'
      ? { staticKeys: { issuer: relationship.value.issuer, subject: relationship.value.subject, issuerKeys: relationship.value.issuerKeys } }
      : {}
  return { apiVersion: `${apiGroup}/v1`, kind: 'Identity', metadata: { name: kubeNameOf(uid), labels }, spec: { name, description, ...match, ...keys } }
}

/** Starts the server on etcd, and creates the identities of the dataset in that etcd as custom resources. */
export async function startKube(endpoint: string, records: number, progress: (text: string) => void): Promise<Kube> {
  const server = await startKubeApiserver({ etcdEndpoints: [endpoint] })
  const agent = new Agent({ keepAlive: true, maxSockets: creators, ca: server.ca })
  try {
    await createAll({ server, agent, progress }, records)
    return { server, stop: () => server.stop() }
  } catch (error) {
    await server.stop()
    throw error
  } finally {
    agent.destroy()
  }
}

interface Creation {
  readonly server: KubeApiserver
  readonly agent: Agent
  readonly progress: (text: string) => void
}

async function post({ server, agent }: Creation, path: string, body: object): Promise<number> {
  const headers = { authorization: `Bearer ${server.token}`, 'content-type': 'application/json' }
  const sent = request(`${server.url}${path}`, { method: 'POST', agent, headers })
  sent.end(JSON.stringify(body))
  const [response] = await once(sent, 'response')
  response.resume()
  await once(response, 'end')
  return Number(response.statusCode)
}

async function createAll(creation: Creation, records: number): Promise<void> {
  for (const plural of ['identities', 'groups'] as const) {
    await post(creation, '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', definitionOf(plural))
  }
  const source = new DatasetGenerator(records).records()
  let created = 0
  const lane = async (): Promise<void> => {
    for (const made of source) {
      if (made.kind.index.kind !== 'Identity' || !made.uid.includes('/')) continue
      // a cast: a record of kind Identity is an Identity
      const body = customIdentity(made.uid, made.record as unknown as Identity)
      await postUntilServed(() => post(creation, `${kubePath}/identities`, body))
      if (++created % 1000 === 0) creation.progress(`creating custom resources: ${created}`)
    }
  }
  await Promise.all(Array.from({ length: creators }, lane))
}

/** Repeats the request until a new CRD is served, which happens a moment after it was accepted. */
async function postUntilServed(post: () => Promise<number>): Promise<void> {
  const deadline = performance.now() + 20_000
  for (;;) {
    const status = await post()
    if (status === 201) return
    if (status !== 404 || performance.now() > deadline) throw new Error(`kube-apiserver answered ${status} to a custom resource`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
