import { expect, test } from 'vitest'
import { answeredError } from '../../../src/kubernetes/client/kube-errors.ts'
import { KubeError, type WatchEvent } from '../../../src/kubernetes/kube-api.ts'
import { FakeTimers, settled } from '../../support/fake-timers.ts'
import { at, scripted, watching } from './informer-bench.ts'
import { configMaps } from '../kube-bench.ts'

/** Randomness that makes each wait as long as possible. */
const full = { bytes: (count: number) => new Uint8Array(count).fill(255) }

test('an informer retries after growing delays, never before a requested delay, and at once after it received an event', async () => {
  const timers = new FakeTimers()
  const failure = new KubeError('unavailable', 'down')
  const notified: WatchEvent = { type: 'bookmark', resourceVersion: '5' }
  const api = scripted(
    [failure, failure, new KubeError('throttled', 'slow', { retryAfterMs: 20_000 }), [at('3', 'a')]],
    [[failure], [notified, failure], ['end'], [{ ...notified, resourceVersion: '6' }, 'end'], []],
  )
  const { informer } = watching({ api, type: configMaps, timers, random: full })
  const waits: number[] = []
  for (let i = 0; i < 6; i++) {
    await settled()
    waits.push(Math.round(timers.nextInMs ?? 0))
    await timers.pass(timers.nextInMs ?? 0)
  }
  expect(waits).toEqual([250, 500, 20_000, 250, 250, 500])
  expect(informer.state).toEqual({ is: 'watching', resourceVersion: '6' })
  expect(api.asked).toEqual(['3', '3', '5', '5', '6'])
})

const down = new KubeError('unavailable', 'down')
const expired = new KubeError('expired', 'too old')

test.each([
  {
    title: 'continues within a second of the end of a long outage',
    watches: [...Array.from({ length: 20 }, () => [down]), []],
    waits: [250, 500, ...Array.from({ length: 18 }, () => 1000)],
    lists: [1],
  },
  {
    title: 'lists again at once if its version expired during an outage',
    watches: [[down], [down], [down], [expired], []],
    waits: [250, 500, 1000],
    lists: [1, 1],
  },
  {
    title: 'lists again at once whenever its version expires, also after another failure',
    watches: [[expired], [down], [expired], []],
    waits: [250],
    lists: [1, 1, 1],
  },
  {
    title: 'waits before the third list if each new version expires',
    watches: [[expired], [expired], [expired], []],
    waits: [1000, 2000],
    lists: [1, 1, 1, 1],
  },
  {
    title: 'starts with short delays again after a starting server refused it',
    watches: [...Array.from({ length: 9 }, () => [down]), [new KubeError('forbidden', 'no roles yet')], []],
    waits: [250, 500, ...Array.from({ length: 7 }, () => 1000), 500],
    lists: [1],
  },
])('an informer $title', async ({ watches, waits, lists }) => {
  const timers = new FakeTimers()
  const object = at('3', 'a')
  const api = scripted(
    lists.map(() => [object]),
    watches,
  )
  const bench = watching({ api, type: configMaps, timers, random: full })
  const waited: number[] = []
  while (api.asked.length < watches.length) {
    await settled()
    if (bench.informer.state.is !== 'waiting') continue
    const ms = timers.nextInMs ?? 0
    waited.push(Math.round(ms))
    await timers.pass(ms)
  }
  expect({ waited, lists: bench.lists }).toEqual({ waited: waits, lists })
})

test.each([
  { title: 'the requested delay of a busy server is obeyed', code: 429, body: '', retryAfterMs: 7000 },
  { title: 'the requested delay of a starting server is ignored', code: 503, body: '', retryAfterMs: undefined },
  {
    title: 'the requested delay in the status of a starting server is ignored',
    code: 503,
    body: JSON.stringify({ kind: 'Status', code: 503, reason: 'ServiceUnavailable', details: { retryAfterSeconds: 5 } }),
    retryAfterMs: undefined,
  },
])('$title', ({ code, body, retryAfterMs }) => {
  expect(answeredError(code, body, '7')).toMatchObject({ retryAfterMs })
})
