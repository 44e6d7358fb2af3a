import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { request, type RequestOptions } from 'node:https'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import type { SecretData } from '../../../src/cli/init-secrets/secret-plan.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { describeWithPart, requirePart } from '../../support/parts/require-part.ts'
import { chartDirectory, one, render } from './helm.ts'
import { makeSecretFiles, wantedOf } from './made-secrets.ts'

interface Answer {
  readonly status: number
  readonly body: string
}

/** Makes one HTTPS call. Rejects if TLS fails. */
async function call(url: string, options: RequestOptions & { readonly body?: string }): Promise<Answer> {
  const { body, ...rest } = options
  const sent = request(url, { timeout: 5000, agent: false, ...rest })
  sent.on('timeout', () => sent.destroy(new Error('no answer')))
  sent.end(body)
  const [response] = await once(sent, 'response')
  return { status: response.statusCode, body: await text(response) }
}

/** Returns a member's arguments in the chart, for this machine: pod names become `localhost` with separate ports. */
function localArguments(args: readonly string[], member: { index: number; ports: readonly number[]; directory: string }): string[] {
  const { index, ports, directory } = member
  const [client, peer, metrics] = ports.slice(3 * index)
  const local: Readonly<Record<string, string>> = {
    '--data-dir': join(directory, `data-${index}`),
    '--listen-client-urls': `https://127.0.0.1:${client}`,
    '--advertise-client-urls': `https://localhost:${client}`,
    '--listen-peer-urls': `https://127.0.0.1:${peer}`,
    '--initial-advertise-peer-urls': `https://localhost:${peer}`,
    '--listen-metrics-urls': `http://127.0.0.1:${metrics}`,
    '--initial-cluster': [0, 1, 2].map((each) => `taproot-etcd-${each}=https://localhost:${ports[3 * each + 1]}`).join(','),
  }
  return args.map((argument) => {
    const [flag = '', value] = argument.split(/=(.*)/s)
    const set = local[flag] ?? value?.replace('$(POD_NAME)', `taproot-etcd-${index}`).replace('/etc/etcd/tls', join(directory, 'taproot-etcd-server'))
    return set === undefined ? flag : `${flag}=${set}`
  })
}

function clientOptions(data: SecretData | undefined, withCertificate = true): RequestOptions {
  const { 'ca.crt': ca, 'tls.crt': cert, 'tls.key': key } = data ?? {}
  return { ca, ...(withCertificate && { cert, key }) }
}

describeWithPart('etcd', 'the bundled etcd', () => {
  test('the bundled etcd has three members that connect with the created certificates, and refuse clients without one', async () => {
    const objects = await render({ etcd: { replicas: 3 } })
    const { args } = one(objects, 'StatefulSet', 'taproot-etcd').spec.template.spec.containers[0]
    const { directory, secrets } = await makeSecretFiles(wantedOf(objects))
    const ports = await freePorts(9)
    let output = ''
    for (const index of [0, 1, 2]) {
      const child = spawn(requirePart('etcd'), localArguments(args, { index, ports, directory }), { stdio: ['ignore', 'ignore', 'pipe'] })
      child.stderr.on('data', (chunk) => (output = (output + String(chunk)).slice(-4000)))
      onTestFinished(async () => {
        if (child.exitCode === null && child.kill('SIGKILL')) await once(child, 'exit')
      })
    }
    const client = clientOptions(secrets['taproot-etcd-client'])
    const put = { method: 'POST', body: JSON.stringify({ key: 'YQ==', value: 'Yg==' }) }
    const deadline = performance.now() + 60_000
    for (const index of [0, 1, 2]) {
      const url = `https://localhost:${ports[3 * index]}/v3/kv/put`
      const written = (): Promise<boolean> =>
        call(url, { ...client, ...put }).then(
          ({ status }) => status === 200,
          () => false,
        )
      while (!(await written())) {
        if (performance.now() > deadline) throw new Error(`etcd does not take writes:\n${output}`)
        await delay(100)
      }
      await expect(call(url, { ...clientOptions(secrets['taproot-etcd-client'], false), ...put })).rejects.toThrow()
      await expect(call(url, { ...clientOptions(secrets['taproot-upstream-tls']), ...put })).rejects.toThrow()
    }
    // The paths of the probes.
    for (const path of ['livez', 'readyz']) expect((await fetch(`http://127.0.0.1:${ports[2]}/${path}`)).status).toBe(200)
    const members = await call(`https://localhost:${ports[0]}/v3/cluster/member/list`, { ...client, method: 'POST', body: '{}' })
    expect(JSON.parse(members.body).members).toHaveLength(3)
  })
})

describeWithPart('registry', 'the bundled registry', () => {
  test('the bundled registry accepts the created password over the created certificate, and nothing else', async () => {
    const { directory, secrets } = await makeSecretFiles(wantedOf(await render()))
    const { 'ca.crt': ca } = secrets['taproot-upstream-tls'] ?? {}
    const { password, htpasswd } = secrets['taproot-upstream'] ?? {}
    await writeFile(join(directory, 'taproot-upstream-tls', 'htpasswd'), htpasswd ?? '')
    const configuration = await readFile(join(chartDirectory, 'files', 'distribution.yml'), 'utf8')
    const configurationFile = join(directory, 'config.yml')
    const [certFile, keyFile] = ['tls.crt', 'tls.key'].map((name) => join(directory, 'taproot-upstream-tls', name))
    await writeFile(configurationFile, configuration.replaceAll('/etc/taproot-upstream-secrets', join(directory, 'taproot-upstream-tls')))
    const registry = await startRegistry({ configurationFile, storageDir: join(directory, 'data'), tls: { certFile: certFile ?? '', keyFile: keyFile ?? '' } })
    onTestFinished(() => registry.stop())
    const ask = (path: string, auth?: string): Promise<Answer> =>
      call(`${registry.url}${path}`, { ca, servername: 'taproot-upstream.platform.svc.cluster.local', ...(auth !== undefined && { auth }) })
    expect((await ask('/v2/')).status).toBe(401)
    expect((await ask('/v2/', 'taproot:wrong')).status).toBe(401)
    expect((await ask('/v2/', `taproot:${password?.toString()}`)).status).toBe(200)
    // The path of the probes.
    expect((await ask('/')).status).toBe(200)
  })
})
