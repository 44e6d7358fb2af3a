import { expect, onTestFinished, test } from 'vitest'
import { TaskThread } from '../../src/base/task-thread.ts'
import type { SlowTask } from './slow-worker.ts'

const signal = new AbortController().signal

function startThread(): TaskThread<SlowTask> {
  const thread = new TaskThread<SlowTask>(new URL('slow-worker.ts', import.meta.url), undefined)
  onTestFinished(() => thread.close())
  return thread
}

test('a thread answers tasks, and rejects with their errors', async () => {
  const thread = startThread()
  expect(thread.isIdle).toBe(true)
  expect(await thread.ask({ name: 'one' })).toBe('one')
  await expect(thread.ask({ name: 'two', fails: true })).rejects.toThrow('two failed')
  await expect(thread.ask({ name: 'three', fails: true }, { key: 'a', signal })).rejects.toThrow('three failed')
  expect(thread.isIdle).toBe(false)
})

test('tasks of one key wait for each other, and those of another key for at most one of them', async () => {
  const thread = startThread()
  const ended: unknown[] = []
  const ask = async (name: string, key: string): Promise<void> => void ended.push(await thread.ask({ name, waitMs: 5 }, { key, signal }))
  await Promise.all([...['a1', 'a2', 'a3', 'a4'].map((name) => ask(name, 'a')), ask('b1', 'b'), ask('b2', 'b')])
  expect(ended).toEqual(['a1', 'a2', 'b1', 'a3', 'b2', 'a4'])
})

test('a task is not sent if its caller left while it waited', async () => {
  const thread = startThread()
  const leaving = new AbortController()
  const first = thread.ask({ name: 'first', waitMs: 50 }, { key: 'a', signal })
  const left = thread.ask({ name: 'left', ends: true }, { key: 'a', signal: leaving.signal })
  leaving.abort(new Error('the caller left'))
  await expect(left).rejects.toThrow('the caller left')
  expect(await first).toBe('first')
  expect(await thread.ask({ name: 'next' }, { key: 'a', signal })).toBe('next')
})

test('more than 100 waiting tasks of a key are refused with code 8, and other keys go on', async () => {
  const thread = startThread()
  const tasks = Array.from({ length: 101 }, (_, at) => thread.ask({ name: `${at}` }, { key: 'a', signal }))
  await expect(thread.ask({ name: 'too many' }, { key: 'a', signal })).rejects.toMatchObject({ code: 8, reason: 'RATE_LIMITED' })
  expect(await thread.ask({ name: 'other' }, { key: 'b', signal })).toBe('other')
  expect(await Promise.all(tasks)).toHaveLength(101)
})

test('if the thread ends, its tasks reject, and a later task gets a new thread', async () => {
  const thread = startThread()
  const [ended, waiting] = [thread.ask({ name: 'end', ends: true }, { key: 'a', signal }), thread.ask({ name: 'next' }, { key: 'a', signal })]
  await expect(ended).rejects.toThrow('the thread ended')
  expect(await waiting).toBe('next')
})

test('close lets all tasks end, and later ones reject', async () => {
  const thread = startThread()
  const tasks = ['a', 'b', 'a'].map((key) => thread.ask({ name: key, waitMs: 5 }, { key, signal }))
  await thread.close()
  expect(await Promise.all(tasks)).toEqual(['a', 'b', 'a'])
  await expect(thread.ask({ name: 'late' })).rejects.toThrow('closed')
})
