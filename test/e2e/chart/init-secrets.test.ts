import { X509Certificate } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { initSecrets } from '../../../src/cli/init-secrets/init-secrets.ts'
import type { Wanted } from '../../../src/cli/init-secrets/wanted.ts'
import { systemClock, systemRandom } from '../../../src/server/runtime.ts'
import { parseKeyEncryptionKey } from '../../../src/auth/keys/sealing.ts'
import { createKubeClient, type KubeClient } from '../../../src/kubernetes/client/kube-client.ts'
import { KubeError } from '../../../src/kubernetes/kube-api.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { freshDirectory, runProcess } from '../process/harness/taproot-process.ts'
import { one, render, type Rendered } from './helm.ts'
import { wantedOf } from './made-secrets.ts'

const yearMs = 365 * 24 * 3_600_000
const certificates = ['taproot-etcd-client', 'taproot-etcd-server', 'taproot-upstream-tls']
const all = ['taproot-authority', 'taproot-encryption', ...certificates, 'taproot-upstream'].toSorted()

interface Rule {
  readonly verbs: readonly string[]
}

/** Returns the rules with one verb removed, for each verb of each rule. A rule without verbs is dropped. */
function withoutEachVerb(rules: readonly Rule[]): readonly { readonly verb: string; readonly rules: readonly Rule[] }[] {
  return rules.flatMap((rule, at) =>
    rule.verbs.map((verb) => {
      const cut = { ...rule, verbs: rule.verbs.filter((other) => other !== verb) }
      return { verb, rules: rules.with(at, cut).filter(({ verbs }) => verbs.length > 0) }
    }),
  )
}

describeWithPart('kube-apiserver', 'taproot init-secrets', () => {
  let kube: Kube
  let client: KubeClient
  let wanted: Wanted
  let objects: readonly Rendered[]
  let run = 0

  beforeAll(async () => {
    kube = await startKube()
    client = clientOf(kube.access.token)
    objects = await render()
  })
  afterAll(async () => {
    await client?.close()
    await kube?.stop()
  })
  beforeEach(async () => {
    wanted = { ...wantedOf(objects), namespace: `installation-${++run}` }
    await kube.kubectl(['create', 'namespace', wanted.namespace])
  })

  function clientOf(token: string): KubeClient {
    const { server, caPem: ca } = kube.access
    return createKubeClient({ endpoint: { from: 'token', server, ca, token }, userAgent: 'test', random: systemRandom })
  }

  /** Runs the command with a clock `afterMs` ahead. Returns the action for each Secret. */
  async function make(what: Wanted = wanted, { afterMs = 0, by = client, timeoutMs = 10_000 } = {}): Promise<Readonly<Record<string, string>>> {
    const report: Record<string, string> = {}
    const clock = { now: () => systemClock.now() + afterMs }
    const options = { kube: by, clock, random: systemRandom, timeoutMs, report: (name: string, action: string) => void (report[name] = action) }
    await initSecrets(what, options, AbortSignal.timeout(60_000))
    return report
  }

  async function secret(name: string): Promise<{ readonly version: string; readonly data: Readonly<Record<string, Buffer>>; readonly type: unknown }> {
    const object = await client.get(objectTypes.secret, { namespace: wanted.namespace, name }, AbortSignal.timeout(60_000))
    const data = object?.['data'] as Record<string, string> // a cast: it is a Secret
    const decoded = Object.fromEntries(Object.entries(data).map(([key, base64]) => [key, Buffer.from(base64, 'base64')]))
    return { version: object?.metadata.resourceVersion ?? '', type: object?.['type'], data: decoded }
  }

  async function certificate(name: string, entry = 'tls.crt'): Promise<X509Certificate> {
    return new X509Certificate((await secret(name)).data[entry] ?? '')
  }

  const every = (action: string, of: readonly string[] = all) => Object.fromEntries(of.map((name) => [name, action]))

  test('taproot init-secrets creates all Secrets that the chart needs, and changes nothing the second time', async () => {
    expect(await make()).toEqual(every('make'))
    const before = await Promise.all(all.map(secret))
    expect(await make()).toEqual(every('keep'))
    expect(await Promise.all(all.map(secret))).toEqual(before)
  })

  test('taproot init-secrets creates Secrets with the content that each use needs', async () => {
    await make()
    expect(parseKeyEncryptionKey((await secret('taproot-encryption')).data['key'] ?? Buffer.alloc(0))).toHaveLength(32)
    const authority = await certificate('taproot-authority')
    expect(authority.ca).toBe(true)
    expect(authority.validToDate.getTime() - Date.now()).toBeGreaterThan(29 * yearMs)
    for (const name of certificates) {
      const leaf = await certificate(name)
      expect(leaf.checkIssued(authority) && leaf.verify(authority.publicKey), name).toBe(true)
      expect((await certificate(name, 'ca.crt')).fingerprint256).toBe(authority.fingerprint256)
      expect((await secret(name)).type).toBe('kubernetes.io/tls')
    }
    const server = await certificate('taproot-etcd-server')
    expect(server.checkHost('taproot-etcd-2.taproot-etcd.platform.svc.cluster.local')).toBeDefined()
    expect(server.checkHost('localhost')).toBeDefined()
    expect((await certificate('taproot-upstream-tls')).checkHost('taproot-upstream.platform.svc.cluster.local')).toBeDefined()
    expect((await certificate('taproot-etcd-client')).keyUsage).toEqual(['1.3.6.1.5.5.7.3.2'])
  })

  test('taproot init-secrets creates only missing Secrets, and never changes those of the user', async () => {
    await kube.kubectl(['-n', wanted.namespace, 'create', 'secret', 'generic', 'taproot-encryption', '--from-literal=key=mine'])
    await kube.kubectl(['-n', wanted.namespace, 'create', 'secret', 'generic', 'taproot-etcd-server', '--from-literal=tls.crt=mine'])
    const report = await make(wanted, { afterMs: 20 * yearMs })
    expect(report).toEqual({ ...every('make'), 'taproot-encryption': 'keep', 'taproot-etcd-server': 'keep' })
    expect((await secret('taproot-encryption')).data).toEqual({ key: Buffer.from('mine') })
  })

  test('taproot init-secrets renews certificates close to expiry, under the same authority, and nothing else', async () => {
    await make()
    const authority = await certificate('taproot-authority')
    expect(await make(wanted, { afterMs: 0.9 * yearMs })).toEqual(every('keep'))
    expect(await make(wanted, { afterMs: 1.1 * yearMs })).toEqual({ ...every('keep'), ...every('renew', certificates) })
    const renewed = await certificate('taproot-etcd-server')
    expect(renewed.validToDate.getTime() - Date.now()).toBeGreaterThan(4 * yearMs)
    expect(renewed.verify(authority.publicKey)).toBe(true)
  })

  test('taproot init-secrets renews a certificate with a missing name or usage, or without its authority', async () => {
    await make()
    const renamed = wanted.secrets.map((one) =>
      one.kind === 'certificate' && one.name === 'taproot-upstream-tls' ? { ...one, dnsNames: ['upstream.example.com'] } : one,
    )
    expect(await make({ ...wanted, secrets: renamed })).toEqual({ ...every('keep'), 'taproot-upstream-tls': 'renew' })
    expect((await certificate('taproot-upstream-tls')).checkHost('upstream.example.com')).toBeDefined()
    await kube.kubectl(['-n', wanted.namespace, 'delete', 'secret', 'taproot-authority'])
    expect(await make({ ...wanted, secrets: renamed })).toEqual({ ...every('keep'), 'taproot-authority': 'make', ...every('renew', certificates) })
  })

  test('taproot init-secrets run several times at once, leaves one authority and certificates signed by it', async () => {
    await Promise.all(Array.from({ length: 5 }, () => make()))
    const authority = await certificate('taproot-authority')
    for (const name of certificates) expect((await certificate(name)).verify(authority.publicKey), name).toBe(true)
    expect(await make()).toEqual(every('keep'))
  })

  test('taproot init-secrets has exactly the rights in the chart, and needs each of them', async () => {
    const role = one(objects, 'Role', 'taproot-init-secrets')
    const install = async (rules: readonly unknown[]): Promise<void> => {
      const inNamespace = ['ServiceAccount', 'RoleBinding'].map((kind) => one(objects, kind, 'taproot-init-secrets'))
      const [account, binding] = [...inNamespace, undefined].map(
        (object) => object && { ...object, metadata: { name: object.metadata.name, namespace: wanted.namespace } },
      )
      const subjects = [{ kind: 'ServiceAccount', name: 'taproot-init-secrets', namespace: wanted.namespace }]
      const items = [account, { ...binding, subjects }, { ...role, metadata: { name: role.metadata.name, namespace: wanted.namespace }, rules }]
      await kube.kubectl(['apply', '--server-side', '--force-conflicts', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
    }
    await install(role['rules'])
    const token = (await kube.kubectl(['-n', wanted.namespace, 'create', 'token', 'taproot-init-secrets'])).trim()
    const by = clientOf(token)
    try {
      expect(await make(wanted, { by })).toEqual(every('make'))
      expect(await make(wanted, { by, afterMs: 1.1 * yearMs })).toMatchObject(every('renew', certificates))
      for (const { verb, rules } of withoutEachVerb(role['rules'])) {
        await kube.kubectl(['-n', wanted.namespace, 'delete', 'secret', 'taproot-upstream', '--ignore-not-found'])
        await install(rules)
        await expect(make(wanted, { by, afterMs: 5 * yearMs, timeoutMs: 0 }), `without ${verb}`).rejects.toMatchObject({
          name: KubeError.name,
          reason: 'forbidden',
        })
      }
    } finally {
      await by.close()
    }
  })

  test('taproot init-secrets reports each action on its output', async () => {
    const args = ['init-secrets', '--kubeconfig', kube.kubeconfigFile, '--wanted', JSON.stringify(wanted)]
    const first = await runProcess({ args, cwd: await freshDirectory() })
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(first.stdout.trim().split('\n').toSorted()).toEqual(all.map((name) => `made ${name}`))
    expect((await runProcess({ args, cwd: await freshDirectory() })).stdout).toContain('kept taproot-encryption\n')
    const wrong = await runProcess({
      args: [...args.slice(0, -1), '{"namespace":"x","labels":{},"secrets":[{"kind":"coffee","name":"a"}]}'],
      cwd: await freshDirectory(),
    })
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('--wanted/secrets/0') })
  })
})
