import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { KubeClient } from '../../../src/kubernetes/client/kube-client.ts'
import type { KubeApi, KubeErrorReason, ObjectType, WatchEvent } from '../../../src/kubernetes/kube-api.ts'
import { selfSigned } from '../../auth/certificate.ts'
import { mustRunKubeClient, runKubeClient } from '../../support/parts/kubernetes/kube-client.ts'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { until } from '../../store/store-harness.ts'
import { clientOf, compact, configMap, configMaps, freshNamespace, proxyTo, signal, valueOf } from '../kube-bench.ts'

const unknownType: ObjectType = { group: 'unknown.example', version: 'v1', kind: 'Nothing', plural: 'nothings', namespaced: true }
const deployments: ObjectType = { group: 'apps', version: 'v1', kind: 'Deployment', plural: 'deployments', namespaced: true }

describeWithPart('kube-apiserver', 'the client of a Kubernetes API server', () => {
  let kube: Kube

  beforeAll(async () => void (kube = await startKube()))
  afterAll(() => kube?.stop())

  describe('Kubernetes objects', () => {
    test('Kubernetes objects are created, read, replaced, patched and deleted', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      const ref = { namespace, name: 'one' }
      expect(await client.get(configMaps, ref, signal)).toBeUndefined()
      const made = await client.create(configMaps, configMap('one', { namespace, value: 'a' }), signal)
      expect(valueOf(made)).toBe('a')
      const { resourceVersion } = made.metadata
      const replaced = await client.replace(configMaps, { ...configMap('one', { namespace, value: 'b' }), metadata: { ...ref, resourceVersion } }, signal)
      expect(valueOf(replaced)).toBe('b')
      const patched = await client.patch(configMaps, ref, { metadata: { labels: { app: 'x' } }, data: { more: 'c' } }, signal)
      expect([patched.metadata.labels, patched['data']]).toEqual([{ app: 'x' }, { value: 'b', more: 'c' }])
      expect(await client.get(configMaps, ref, signal)).toEqual(patched)
      await client.delete(configMaps, ref, { uid: made.metadata.uid }, signal)
      expect(await client.get(configMaps, ref, signal)).toBeUndefined()
      await client.delete(configMaps, ref, {}, signal)
    })

    test('Kubernetes objects are applied: created, changed against other field managers, and cleared of fields missing in the new draft', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      const metadata = { namespace, name: 'one' }
      const made = await client.apply(configMaps, { metadata, data: { kept: '1', left: '1' } }, {}, signal)
      await kube.kubectl(['patch', 'configmap', 'one', '-n', namespace, '--type=merge', '-p', '{"data":{"kept":"edited","foreign":"1"}}'])
      const applied = await client.apply(configMaps, { metadata, data: { kept: '2' } }, {}, signal)
      expect(applied['data']).toEqual({ kept: '2', foreign: '1' })
      const again = await client.apply(configMaps, { metadata, data: { kept: '2' } }, {}, signal)
      expect(again.metadata.resourceVersion).toBe(applied.metadata.resourceVersion)
      expect(again.metadata.uid).toBe(made.metadata.uid)
    })

    test('Kubernetes objects have a status that can be applied separately', async () => {
      const client = clientOf(kube)
      const metadata = { namespace: await freshNamespace(kube), name: 'one' }
      const template = { metadata: { labels: { app: 'x' } }, spec: { containers: [{ name: 'c', image: 'i' }] } }
      await client.create(deployments, { metadata, spec: { selector: { matchLabels: { app: 'x' } }, template } }, signal)
      const applied = await client.apply(deployments, { metadata, status: { observedGeneration: 7 } }, { subresource: 'status' }, signal)
      expect([applied.status, applied.metadata.generation]).toEqual([{ observedGeneration: 7 }, 1])
    })

    test('Kubernetes objects are not deleted if another object has the same name now', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      const made = await client.create(configMaps, configMap('one', { namespace }), signal)
      await client.delete(configMaps, { namespace, name: 'one' }, { uid: '00000000-0000-4000-8000-000000000000' }, signal)
      expect((await client.get(configMaps, { namespace, name: 'one' }, signal))?.metadata.uid).toBe(made.metadata.uid)
    })

    test('Kubernetes objects are listed in parts at one resource version, in one namespace or all, and by label', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      for (const [index, app] of ['x', 'y', 'x', 'x'].entries()) await client.create(configMaps, configMap(`n${index}`, { namespace, labels: { app } }), signal)
      const names: string[] = []
      const versions = new Set<string>()
      let continueToken: string | undefined
      do {
        const page = await client.list(
          configMaps,
          { namespace, labelSelector: 'app=x', limit: 2, ...(continueToken !== undefined && { continueToken }) },
          signal,
        )
        await client.create(configMaps, configMap(`later${names.length}`, { namespace, labels: { app: 'x' } }), signal)
        names.push(...page.items.map(({ metadata }) => metadata.name))
        versions.add(page.resourceVersion)
        continueToken = page.continueToken
      } while (continueToken !== undefined)
      expect([names, versions.size]).toEqual([['n0', 'n2', 'n3'], 1])
      const { items } = await client.list(configMaps, { limit: 1000 }, signal)
      expect(new Set(items.map(({ metadata }) => metadata.namespace)).size).toBeGreaterThan(1)
    })
  })

  describe('a watch', () => {
    test('a watch delivers events after its resource version, in order, and ends with its signal', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      const { resourceVersion } = await client.list(configMaps, { namespace, limit: 1 }, signal)
      await client.create(configMaps, configMap('one', { namespace }), signal)
      await client.patch(configMaps, { namespace, name: 'one' }, { data: { value: 'b' } }, signal)
      await client.delete(configMaps, { namespace, name: 'one' }, {}, signal)
      const ended = new AbortController()
      const notified: string[] = []
      const watching = (async () => {
        for await (const event of client.watch(configMaps, { namespace, resourceVersion }, ended.signal)) {
          notified.push(event.type)
          if (event.type === 'deleted') ended.abort(new Error('seen enough'))
        }
      })()
      await expect(watching).rejects.toThrow('seen enough')
      expect(notified).toEqual(['added', 'modified', 'deleted'])
    })

    test('a watch is closed when it has no listeners', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      const { resourceVersion } = await client.list(configMaps, { namespace, limit: 1 }, signal)
      await client.create(configMaps, configMap('one', { namespace, value: 'x'.repeat(100_000) }), signal)
      let first: WatchEvent | undefined
      for await (const event of client.watch(configMaps, { namespace, resourceVersion }, signal)) {
        first = event
        break
      }
      expect(first?.type === 'added' && valueOf(first.object)?.length).toBe(100_000)
    })

    test('a watch fails after a long time without any event', async () => {
      const proxy = await proxyTo(kube)
      const client = clientOf(kube, { port: proxy.port, silenceMs: 1000 })
      const namespace = await freshNamespace(kube)
      const { resourceVersion } = await client.list(configMaps, { namespace, limit: 1 }, signal)
      await client.create(configMaps, configMap('one', { namespace }), signal)
      await expectReason(
        drain(client, resourceVersion, () => proxy.stall()),
        'unavailable',
      )
    })

    test('a watch expires with its resource version, and so does the rest of a list', async () => {
      const client = clientOf(kube)
      const namespace = await freshNamespace(kube)
      for (const name of ['a', 'b', 'c']) await client.create(configMaps, configMap(name, { namespace }), signal)
      const { resourceVersion, continueToken = '' } = await client.list(configMaps, { namespace, limit: 1 }, signal)
      await client.create(configMaps, configMap('d', { namespace }), signal)
      await kube.apiserver.kill()
      await compact(kube)
      await kube.apiserver.restart()
      await expectReason(drain(client, resourceVersion), 'expired')
      await expectReason(client.list(configMaps, { namespace, limit: 1, continueToken }, signal), 'expired')
    })
  })

  describe('a call fails with the reason', () => {
    const rows: readonly {
      readonly reason: KubeErrorReason
      readonly when: string
      readonly call: (client: KubeApi, namespace: string) => Promise<unknown>
    }[] = [
      { reason: 'not_found', when: 'the type of a list does not exist', call: (client) => client.list(unknownType, { limit: 1 }, signal) },
      {
        reason: 'not_found',
        when: 'a patched object does not exist',
        call: (client, namespace) => client.patch(configMaps, { namespace, name: 'none' }, {}, signal),
      },
      {
        reason: 'not_found',
        when: 'the object of an applied status does not exist',
        call: (client, namespace) => client.apply(deployments, { metadata: { namespace, name: 'none' }, status: {} }, { subresource: 'status' }, signal),
      },
      {
        reason: 'conflict',
        when: 'a replaced object has a later version',
        call: async (client, namespace) => {
          const made = await client.create(configMaps, configMap('one', { namespace, value: 'a' }), signal)
          await client.patch(configMaps, { namespace, name: 'one' }, { data: { value: 'b' } }, signal)
          await client.replace(configMaps, made, signal)
        },
      },
      {
        reason: 'conflict',
        when: 'an applied object names the uid of a deleted one',
        call: (client, namespace) =>
          client.apply(configMaps, { metadata: { namespace, name: 'none', uid: '00000000-0000-4000-8000-000000000000' } }, {}, signal),
      },
      ...(['apply', 'patch'] as const).map((method) => ({
        reason: 'invalid' as const,
        when: `another object now has the name, for ${method} with the uid of the former one`,
        call: async (client: KubeApi, namespace: string) => {
          await client.create(configMaps, configMap('one', { namespace }), signal)
          const metadata = { namespace, name: 'one', uid: '00000000-0000-4000-8000-000000000000' }
          if (method === 'apply') await client.apply(configMaps, { metadata }, {}, signal)
          else await client.patch(configMaps, metadata, { metadata }, signal)
        },
      })),
      {
        reason: 'already_exists',
        when: 'a created object exists',
        call: async (client, namespace) => {
          await client.create(configMaps, configMap('one', { namespace }), signal)
          await client.create(configMaps, configMap('one', { namespace }), signal)
        },
      },
      { reason: 'invalid', when: 'a name is invalid', call: (client, namespace) => client.create(configMaps, configMap('No Name', { namespace }), signal) },
      {
        reason: 'invalid',
        when: 'a field has another type',
        call: (client, namespace) => client.create(configMaps, { metadata: { name: 'one', namespace }, data: 'text' }, signal),
      },
    ]
    for (const { reason, when, call } of rows) {
      test(`${reason} if ${when}`, async () => {
        await expectReason(call(clientOf(kube), await freshNamespace(kube)), reason)
      })
    }

    test('undefined for a read of an unknown type', async () => {
      expect(await clientOf(kube).get(unknownType, { namespace: 'default', name: 'x' }, signal)).toBeUndefined()
    })

    test('unauthorized with an invalid token', async () => {
      const endpoint = { from: 'token', server: kube.access.server, ca: kube.access.caPem, token: 'wrong' } as const
      await expectReason(clientOf(kube, { endpoint }).list(configMaps, { limit: 1 }, signal), 'unauthorized')
    })

    test('unavailable if the server has a certificate of another authority', async () => {
      const endpoint = { from: 'token', server: kube.access.server, ca: selfSigned('stranger').certificate, token: kube.access.token } as const
      await expectReason(clientOf(kube, { endpoint }).list(configMaps, { limit: 1 }, signal), 'unavailable')
    })

    test('unavailable while the network is cut, and works afterwards', async () => {
      const proxy = await proxyTo(kube)
      const client = clientOf(kube, { port: proxy.port })
      await client.list(configMaps, { limit: 1 }, signal)
      proxy.cut()
      await expectReason(client.list(configMaps, { limit: 1 }, signal), 'unavailable')
      proxy.resume()
      await client.list(configMaps, { limit: 1 }, signal)
    })

    test('unavailable if no answer arrives in time', async () => {
      const proxy = await proxyTo(kube)
      const client = clientOf(kube, { port: proxy.port, callMs: 500 })
      await client.list(configMaps, { limit: 1 }, signal)
      proxy.stall()
      await expectReason(client.list(configMaps, { limit: 1 }, signal), 'unavailable')
    })

    test('unavailable while the server is down, and works once it is back', async () => {
      const client = clientOf(kube)
      await client.list(configMaps, { limit: 1 }, signal)
      await kube.apiserver.kill()
      await expectReason(client.list(configMaps, { limit: 1 }, signal), 'unavailable')
      await kube.apiserver.restart()
      await client.list(configMaps, { limit: 1 }, signal)
    })

    test('unavailable after the client is closed', async () => {
      const proxy = await proxyTo(kube)
      const client = clientOf(kube, { port: proxy.port })
      const { resourceVersion } = await client.list(configMaps, { limit: 1 }, signal)
      proxy.stall()
      const failures = [expectReason(client.list(configMaps, { limit: 1 }, signal), 'unavailable'), expectReason(drain(client, resourceVersion), 'unavailable')]
      await client.close()
      await Promise.all(failures)
    })

    test('a call fails with the reason of its signal when that aborts', async () => {
      const proxy = await proxyTo(kube)
      const client = clientOf(kube, { port: proxy.port })
      await client.list(configMaps, { limit: 1 }, signal)
      proxy.stall()
      const reason = new Error('changed my mind')
      const stopping = new AbortController()
      const call = client.list(configMaps, { limit: 1 }, stopping.signal)
      stopping.abort(reason)
      await expect(call).rejects.toBe(reason)
    })
  })

  test('throttled, with the time to retry', async () => {
    const throttled = await startKube({ flags: ['--enable-priority-and-fairness=false', '--max-requests-inflight=1', '--max-mutating-requests-inflight=1'] })
    onTestFinished(() => throttled.stop())
    const token = await tokenOf(throttled, '*')
    const client = clientOf(throttled, { endpoint: { from: 'token', server: throttled.access.server, ca: throttled.access.caPem, token } })
    const many = await Promise.allSettled(Array.from({ length: 100 }, () => client.list(configMaps, { limit: 500 }, signal)))
    const failures = many.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []))
    expect(failures.length).toBeGreaterThan(0)
    for (const failure of failures) expect(failure).toMatchObject({ reason: 'throttled', retryAfterMs: 1000 })
  })

  test('the client starts at most as many calls as the rate allows; a cancelled call does not use up its turn', async () => {
    const client = clientOf(kube, { rate: { perSecond: 20, burst: 5 } })
    await client.list(configMaps, { limit: 1 }, signal)
    const startedAt = performance.now()
    const stopping = new AbortController()
    const leaving = Array.from({ length: 100 }, () => client.list(configMaps, { limit: 1 }, stopping.signal).catch((error: unknown) => error))
    stopping.abort(new Error('left'))
    await Promise.all(leaving)
    await Promise.all(Array.from({ length: 20 }, () => client.list(configMaps, { limit: 1 }, signal)))
    const tookMs = performance.now() - startedAt
    expect(tookMs).toBeGreaterThan(740)
    expect(tookMs).toBeLessThan(4000)
  })

  test('the client of a Kubernetes API server reuses connections', async () => {
    let connections = 0
    const proxy = await proxyTo(kube, () => connections++)
    const client = clientOf(kube, { port: proxy.port })
    for (let i = 0; i < 20; i++) await client.list(configMaps, { limit: 1 }, signal)
    // The pool may open a second connection before it knows that the first is free.
    expect(connections).toBeLessThanOrEqual(2)
  })

  describe('the endpoint of the API server', () => {
    test('the endpoint of the API server is read from a kubeconfig', async () => {
      await clientOf(kube, { endpoint: { from: 'kubeconfig', file: kube.kubeconfigFile, environment: {} } }).list(configMaps, { limit: 1 }, signal)
      expect(() => clientOf(kube, { endpoint: { from: 'kubeconfig', file: kube.kubeconfigFile, environment: {}, context: 'none' } })).toThrow('no such context')
    })

    test('the endpoint of the API server is that of the pod, whose rotated token is reread and determines the rights', async () => {
      const directory = await mkdtemp(join(tmpdir(), 'taproot-pod-'))
      onTestFinished(() => rm(directory, { recursive: true }))
      await writeFile(join(directory, 'ca.crt'), kube.access.caPem)
      const endpoint = { from: 'service-account', host: '127.0.0.1', port: String(kube.apiserver.port), directory } as const
      const client = clientOf(kube, { endpoint })
      await expectReason(client.list(configMaps, { limit: 1 }, signal), 'unauthorized')
      await writeFile(join(directory, 'token'), 'not accepted any more\n')
      await expectReason(client.list(configMaps, { limit: 1 }, signal), 'unauthorized')
      await writeFile(join(directory, 'token'), `${await tokenOf(kube, 'list')}\n`)
      await client.list(configMaps, { limit: 1 }, signal)
      await expectReason(client.create(configMaps, configMap('mine'), signal), 'forbidden')
    })

    test('the endpoint of the API server is refused without TLS', () => {
      expect(() => clientOf(kube, { endpoint: { from: 'token', server: 'http://127.0.0.1:1', ca: '', token: 't' } })).toThrow('https')
    })
  })
})

/** Expects that a call rejects with this reason. */
async function expectReason(call: Promise<unknown>, reason: KubeErrorReason): Promise<void> {
  await expect(call).rejects.toMatchObject({ name: 'KubeError', reason })
}

/** Watches all ConfigMaps until it ends. */
async function drain(client: KubeClient, resourceVersion: string, onEvent: () => void = () => undefined): Promise<void> {
  for await (const _ of client.watch(configMaps, { resourceVersion }, signal)) onEvent()
}

let accounts = 0

/** Returns the token of a service account with this right on ConfigMaps, once the API server applies it. */
async function tokenOf({ kubeconfigFile }: Kube, verb: string): Promise<string> {
  const name = `robot-${++accounts}`
  const kubectl = (...args: string[]): Promise<string> => mustRunKubeClient('kubectl', args, { kubeconfigFile })
  await kubectl('create', 'serviceaccount', name, '-n', 'default')
  await kubectl('create', 'clusterrole', name, `--verb=${verb}`, '--resource=configmaps')
  await kubectl('create', 'clusterrolebinding', name, `--serviceaccount=default:${name}`, `--clusterrole=${name}`)
  const token = (await kubectl('create', 'token', name, '-n', 'default')).trim()
  const mayList = ['auth', 'can-i', 'list', 'configmaps', '-A', '--token', token]
  await until(async () => (await runKubeClient('kubectl', mayList, { kubeconfigFile })).code === 0)
  return token
}
