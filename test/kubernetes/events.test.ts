import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { KubeApi, KubeObject } from '../../src/kubernetes/kube-api.ts'
import { objectTypes } from '../../src/kubernetes/object-types.ts'
import { createEventRecorder, type EventRecorder, type ObjectEvent } from '../../src/kubernetes/runtime/events.ts'
import { systemTimers, type Timers } from '../../src/base/timing.ts'
import { startKube, type Kube } from '../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { silentLog, until } from '../store/store-harness.ts'
import { clientOf, configMap, configMaps, freshNamespace, proxyTo, random, signal } from './kube-bench.ts'

/** Returns timers that run `factor` times as fast. */
function fast(factor: number): Timers {
  return { now: () => systemTimers.now() * factor, start: (ms, ring) => systemTimers.start(ms / factor, ring) }
}

interface Bench {
  readonly recorder: EventRecorder
  /** Returns the number of dropped events. */
  dropped(): number
  stop(): Promise<void>
}

/** A running recorder; stopped after the test. */
function recording(api: Pick<KubeApi, 'create' | 'patch'>, timers: Timers = systemTimers): Bench {
  let dropped = 0
  const recorder = createEventRecorder({
    api,
    controller: 'taproot.dev/test',
    instance: 'pod-1',
    clock: { now: () => Date.now() },
    log: silentLog,
    random,
    timers,
    onDropped: (count) => (dropped += count),
  })
  const stopping = new AbortController()
  const running = recorder.run(stopping.signal)
  const stop = (): Promise<void> => {
    stopping.abort()
    return running
  }
  onTestFinished(stop)
  return { recorder, dropped: () => dropped, stop }
}

/** The series of an Event. */
function countOf(event: KubeObject | undefined): number | undefined {
  return (event?.['series'] as { readonly count: number } | undefined)?.count // a cast: the API server checks Events
}

describeWithPart('kube-apiserver', 'the recorder of Kubernetes Events', () => {
  let kube: Kube

  beforeAll(async () => void (kube = await startKube()))
  afterAll(() => kube?.stop())

  /** Creates a namespace with an object, and returns its Events. */
  async function place() {
    const api = clientOf(kube)
    const namespace = await freshNamespace(kube)
    const { metadata } = await api.create(configMaps, configMap('subject', { namespace }), signal)
    const event = (more: Partial<ObjectEvent> = {}): ObjectEvent => ({
      ...{ type: configMaps, metadata, severity: 'Warning', reason: 'NotGranted', action: 'Reconcile', note: 'no grant covers it' },
      ...more,
    })
    const events = async (): Promise<readonly KubeObject[]> => (await api.list(objectTypes.event, { namespace, limit: 500 }, signal)).items
    return { api, namespace, event, events }
  }

  test('the recorder of Kubernetes Events writes what kubectl describe shows', async () => {
    const { api, namespace, event, events } = await place()
    const { recorder } = recording(api)
    recorder.record(event())
    await until(async () => (await events()).length === 1)
    const [written] = await events()
    expect(written).toMatchObject({
      reason: 'NotGranted',
      action: 'Reconcile',
      note: 'no grant covers it',
      type: 'Warning',
      reportingController: 'taproot.dev/test',
      reportingInstance: 'pod-1',
      regarding: { apiVersion: 'v1', kind: 'ConfigMap', namespace, name: 'subject', uid: event().metadata.uid },
    })
    expect(await kube.kubectl(['describe', 'configmap', 'subject', '-n', namespace])).toMatch(/Warning +NotGranted .*no grant covers it/)
  })

  test('the recorder of Kubernetes Events counts repetitions in one Event, and writes others separately', async () => {
    const { api, event, events } = await place()
    const { recorder } = recording(api, fast(200))
    recorder.record(event())
    await until(async () => (await events()).length === 1)
    for (let i = 0; i < 5; i++) recorder.record(event())
    await until(async () => countOf((await events())[0]) === 6)
    recorder.record(event({ reason: 'RefNotFound' }))
    recorder.record(event({ note: 'another one' }))
    await until(async () => (await events()).length === 3)
    for (let i = 0; i < 4; i++) recorder.record(event())
    await until(async () => (await events()).some((written) => countOf(written) === 10))
    expect((await events()).map(countOf).toSorted()).toEqual([10, undefined, undefined])
  })

  test('the recorder of Kubernetes Events updates a repeated Event at most once a minute', async () => {
    const { api, event, events } = await place()
    const { recorder, stop } = recording(api)
    recorder.record(event())
    await until(async () => (await events()).length === 1)
    recorder.record(event())
    recorder.record(event({ reason: 'Other' }))
    await until(async () => (await events()).length === 2)
    expect((await events()).map(countOf)).toEqual([undefined, undefined])
    await stop()
    expect((await events()).map(countOf).toSorted()).toEqual([2, undefined])
  })

  test('the recorder of Kubernetes Events creates a new Event if the API server has removed the first', async () => {
    const { api, namespace, event, events } = await place()
    const { recorder } = recording(api, fast(200))
    recorder.record(event())
    await until(async () => (await events()).length === 1)
    await kube.kubectl(['delete', 'events', '--all', '-n', namespace])
    recorder.record(event())
    await until(async () => countOf((await events())[0]) === 2)
  })

  test('the recorder of Kubernetes Events writes events of cluster-scoped objects, with long names and long notes', async () => {
    const { api, namespace, event, events } = await place()
    const { recorder } = recording(api)
    const metadata = { name: namespace, uid: 'u', resourceVersion: '1' }
    recorder.record(event({ type: objectTypes.namespace, metadata }))
    recorder.record(event({ metadata: { ...event().metadata, name: `${'a'.repeat(230)}.${'b'.repeat(22)}` }, note: 'ä'.repeat(2000) }))
    await until(async () => (await events()).length === 1)
    const note = String((await events())[0]?.['note'])
    expect(Buffer.byteLength(note)).toBeLessThanOrEqual(1024)
    expect(note).toMatch(/^ä+.?\.\.\.$/u)
    await until(async () => (await kube.kubectl(['get', 'events', '-n', 'default', '-o', 'name'])).includes(`event/${namespace}.`))
  })

  test('the recorder of Kubernetes Events retries while the API server is down, without blocking its callers', async () => {
    const { event, events } = await place()
    const proxy = await proxyTo(kube)
    const far = clientOf(kube, { port: proxy.port })
    let attempts = 0
    const create: KubeApi['create'] = (...args) => {
      attempts++
      return far.create(...args)
    }
    const { recorder, dropped } = recording({ create, patch: far.patch.bind(far) }, fast(10))
    proxy.cut()
    recorder.record(event())
    await until(() => attempts >= 2)
    expect(await events()).toEqual([])
    proxy.resume()
    await until(async () => (await events()).length === 1)
    expect(dropped()).toBe(0)
  })

  test('the recorder of Kubernetes Events drops an event that the API server refuses, and continues', async () => {
    const { api, event, events } = await place()
    const { recorder, dropped } = recording(api)
    recorder.record(event({ metadata: { ...event().metadata, namespace: 'not-there' } }))
    recorder.record(event())
    await until(async () => (await events()).length === 1)
    expect(dropped()).toBe(1)
  })

  test('the recorder of Kubernetes Events keeps at most 1,000 waiting events, and 20 of one object', async () => {
    const { event, events } = await place()
    const proxy = await proxyTo(kube)
    proxy.stall()
    const { recorder, dropped, stop } = recording(clientOf(kube, { port: proxy.port }))
    for (let i = 0; i < 100; i++) recorder.record(event({ note: `note ${i}` }))
    expect(dropped()).toBe(80)
    for (let i = 0; i < 2_000; i++) recorder.record(event({ metadata: { ...event().metadata, uid: `u${i}` } }))
    expect(dropped()).toBe(80 + 2_000 - 980)
    const startedAt = performance.now()
    await stop()
    expect(performance.now() - startedAt).toBeLessThan(5_000)
    expect(await events()).toEqual([])
  })
})
