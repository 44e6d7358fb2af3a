import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import { EventLog } from '../../src/engine/log/event-log.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { freshName, ok, startTestServer } from '../support/test-server.ts'

describeOnStores('the event log', (store) => {
  test('the event log shows an event only once the records in memory contain its commit', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { engine } = server.running
    let memory = Promise.withResolvers<void>()
    let asked = 0
    const remembered = (): Promise<void> => {
      asked += 1
      return memory.promise
    }
    const stop = new AbortController()
    const log = new EventLog({ store: engine.store, log: engine.services.log, remembered })
    const loading = log.load(stop.signal)
    await vi.waitFor(() => expect(asked).toBe(1))
    expect(log.loadedAt).toBeUndefined()
    memory.resolve()
    await loading

    memory = Promise.withResolvers()
    const following = log.follow(stop.signal).catch(() => undefined)
    const seen: string[] = []
    log.onAppend(({ subject }) => seen.push(subject))
    const { uid } = ok(await server.rest.call('CreateGroup', { group: { name: freshName('root') } }, { token: await server.operatorToken() }))
    await vi.waitFor(() => expect(asked).toBeGreaterThan(1))
    await delay(50)
    expect(seen).toEqual([])
    memory.resolve()
    await vi.waitFor(() => expect(seen).toContain(uid))
    stop.abort()
    await following
  })
})
