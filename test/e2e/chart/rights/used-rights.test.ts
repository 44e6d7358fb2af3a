import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startKube, type Kube } from '../../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../../support/parts/require-part.ts'
import { makeApiHomes, startApi, type ApiHome } from '../../process/harness/api-home.ts'
import { isReady, startProcess } from '../../process/harness/taproot-process.ts'
import { auditLogOf, resourceOf, type AuditLog, type Audited } from './audit-log.ts'
import { controllerRights, type ControllerRight } from './controller-rights.ts'
import { render } from '../helm.ts'
import { recordKinds } from '../../../../src/kubernetes/object-kinds.ts'

/** An issuer like that of a cloud provider. */
const issuer = 'https://oidc.cloud.example/id/4711/'
const samples = resolve(import.meta.dirname, '../../../../deploy/samples')
const controllerUser = 'system:serviceaccount:platform:taproot-controller'
/** Returns whether a call needed this right. */
function uses(right: ControllerRight, verb: string, call: Audited): boolean {
  const { verb: used, objectRef: ref } = call
  if (ref === undefined || used !== verb || (ref.apiGroup ?? '') !== right.group || resourceOf(call) !== right.resource) return false
  if (right.where !== 'cluster' && ref.namespace !== 'platform') return false
  return right.names === undefined || right.names.includes(ref.name ?? '')
}

describeWithPart('kube-apiserver', 'the rights of the controller', () => {
  let kube: Kube
  let directory: string
  let audit: AuditLog
  let home: ApiHome
  let baseUrl: string
  let controllerOpsPort: number

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-rights-'))
    audit = await auditLogOf(controllerUser, directory)
    kube = await startKube({ serviceAccountIssuer: issuer, flags: audit.flags })
    await kube.kubectl(['create', 'namespace', 'platform'])
    const kinds = ['CustomResourceDefinition', 'ServiceAccount', 'ClusterRole', 'ClusterRoleBinding', 'Role', 'RoleBinding']
    const items = (await render()).filter(({ kind }) => kinds.includes(kind))
    await kube.kubectl(['apply', '--server-side', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
    await kube.kubectl(['wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s'])
  })
  afterAll(async () => {
    await kube?.stop()
    await rm(directory, { recursive: true, force: true })
  })

  const tokenOf = async (account: string, ...options: readonly string[]): Promise<string> =>
    (await kube.kubectl(['-n', 'platform', 'create', 'token', account, ...options])).trim()

  /** Returns a kubeconfig of the controller's service account. */
  async function kubeconfigOfController(): Promise<string> {
    const file = join(directory, 'kubeconfig.json')
    const cluster = { server: kube.access.server, 'certificate-authority-data': Buffer.from(kube.access.caPem).toString('base64') }
    const named = { clusters: [{ name: 'c', cluster }], users: [{ name: 'u', user: { token: await tokenOf('taproot-controller') } }] }
    const context = { contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }], 'current-context': 'x' }
    await writeFile(file, JSON.stringify({ apiVersion: 'v1', kind: 'Config', ...named, ...context }))
    return file
  }

  /** Starts the processes of an installation with the settings of the chart. */
  async function startProcesses(): Promise<void> {
    const [caFile = '', tokenFile = ''] = ['ca.crt', 'token'].map((name) => join(directory, name))
    await writeFile(caFile, kube.access.caPem)
    await writeFile(tokenFile, await tokenOf('taproot-api'))
    const env = {
      TAPROOT_KUBERNETES_TOKEN_FILE: tokenFile,
      TAPROOT_ISSUERS: JSON.stringify([{ jwksUri: `${kube.access.server}/openid/v1/jwks`, caFile, tokenFile, allowPrivate: true }]),
      TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ subject: 'system:serviceaccount:platform:taproot-admin' }]),
      TAPROOT_KUBERNETES_KUBECONFIG: await kubeconfigOfController(),
      TAPROOT_KUBERNETES_LEASE_NAMESPACE: 'platform',
      TAPROOT_KUBERNETES_MIRROR_NAMESPACE: 'platform',
    }
    const made = await makeApiHomes(2, { etcd: kube.etcd, env })
    const [first, second] = made.homes
    if (first === undefined || second === undefined) throw new Error('two homes')
    home = first
    baseUrl = made.baseUrl
    await startApi(first)
    const controller = startProcess({ args: ['controller'], env: second.env, cwd: second.cwd })
    await controller.until(() => isReady(second.opsPort))
    controllerOpsPort = second.opsPort
  }

  async function call(method: string, path: string, body?: object): Promise<Record<string, unknown>> {
    const headers = { authorization: `Bearer ${await tokenOf('taproot-admin', '--audience', baseUrl)}`, 'content-type': 'application/json' }
    const response = await fetch(`http://127.0.0.1:${home.apiPort}${path}`, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) })
    const text = await response.text()
    expect(response.status, text).toBe(200)
    return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>) // a cast of JSON
  }

  async function mirrors(): Promise<string[]> {
    const found = await kube.kubectl([
      '-n',
      'platform',
      'get',
      'platformgroups,platformrolebindings,platformsubscriptions',
      '-l',
      'taproot.dev/origin=api',
      '-o',
      'name',
    ])
    return found.split('\n').filter((name) => name !== '')
  }

  async function until(condition: () => Promise<boolean>, what: string): Promise<void> {
    const deadline = performance.now() + 60_000
    while (!(await condition())) {
      if (performance.now() > deadline) throw new Error(`waited too long: ${what}`)
      await delay(100)
    }
  }

  /** Expects the metrics of the controller for one object of each kind in sync. */
  async function expectMetrics(): Promise<void> {
    const text = await fetch(`http://127.0.0.1:${controllerOpsPort}/metrics`).then((response) => response.text())
    const kindsOf = (metric: RegExp): readonly string[] => [...text.matchAll(metric)].map(([, kind = '']) => kind).sort()
    expect(text).toMatch(/^taproot_kube_leader 1$/m)
    expect(text).toMatch(/^taproot_kube_abandoned_records 0$/m)
    expect(text).toMatch(/^taproot_kube_informer_watching\{type="platformgroups"\} 1$/m)
    const all = [...recordKinds].sort()
    expect(kindsOf(/^taproot_kube_reconciled_total\{kind="(\w+)",reason="InSync"\} [1-9]\d*$/gm)).toEqual(all)
    expect(kindsOf(/^taproot_kube_records_written_total\{kind="(\w+)"\} [1-9]\d*$/gm)).toEqual(all)
    expect(kindsOf(/^taproot_kube_reconcile_duration_seconds_count\{queue="(objects|mirrors)"\} [1-9]\d*$/gm)).toEqual(['mirrors', 'objects'])
  }

  /** Expects that a PlatformIdentity lets tokens of its service account sign in to the API, with the right audience only (docs/kubernetes.md). */
  async function expectSignIn(): Promise<void> {
    const uidOf = (object: string): Promise<string> => kube.kubectl(['-n', 'acme', 'get', object, '-o', 'jsonpath={.status.uid}'])
    const [group, identity] = [await uidOf('platformgroup/web'), await uidOf('platformidentity/deployer')]
    const answer = async (audience: string): Promise<Response> => {
      const token = (await kube.kubectl(['-n', 'acme', 'create', 'token', 'deployer', '--audience', audience])).trim()
      return fetch(`http://127.0.0.1:${home.apiPort}/iam/v2/groups/${group}`, { headers: { authorization: `Bearer ${token}`, 'taproot-identity': identity } })
    }
    const welcome = await answer(baseUrl)
    expect(welcome.status).toBe(200)
    expect(await welcome.json()).toMatchObject({ uid: group, name: 'web' })
    expect((await answer('https://elsewhere.example')).status).toBe(403)
  }

  test('the rights of the controller are enough for all actions of the controller, and all are used', async () => {
    await startProcesses()
    // From the API to mirrors: creates, repairs and removes them.
    const { uid } = await call('POST', '/iam/v2/groups', { name: 'shown' })
    const subscription = await call('POST', `/events/v2/subscriptions/${String(uid)}`, { sink: 'https://hooks.example/taproot' })
    await until(async () => (await mirrors()).length >= 3, 'mirrors of a group, its binding and its subscription')
    for (const mirror of await mirrors()) await kube.kubectl(['-n', 'platform', 'annotate', mirror, 'taproot.dev/uid-'])
    const updated = async (): Promise<number> =>
      new Set((await audit.read()).filter(({ verb }) => verb === 'update').map(({ objectRef }) => objectRef?.resource)).size
    await until(async () => (await updated()) >= 4, 'mirrors are mended')
    await call('DELETE', `/events/v2/subscriptions/${String(subscription['uid'])}`)
    await call('DELETE', `/iam/v2/groups/${String(uid)}`)
    await until(async () => (await mirrors()).length === 0, 'mirrors go')
    // From objects to the API: creates one object of each kind, and deletes them.
    for (const sample of ['grant.yaml', 'organisation.yaml']) await kube.kubectl(['apply', '-f', join(samples, sample)])
    await kube.kubectl(['-n', 'acme', 'wait', '--for=condition=Ready', 'platform', '--all', '--timeout=60s'])
    await expectMetrics()
    await expectSignIn()
    // Bindings first: otherwise their records would be deleted together with their identity.
    for (const kind of ['platformrolebindings', 'platform']) await kube.kubectl(['-n', 'acme', 'delete', kind, '--all', '--timeout=60s'])

    const calls = await audit.read()
    expect(calls.filter(({ responseStatus }) => responseStatus.code === 403 || responseStatus.code === 401)).toEqual([])
    const rights = controllerRights.filter(({ pullSecrets, seldom }) => pullSecrets !== true && seldom !== true)
    const unused = rights.flatMap((right) =>
      right.verbs
        .filter((verb) => !calls.some((each) => uses(right, verb, each)))
        .map((verb) => `${verb} ${right.resource} ${right.names?.join() ?? ''}: ${right.needs}`),
    )
    expect(unused).toEqual([])
  })
})
