import { afterAll, beforeAll, expect, test } from 'vitest'
import type { KubeClientOptions } from '../../../src/kubernetes/client/kube-client.ts'
import type { KubeApi, KubeObject, ObjectType } from '../../../src/kubernetes/kube-api.ts'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { until } from '../../e2e/process/harness/ops.ts'
import { campaignLength } from '../../soak/factor.ts'
import { at, scripted, watching } from './informer-bench.ts'
import { clientOf, compact, configMap, configMaps, freshNamespace, proxyTo, random, signal, valueOf } from '../kube-bench.ts'

describeWithPart('kube-apiserver', 'an informer', () => {
  let kube: Kube

  beforeAll(async () => void (kube = await startKube()))
  afterAll(() => kube?.stop())

  /** Starts an informer of a new namespace's ConfigMaps over a network that can fail. */
  async function far(options: Pick<KubeClientOptions, 'silenceMs' | 'watchSeconds'> = {}) {
    const proxy = await proxyTo(kube)
    const namespace = await freshNamespace(kube)
    const near = clientOf(kube)
    await near.create(configMaps, configMap('old', { namespace, value: '0' }), signal)
    const bench = watching({ api: clientOf(kube, { port: proxy.port, ...options }), type: configMaps, selection: { namespace } })
    await bench.informer.synced
    const write = (name: string, value: string) => near.apply(configMaps, configMap(name, { namespace, value }), {}, signal)
    const remove = (name: string) => near.delete(configMaps, { namespace, name }, {}, signal)
    return { ...bench, proxy, namespace, near, write, remove, get: (name: string) => bench.informer.get({ namespace, name }) }
  }

  test('an informer has the existing objects, without managed fields, and receives changes in order', async () => {
    const { informer, notified, namespace, get, write, remove } = await far()
    expect([informer.size, valueOf(get('old')), notified]).toEqual([1, '0', ['+old=0']])
    expect(get('old')?.metadata).not.toHaveProperty('managedFields')
    await write('new', '1')
    await write('new', '2')
    await remove('old')
    await until(() => notified.length === 4)
    expect(notified).toEqual(['+old=0', '+new=1', '~new=2', '-old'])
    expect([...informer.list()].map(({ metadata }) => metadata.name)).toEqual(['new'])
    expect([...informer.byNamespace(namespace)]).toEqual([get('new')])
    expect([...informer.byNamespace('other')]).toEqual([])
    expect(get('new')?.metadata).not.toHaveProperty('managedFields')
  })

  test('an informer reports an object that no longer matches the selector as removed', async () => {
    const namespace = await freshNamespace(kube)
    const api = clientOf(kube)
    const { informer, notified } = watching({ api, type: configMaps, selection: { namespace, labelSelector: 'app=x' } })
    await informer.synced
    await api.create(configMaps, configMap('one', { namespace, value: '1', labels: { app: 'x' } }), signal)
    await api.patch(configMaps, { namespace, name: 'one' }, { metadata: { labels: { app: 'y' } } }, signal)
    await api.patch(configMaps, { namespace, name: 'one' }, { metadata: { labels: { app: 'x' } } }, signal)
    await until(() => notified.length === 3)
    expect(notified).toEqual(['+one=1', '-one', '+one=1'])
  })

  test('an informer continues at the same position after its watch was cut', async () => {
    const { notified, lists, proxy, write, remove } = await far()
    proxy.cut()
    await write('new', '1')
    await write('gone', '1')
    await remove('gone')
    await remove('old')
    proxy.resume()
    await until(() => notified.includes('-old'))
    expect(notified).toEqual(['+old=0', '+new=1', '+gone=1', '-gone', '-old'])
    expect(lists).toEqual([1])
  })

  test('an informer continues at the same position after its watch stopped delivering', async () => {
    const { informer, notified, lists, proxy, write } = await far({ silenceMs: 1000 })
    await write('first', '1')
    await until(() => notified.length === 2)
    proxy.stall()
    await write('new', '1')
    await until(() => informer.state.is === 'waiting')
    expect(informer.state).toMatchObject({ error: { reason: 'unavailable' } })
    proxy.cut()
    proxy.resume()
    await until(() => notified.includes('+new=1'))
    expect([notified, lists]).toEqual([['+old=0', '+first=1', '+new=1'], [1]])
  })

  test('an informer continues at the same position after the API server was killed', async () => {
    const { informer, notified, lists, write } = await far()
    await kube.apiserver.kill()
    await until(() => informer.state.is === 'waiting')
    await kube.apiserver.restart()
    await write('new', '1')
    await until(() => notified.includes('+new=1'))
    expect([notified, lists]).toEqual([['+old=0', '+new=1'], [1]])
  })

  test('an informer lists again after its version expired, and reports additions, changes and removals in between', async () => {
    const { informer, notified, lists, proxy, get, write, remove } = await far()
    await write('left', '1')
    await write('made-again', '1')
    await until(() => notified.length === 3)
    const uid = get('made-again')?.metadata.uid
    const replaced: (KubeObject | undefined)[] = []
    informer.onChange((before, after) => void (after?.metadata.name === 'made-again' && replaced.push(before, after)))
    proxy.cut()
    await remove('made-again')
    await write('made-again', '2')
    await write('new', '1')
    await write('left', '2')
    await remove('old')
    await kube.apiserver.kill()
    await compact(kube)
    await kube.apiserver.restart()
    proxy.resume()
    await until(() => lists.length === 2)
    expect(notified.slice(3).sort()).toEqual(['+new=1', '-old', '~left=2', '~made-again=2'])
    expect(replaced.map((object) => object?.metadata.uid)).toEqual([uid, get('made-again')?.metadata.uid])
    expect(get('made-again')?.metadata.uid).not.toBe(uid)
    await write('last', '1')
    await until(() => notified.includes('+last=1'))
    expect(lists).toEqual([1, 3])
  })

  test('an informer waits for a type that does not exist, and again after the type is removed', async () => {
    const things: ObjectType = { group: 'test.taproot.dev', version: 'v1', kind: 'Thing', plural: 'things', namespaced: true }
    const api = clientOf(kube)
    const { informer, notified, states } = watching({ api, type: things })
    await until(() => informer.state.is === 'absent')
    for (const round of ['first', 'second']) {
      await kube.kubectl(['apply', '-f', '-'], definitionOf(things))
      await until(() => informer.state.is === 'watching')
      await informer.synced
      await kube.kubectl(['wait', '--for=condition=Established', `crd/things.${things.group}`])
      await api.create(things, { metadata: { name: round, namespace: 'default' } }, signal)
      await until(() => informer.get({ namespace: 'default', name: round }) !== undefined)
      await kube.kubectl(['delete', 'crd', `things.${things.group}`])
      await until(() => informer.state.is === 'absent')
    }
    expect(notified.filter((text) => text.startsWith('+'))).toEqual(['+first=undefined', '+second=undefined'])
    // A server that is slow to remove a type may serve it again.
    expect(states.filter((state) => state === 'absent').length).toBeGreaterThanOrEqual(3)
  })

  test('an informer contains the result of its own call at once, and prefers newer states', async () => {
    const { informer, notified, proxy, get, write, remove } = await far()
    const first = await write('mine', '1')
    await until(() => notified.includes('+mine=1'))
    proxy.stall()
    const second = await write('mine', '2')
    const other = await write('other', '1')
    informer.observe(second)
    informer.observe(first)
    informer.observe(other)
    expect([valueOf(get('mine')), valueOf(get('other'))]).toEqual(['2', '1'])
    expect(get('other')?.metadata).not.toHaveProperty('managedFields')
    await remove('other')
    proxy.resume()
    await until(() => get('other') === undefined)
    informer.observe(other)
    expect(get('other')).toBeUndefined()
    expect(notified).toEqual(['+old=0', '+mine=1', '~mine=2', '+other=1', '-other'])
  })

  test('an informer keeps the version of a quiet watch recent through bookmarks', async () => {
    // The API server sends a bookmark each minute, and two seconds before a watch ends.
    const { informer, write, near, namespace } = await far({ watchSeconds: { least: 10, most: 10 } })
    await write('new', '1')
    await until(() => informer.size === 2)
    const before = informer.state
    const elsewhere = await freshNamespace(kube)
    await near.create(configMaps, configMap('unseen', { namespace: elsewhere }), signal)
    const { resourceVersion } = await near.list(configMaps, { namespace, limit: 1 }, signal)
    await until(() => informer.state.is === 'watching' && before.is === 'watching' && informer.state.resourceVersion !== before.resourceVersion, 150_000)
    expect(informer.state).toMatchObject({ is: 'watching' })
    expect(Number((informer.state as { resourceVersion: string }).resourceVersion)).toBeGreaterThanOrEqual(Number(resourceVersion))
  })

  test("an informer ends with the server's state and never goes back, whatever the network faults", async () => {
    const { informer, proxy, namespace, near, write, remove } = await far({ silenceMs: 500 })
    const replayed = new Map(Array.from(informer.list(), (object) => [object.metadata.name, object]))
    const wrong: string[] = []
    informer.onChange((before, after) => {
      const name = (after ?? before)?.metadata.name ?? ''
      if (replayed.get(name) !== before) wrong.push(`${name}: it had another one before`)
      if (Number(after?.metadata.resourceVersion ?? Infinity) <= Number(before?.metadata.resourceVersion ?? 0)) wrong.push(`${name} went back`)
      if (after === undefined) replayed.delete(name)
      else replayed.set(name, after)
    })
    const pick = (count: number): number => (random.bytes(1)[0] ?? 0) % count
    for (let step = 0; step < 300; step++) {
      const name = `n${pick(10)}`
      if (pick(3) === 0) await remove(name)
      else {
        const written = await write(name, String(step))
        if (pick(2) === 0) informer.observe(written)
      }
      if (step % 20 === 0) [() => proxy.cut(), () => proxy.stall(), () => proxy.resume()][pick(3)]?.()
    }
    proxy.cut()
    proxy.resume()
    await write('last', 'last')
    await until(() => informer.get({ namespace, name: 'last' }) !== undefined, 60_000)
    const { items } = await near.list(configMaps, { namespace, limit: 500 }, signal)
    const versions = (objects: Iterable<KubeObject>): string[] => Array.from(objects, ({ metadata }) => `${metadata.name}@${metadata.resourceVersion}`).sort()
    expect(versions(informer.list())).toEqual(versions(items))
    expect(versions(replayed.values())).toEqual(versions(items))
    expect(wrong).toEqual([])
  })

  test('an informer reads many objects in parts', async () => {
    const api = clientOf(kube)
    const namespace = await freshNamespace(kube)
    const parts = campaignLength({ short: 4, full: 20 })
    const names = Array.from({ length: 500 * parts }, (_, index) => `object-${index}`).values()
    const lane = async (): Promise<void> => {
      for (const name of names) await api.create(configMaps, configMap(name, { namespace, value: name }), signal)
    }
    await Promise.all(Array.from({ length: 32 }, lane))
    const limits: number[] = []
    const list: KubeApi['list'] = async (...args) => {
      const page = await api.list(...args)
      limits.push(page.items.length)
      return page
    }
    const startedAt = performance.now()
    const { informer, lists } = watching({ api: { list, watch: api.watch.bind(api) }, type: configMaps, selection: { namespace } })
    await informer.synced
    expect([informer.size, lists, limits]).toEqual([500 * parts, [500 * parts], Array.from({ length: parts }, () => 500)])
    expect(performance.now() - startedAt).toBeLessThan(60_000)
  })
})

test('ignores states older than those it has', async () => {
  const api = scripted(
    [[at('10', 'a')]],
    [
      [
        { type: 'modified', object: at('10', 'a', 'late') },
        { type: 'deleted', object: at('12', 'b') },
        { type: 'added', object: at('13', 'c') },
      ],
    ],
  )
  const { informer, notified } = watching({ api, type: configMaps })
  await until(() => informer.size === 2)
  informer.observe(at('9', 'a', 'older'))
  informer.observe(at('13', 'a', 'the watch is past it'))
  informer.observe(at('14', 'a'))
  informer.observe(at('9', 'd', 'gone meanwhile'))
  expect(notified).toEqual(['+a=10', '+c=13', '~a=14'])
})

test('lists again from a server that was restored from a backup, and accepts its state', async () => {
  const api = scripted(
    [[at('90', 'a'), at('100', 'b')], [at('50', 'a')]],
    [
      [
        { type: 'bookmark', resourceVersion: '110' },
        { type: 'bookmark', resourceVersion: '60' },
      ],
    ],
  )
  const { notified, lists } = watching({ api, type: configMaps })
  await until(() => lists.length === 2)
  expect(notified).toEqual(['+a=90', '+b=100', '-b', '~a=50'])
  await until(() => api.asked.length === 2)
  expect(api.asked).toEqual(['100', '50'])
})

/** Returns the custom resource definition of a type without constraints. */
function definitionOf({ group, version, kind, plural }: ObjectType): string {
  const schema = { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } }
  return JSON.stringify({
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { kind, plural, singular: kind.toLowerCase() },
      versions: [{ name: version, served: true, storage: true, schema }],
    },
  })
}
