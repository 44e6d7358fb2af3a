import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { makeApiHomes, startApi, type ApiHome } from '../process/harness/api-home.ts'
import { freshDirectory, isReady, startProcess } from '../process/harness/taproot-process.ts'
import { chartDirectory } from './helm.ts'

/** An issuer like that of a cloud provider: neither kubeadm's nor the address of the API server. */
const issuer = 'https://oidc.cloud.example/id/4711/'
const subject = 'system:serviceaccount:platform:taproot-admin'

/** Runs a script of `helm test` like its pod. Resolves with its output and exit code. */
async function runScript(name: string, env: Readonly<Record<string, string>>): Promise<{ output: string; code: number }> {
  const parts = ['client', name].map((part) => readFile(join(chartDirectory, 'files', 'tests', `${part}.mjs`), 'utf8'))
  const script = (await Promise.all(parts)).join('\n')
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += String(chunk)))
  const [code] = await once(child, 'close')
  return { output, code }
}

describeWithPart('kube-apiserver', 'the service account of the release as operator', () => {
  let kube: Kube
  let directory: string

  beforeAll(async () => {
    kube = await startKube({ serviceAccountIssuer: issuer })
    await kube.kubectl(['create', 'namespace', 'platform'])
    for (const account of ['taproot-admin', 'taproot-api', 'other']) await kube.kubectl(['-n', 'platform', 'create', 'serviceaccount', account])
  })
  afterAll(async () => kube?.stop())

  const tokenOf = async (account: string, audience: string): Promise<string> =>
    (await kube.kubectl(['-n', 'platform', 'create', 'token', account, '--audience', audience])).trim()

  /** Returns the settings of the chart: the keys come from the API server, to which the pod's own token is presented. */
  async function settings(): Promise<Readonly<Record<string, string>>> {
    directory = await freshDirectory()
    const [caFile, tokenFile] = ['ca.crt', 'token'].map((name) => join(directory, name))
    await writeFile(caFile ?? '', kube.access.caPem)
    await writeFile(tokenFile ?? '', (await kube.kubectl(['-n', 'platform', 'create', 'token', 'taproot-api'])).trim())
    return {
      TAPROOT_KUBERNETES_TOKEN_FILE: tokenFile ?? '',
      TAPROOT_ISSUERS: JSON.stringify([{ jwksUri: `${kube.access.server}/openid/v1/jwks`, caFile, tokenFile, allowPrivate: true }]),
      TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ subject }]),
    }
  }

  async function postGroup(home: ApiHome, token: string): Promise<{ status: number; body: Record<string, unknown> }> {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const response = await fetch(`http://127.0.0.1:${home.apiPort}/iam/v2/groups`, { method: 'POST', headers, body: '{"name": "acme"}' })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> } // a cast of JSON
  }

  test.for([
    [
      'https://kubernetes.default.svc.cluster.local',
      `kubernetes.issuer is https://kubernetes.default.svc.cluster.local: set it to ${issuer}, or leave it empty`,
    ],
    ['', 'restart the pods of the release'],
  ] as const)('helm test names the unknown issuer and the remedy (kubernetes.issuer: "%s")', async ([known, advice]) => {
    const env = { ...(await settings()), TAPROOT_KUBERNETES_ISSUER: 'https://kubernetes.default.svc.cluster.local' }
    const etcd = { endpoints: kube.etcd.endpoints, prefix: `/advice-${known.length}` }
    const { homes, baseUrl } = await makeApiHomes(1, { etcd, env })
    const [home] = homes
    if (home === undefined) throw new Error('one home')
    await startApi(home)
    const tokenFile = join(directory, 'test-token')
    await writeFile(tokenFile, await tokenOf('taproot-admin', baseUrl))
    const service = { SERVICE: `http://127.0.0.1:${home.apiPort}`, HOST: new URL(baseUrl).hostname, BASE_URL: baseUrl }
    const { output, code } = await runScript('api', { ...service, ISSUER: known, TOKEN_FILE: tokenFile })
    expect(code).toBe(1)
    expect(output).toContain(`FAIL the issuer of this cluster's tokens is known: ${issuer}: ${advice}`)
    expect(output).toContain(`the issuer is unknown: \\"${issuer}\\"`)
  })

  test('the operator creates the first root group as NOTES explain, others may not, and helm test passes', async () => {
    const upstream = await startRegistry()
    try {
      const env = { ...(await settings()), TAPROOT_REGISTRY_UPSTREAM_URL: upstream.url }
      const { homes, baseUrl } = await makeApiHomes(2, { etcd: kube.etcd, env })
      const [home, registryHome] = homes
      if (home === undefined || registryHome === undefined) throw new Error('two homes')
      await startApi(home)
      const tokenFile = join(directory, 'test-token')
      await writeFile(tokenFile, await tokenOf('taproot-admin', baseUrl))
      const tested = await runScript('api', {
        SERVICE: `http://127.0.0.1:${home.apiPort}`,
        HOST: new URL(baseUrl).hostname,
        BASE_URL: baseUrl,
        TOKEN_FILE: tokenFile,
      })
      expect(tested, tested.output).toMatchObject({ code: 0, output: expect.not.stringContaining('FAIL') })

      for (const token of [await tokenOf('other', baseUrl), await tokenOf('taproot-admin', 'https://elsewhere.example.com')]) {
        expect(await postGroup(home, token)).toMatchObject({ status: 403 })
      }
      expect(await postGroup(home, await tokenOf('taproot-admin', baseUrl))).toMatchObject({ status: 200, body: { name: 'acme' } })

      const registry = startProcess({ args: ['registry'], env: registryHome.env, cwd: registryHome.cwd })
      await registry.until(() => isReady(registryHome.opsPort))
      const port = registryHome.env['TAPROOT_REGISTRY_PORT']
      const host = await runScript('registry', { SERVICE: `http://127.0.0.1:${port}`, HOST: 'registry.example', REALM: 'http://registry.example/token' })
      expect(host, host.output).toMatchObject({ code: 0 })
      const failed = await runScript('registry', {
        SERVICE: `http://127.0.0.1:${port}`,
        HOST: 'registry.example',
        REALM: 'https://elsewhere.example.com/token',
      })
      expect(failed.code).toBe(1)
    } finally {
      await upstream.stop()
    }
  })
})
