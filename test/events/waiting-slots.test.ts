import { expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { WaitingSlots } from '../../src/events/delivery/waiting-slots.ts'

const first = trustedUid('a'.repeat(40))
const second = trustedUid('b'.repeat(40))
const never = new AbortController().signal

/** Takes slots, and notes the order in which callers get them. */
function ground(limits: { each: number; all: number }) {
  const slots = new WaitingSlots(limits)
  const got: string[] = []
  const frees = new Map<string, () => void>()
  const take = (name: string, root: typeof first, signal = never): Promise<void> =>
    slots.take(root, signal).then((free) => {
      got.push(name)
      frees.set(name, free)
    })
  const free = async (name: string): Promise<void> => {
    frees.get(name)?.()
    await new Promise(setImmediate)
  }
  return { got, take, free }
}

test('a freed slot goes to one waiting caller; callers of one organisation are served in order', async () => {
  const { got, take, free } = ground({ each: 1, all: 10 })
  await take('first', first)
  void take('second', first)
  void take('third', first)
  await free('first')
  expect(got).toEqual(['first', 'second'])
  await free('second')
  expect(got).toEqual(['first', 'second', 'third'])
})

test('organisations take turns, however many waiting callers one of them has', async () => {
  const { got, take, free } = ground({ each: 2, all: 2 })
  await take('a1', first)
  await take('a2', first)
  void take('a3', first)
  void take('a4', first)
  // An organisation without a slot gets one at once.
  await take('b1', second)
  void take('b2', second)
  await free('b1')
  await free('a1')
  await free('a2')
  await free('b2')
  expect(got).toEqual(['a1', 'a2', 'b1', 'b2', 'a3', 'a4'])
})

test('a caller that gives up does not take a slot', async () => {
  const { got, take, free } = ground({ each: 1, all: 10 })
  const end = new AbortController()
  await take('first', first)
  const given = take('second', first, end.signal)
  void take('third', first)
  end.abort(new Error('enough'))
  await expect(given).rejects.toThrow('enough')
  await free('first')
  expect(got).toEqual(['first', 'third'])
})
