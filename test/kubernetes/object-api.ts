import { Agent, request } from 'undici'
import { shareKube, startKube, type Kube, type KubeOptions } from '../support/parts/kubernetes/kube.ts'
import { definitionOf, definitions, documentsOf } from './crd/definitions.ts'

/** An answer of the API server. */
export interface Answer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
  /** Causes of a refusal: `<field>: <message>` for each, or the message. */
  readonly causes: readonly string[]
}

/** One call. */
export interface Call {
  readonly path: string
  readonly body?: unknown
  readonly contentType?: string
  /** The caller, in place of the administrator. */
  readonly as?: string
}

/** A Kubernetes API with the kinds of crds/. */
export interface ObjectApi {
  readonly kube: Kube
  send(method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', call: Call): Promise<Answer>
  stop(): Promise<void>
}

const base = '/apis/taproot.dev/v1alpha1'

/** Returns the path of a kind's objects: in a namespace (`default` if absent), or of the cluster. */
export function pathOf(kind: string, name?: string, namespace = 'default'): string {
  const { scope, names } = definitionOf(kind).spec
  const collection = scope === 'Cluster' ? `${base}/${names.plural}` : `${base}/namespaces/${namespace}/${names.plural}`
  return name === undefined ? collection : `${collection}/${name}`
}

/** Returns an object of a kind of crds/. */
export function objectOf(kind: string, name: string, parts: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { metadata, ...others } = parts
  return { apiVersion: 'taproot.dev/v1alpha1', kind, metadata: { name, ...(metadata as object | undefined) }, ...others }
}

function causesOf(body: Readonly<Record<string, unknown>>): readonly string[] {
  const { message = '', details } = body as { message?: string; details?: { causes?: readonly { field?: string; message?: string }[] } }
  return details?.causes?.map((cause) => `${cause.field ?? ''}: ${cause.message ?? ''}`) ?? [message]
}

async function applyDefinitions({ kubectl }: Kube): Promise<void> {
  await kubectl(['apply', '--server-side', '-f', 'crds'])
  const names = [...definitions.values()].map(({ metadata }) => `crd/${metadata.name}`)
  await kubectl(['wait', '--for=condition=Established', '--timeout=60s', ...names])
}

/** A Kubernetes API of its own, with crds/. */
async function startOwn(options: KubeOptions): Promise<Kube> {
  const kube = await startKube(options)
  try {
    await applyDefinitions(kube)
  } catch (error) {
    await kube.stop()
    throw error
  }
  return kube
}

/**
 * Returns a Kubernetes API with crds/. Resolves when every kind is served. Only administrators have rights until `allowEverything`. With options, even empty
 * ones, it is a separate instance, for tests that kill it or change its policies or definitions. Otherwise it is that of the worker.
 */
export async function startObjectApi(options?: KubeOptions): Promise<ObjectApi> {
  const kube = await (options === undefined ? shareKube(applyDefinitions) : startOwn(options))
  const { server, caPem, token } = kube.access
  const agent = new Agent({ connect: { ca: caPem } })
  const send: ObjectApi['send'] = async (method, { path, body, contentType = 'application/json', as }) => {
    const answer = await request(`${server}${path}`, {
      method,
      dispatcher: agent,
      headers: { authorization: `Bearer ${token}`, 'content-type': contentType, ...(as !== undefined && { 'impersonate-user': as }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const parsed = (await answer.body.json()) as Record<string, unknown> // the API server answers objects
    return { status: answer.statusCode, body: parsed, causes: answer.statusCode < 400 ? [] : causesOf(parsed) }
  }
  const stop = async (): Promise<void> => {
    await agent.destroy()
    await kube.stop()
  }
  try {
    await Promise.all([...definitions.keys()].map((kind) => served(() => send('GET', { path: pathOf(kind) }))))
  } catch (error) {
    await stop()
    throw error
  }
  return { kube, send, stop }
}

/** A definition is served a moment after it is established. */
async function served(get: () => Promise<Answer>): Promise<void> {
  const deadline = performance.now() + 30_000
  for (let answer = await get(); answer.status !== 200; answer = await get()) {
    if (performance.now() > deadline) throw new Error(`not served: ${answer.causes.join()}`)
  }
}

/** Gives these users all rights, so that a later refusal is not for a missing right. */
export async function allowEverything({ send }: ObjectApi, ...users: readonly string[]): Promise<void> {
  const body = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: 'everything' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-admin' },
    subjects: users.map((name) => ({ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name })),
  }
  const { status, causes } = await send('POST', { path: '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', body })
  if (status !== 201) throw new Error(`no binding: ${causes.join()}`)
}

/** Puts the policy for mirrors in force, and waits until it is. */
export async function applyMirrorPolicy({ send }: ObjectApi): Promise<void> {
  for (const body of documentsOf('deploy/mirror-policy/mirror-policy.yaml')) {
    const path = `/apis/admissionregistration.k8s.io/v1/${String(body['kind']).toLowerCase().replace(/y$/, 'ie')}s`
    const { status, causes } = await send('POST', { path, body })
    if (status !== 201) throw new Error(`no policy: ${causes.join()}`)
  }
  const mirror = objectOf('PlatformGroup', 'probe', { metadata: { labels: { 'taproot.dev/origin': 'api' } }, spec: {} })
  const deadline = performance.now() + 30_000
  while ((await send('POST', { path: `${pathOf('PlatformGroup')}?dryRun=All`, body: mirror })).status === 201) {
    if (performance.now() > deadline) throw new Error('the policy does not come into force')
  }
}
