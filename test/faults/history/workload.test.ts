import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { startTestServer } from '../../harness/test-server.ts'
import { describeOnStores } from '../../parts/require-part.ts'
import { checkHistory } from './check-history.ts'
import { finalAudit } from './final-audit.ts'
import { History } from './history.ts'
import { startWorkload } from './workload.ts'

describeOnStores('a healthy server', (store) => {
  test('does all that the workload asks for, and the checker explains it', { timeout: 60_000 }, async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const history = new History()
    const workload = startWorkload({
      endpoints: [`http://127.0.0.1:${server.config.api.port}`],
      token: () => server.operatorToken(),
      seed: 1,
      clients: 8,
      history,
    })
    await delay(5_000)
    const summary = await workload.stop()
    await workload.settle()
    const report = await finalAudit({ store: server.running.engine.store, history })
    console.log(report)
    expect(report.faults).toEqual([])
    console.log(summary)
    const t = performance.now()
    const verdict = await checkHistory(history)
    console.log(performance.now() - t, history.operations.length, JSON.stringify(verdict).slice(0, 3000))
    expect(verdict).toMatchObject({ ok: true, failures: [], unknown: [] })
  })
})
