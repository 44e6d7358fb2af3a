import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { RecordBufferPool, type PooledBuffer, type BufferItem } from '../../src/cache/records/record-buffer-pool.ts'
import { picker } from './records.ts'

class Item implements BufferItem {
  readonly length: number
  readonly content: Buffer
  pooled: PooledBuffer | undefined
  offset = 0
  index = -1
  moves = 0

  constructor(content: Buffer) {
    this.content = content
    this.length = content.length
  }

  place(pooled: PooledBuffer, offset: number, index: number): void {
    if (this.pooled !== undefined && this.pooled !== pooled) this.moves += 1
    this.pooled = pooled
    this.offset = offset
    this.index = index
  }

  /** The bytes at the position of the item. */
  get stored(): Buffer | undefined {
    return this.pooled?.buffer.subarray(this.offset, this.offset + this.length)
  }
}

describe('RecordSlabs', () => {
  test('after most records are removed, the remaining ones are copied together and the memory is freed', () => {
    const bufferPool = new RecordBufferPool()
    const staying: Item[] = []
    for (let round = 0; round < 100; round++) {
      const lasting = new Item(Buffer.alloc(600, round))
      bufferPool.put(lasting, lasting.content)
      staying.push(lasting)
      for (let passing = 0; passing < 500; passing++) {
        const item = new Item(Buffer.alloc(600))
        bufferPool.put(item, item.content)
        if (item.pooled !== undefined) bufferPool.release(item.pooled, item)
      }
    }
    const held = new Set(staying.map((item) => item.pooled))
    expect([...held].reduce((sum, pooled) => sum + (pooled?.buffer.length ?? 0), 0)).toBeLessThan(1024 * 1024)
    for (const item of staying) expect(item.stored?.equals(item.content)).toBe(true)
  })

  test('each item keeps its bytes through any changes, in at most twice the memory of the bytes in use', () => {
    fc.assert(
      fc.property(fc.integer(), fc.constantFrom(100, 2_000, 60_000), (seed, size) => {
        const pick = picker(seed)
        const bufferPool = new RecordBufferPool()
        const live: Item[] = []
        for (let step = 0; step < 4_000; step++) {
          // At first more items are added than removed, later the reverse.
          if (live.length === 0 || pick(4) < (step < 2_000 ? 3 : 1)) {
            const item = new Item(Buffer.alloc(1 + pick(size), pick(256)))
            bufferPool.put(item, item.content)
            live.push(item)
          } else {
            const [gone] = live.splice(pick(live.length), 1)
            if (gone?.pooled === undefined) throw new Error('never placed')
            bufferPool.release(gone.pooled, gone)
            expect(gone.stored?.equals(gone.content), 'what went can still be read by who holds it').toBe(true)
          }
        }
        const inUse = new Set(live.map(({ pooled }) => pooled))
        expect(live.every((item) => item.stored?.equals(item.content))).toBe(true)
        for (const pooled of inUse) expect(pooled?.items.length).toBe(live.filter((item) => item.pooled === pooled).length)
        const held = [...inUse].reduce((sum, pooled) => sum + (pooled?.buffer.length ?? 0), 0)
        const needed = live.reduce((sum, item) => sum + item.length, 0)
        // The newest slabs may be nearly empty.
        expect(held).toBeLessThanOrEqual(2.5 * needed + 3 * 256 * 1024)
      }),
      { numRuns: 20 },
    )
  })

  test('repeated replacements leak no memory, and seldom move neighbouring items', () => {
    const bufferPool = new RecordBufferPool()
    const fresh = (): Item => {
      const item = new Item(Buffer.alloc(100, 1))
      bufferPool.put(item, item.content)
      return item
    }
    const lasting = Array.from({ length: 2_000 }, fresh)
    let current = fresh()
    for (let round = 0; round < 100_000; round++) {
      if (current.pooled === undefined) throw new Error('never placed')
      bufferPool.release(current.pooled, current)
      current = fresh()
    }
    const all = [...lasting, current]
    expect(new Set(all.map(({ pooled }) => pooled)).size).toBeLessThan(6)
    expect(Math.max(...lasting.map(({ moves }) => moves))).toBeLessThan(8)
  })
})
