import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { startTestServer } from '../support/test-server.ts'
import { startEtcd } from '../support/parts/etcd.ts'
import { describeWithPart } from '../support/parts/require-part.ts'

/** Maximum time of a stop in milliseconds. */
const stopMs = 5_000

describeWithPart('etcd', 'the stop of a server', () => {
  test.each([
    ['at once', false],
    ['when the outage has been noticed', true],
  ])('a leader without its store stops within 5 s, %s', async (_when, noticed) => {
    const etcd = await startEtcd()
    onTestFinished(() => etcd.stop())
    const server = await startTestServer({ store: 'etcd', etcd })
    const { store } = server.running.engine
    const signal = AbortSignal.timeout(60_000)
    while ((await store.range({ prefix: 'x/elect/', limit: 1 }, signal)).entries.length === 0) await delay(25)
    await etcd.members[0]?.kill()
    // The leader's work fails, and the leader gives up its leadership to a store that does not answer.
    while (noticed && !server.logs.some(({ message }) => message === 'the watch ended')) await delay(25, undefined, { signal })
    const startedAt = performance.now()
    await server.stop()
    expect(performance.now() - startedAt).toBeLessThan(stopMs)
  })
})
