import { expect, test } from 'vitest'
import { ReportTurns } from '../../../src/contents/scanner-reports/report-turns.ts'

test('organisations take turns, one task at a time', async () => {
  const turns = new ReportTurns()
  const done: string[] = []
  let running = 0
  const task = (name: string) => async (): Promise<void> => {
    running += 1
    expect(running).toBe(1)
    await Promise.resolve()
    running -= 1
    done.push(name)
  }
  const taken = ['a1', 'a2', 'a3', 'b1', 'c1'].map((name) => turns.take(name.charAt(0), task(name)))
  const failed = turns.take('b', () => Promise.reject(new Error('failed')))
  await expect(failed).rejects.toThrow('failed')
  await Promise.all(taken)
  expect(done).toEqual(['a1', 'a2', 'b1', 'c1', 'a3'])
  await turns.close()
})

test('an organisation has a limited number of tasks, and the end aborts all', async () => {
  const turns = new ReportTurns()
  const started = Promise.withResolvers<undefined>()
  const endless = turns.take('a', (signal) => {
    started.resolve(undefined)
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))))
  })
  await started.promise
  const waiting = Array.from({ length: 100 }, () => turns.take('a', () => Promise.resolve('done')))
  await expect(turns.take('a', () => Promise.resolve('done'))).rejects.toThrow('too many tasks wait')
  const other = turns.take('b', () => Promise.resolve('done'))
  const results = Promise.allSettled([endless, ...waiting, other])
  await turns.close()
  expect((await results).map(({ status }) => status)).toEqual(Array(102).fill('rejected'))
  await expect(turns.take('b', () => Promise.resolve('done'))).rejects.toThrow('the turns ended')
})
