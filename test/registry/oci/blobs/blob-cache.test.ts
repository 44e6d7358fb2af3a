import { createHash } from 'node:crypto'
import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { systemClock } from '../../../../src/server/runtime.ts'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import type { Uid } from '../../../../src/base/uid.ts'
import { BlobCache, type SizedBlob, type AcquiredBlob } from '../../../../src/registry/oci/blobs/blob-cache.ts'
import type { BlobStream } from '../../../../src/registry/upstream/upstream.ts'

const never = new AbortController().signal
const repo = 'a'.repeat(40) as Uid // a cast: it looks like one

/** Bytes that follow from a number. */
function contentOf(number: number, size: number): Buffer {
  const block = createHash('sha256').update(String(number)).digest()
  return Buffer.concat(Array.from({ length: Math.ceil(size / block.length) }, () => block)).subarray(0, size)
}

interface Known {
  readonly name: SizedBlob
  readonly content: Buffer
}

function known(number: number, size: number): Known {
  const content = contentOf(number, size)
  return { name: { repo, digest: digestOf(content), size }, content }
}

/** A cache over blobs whose arrival the test controls. */
class Scene {
  nowMs = 1_000_000
  readonly bodies: { readonly digest: Digest; readonly body: PassThrough }[] = []
  /** A blob that could not be read while a client waited. */
  readonly failures: Digest[] = []
  readonly cache: BlobCache
  /** When reads begin. */
  reading: Promise<unknown> = Promise.resolve()

  constructor(maxBytes: number) {
    const read = async ({ digest, size }: SizedBlob): Promise<BlobStream> => {
      const body = new PassThrough()
      this.bodies.push({ digest, body })
      await this.reading
      return { size, body }
    }
    this.cache = new BlobCache({ maxBytes, clock: { now: () => this.nowMs }, read, failed: ({ digest }) => this.failures.push(digest) })
  }

  /** Asks twice, and returns the second answer. */
  bring({ name }: Known): AcquiredBlob {
    this.cache.acquire(name)
    const acquired = this.cache.acquire(name)
    if (acquired === undefined) throw new Error('there is no room')
    return acquired
  }

  /** Asks for the whole blob, and reads it if it is lent. */
  async ask({ name, content }: Known): Promise<'lent' | 'streamed'> {
    const before = this.bodies.length
    const acquired = this.cache.acquire(name)
    if (acquired === undefined) return 'streamed'
    this.bodies[before]?.body.end(content)
    expect(await readAll(acquired, name.size)).toEqual(content)
    acquired.release()
    return 'lent'
  }
}

async function readAll({ blob }: AcquiredBlob, size: number): Promise<Buffer> {
  const pieces: Uint8Array[] = []
  for (let at = 0; at < size; at += pieces.at(-1)?.length ?? 0) pieces.push(await blob.bytes(at, size, never))
  return Buffer.concat(pieces)
}

test('the second request loads a blob into memory, and later ones read it there', async () => {
  const scene = new Scene(1000)
  const one = known(1, 300)
  expect([await scene.ask(one), await scene.ask(one), await scene.ask(one)]).toEqual(['streamed', 'lent', 'lent'])
  expect(scene.bodies).toHaveLength(1)
  expect(scene.cache.bytes).toBe(300)
  expect(await scene.ask({ ...one, name: { ...one.name, repo: 'b'.repeat(40) as Uid } }), 'of another repo').toBe('streamed')
})

test('two requests far apart do not load a blob', async () => {
  const scene = new Scene(1000)
  const one = known(1, 300)
  expect(await scene.ask(one)).toBe('streamed')
  scene.nowMs += 3_600_000
  expect(await scene.ask(one)).toBe('streamed')
  scene.nowMs += 9 * 60_000
  expect(await scene.ask(one)).toBe('lent')
})

test('empty blobs, and blobs larger than half of the memory, are never cached', async () => {
  for (const [maxBytes, size] of [
    [1000, 501],
    [1000, 0],
    [0, 1],
    [0, 0],
  ] as const) {
    const scene = new Scene(maxBytes)
    for (let at = 0; at < 3; at++) expect(await scene.ask(known(1, size))).toBe('streamed')
    expect(scene.cache.bytes).toBe(0)
  }
  expect(await new Scene(1000).ask(known(1, 500))).toBe('streamed')
})

test('pulls in turn of more blobs than fit evict no cached blob', async () => {
  const scene = new Scene(1000)
  const all = Array.from({ length: 8 }, (_, number) => known(number, 300))
  const rounds: string[][] = []
  for (let round = 0; round < 5; round++) {
    const outcomes: string[] = []
    for (const one of all) outcomes.push(await scene.ask(one))
    rounds.push(outcomes)
  }
  expect(rounds[0]).toEqual(all.map(() => 'streamed'))
  for (const outcomes of rounds.slice(1)) expect(outcomes).toEqual([...['lent', 'lent', 'lent'], ...all.slice(3).map(() => 'streamed')])
  expect(scene.bodies).toHaveLength(3)
})

test('a blob without requests since the first request for another blob is evicted for it, oldest first', async () => {
  const scene = new Scene(1000)
  const [one, two, three, four] = [1, 2, 3, 4].map((number) => known(number, 300)) as [Known, Known, Known, Known]
  for (const each of [one, one, two, two, three, three]) await scene.ask(each)
  await scene.ask(one)
  expect([await scene.ask(four), await scene.ask(four)]).toEqual(['streamed', 'lent'])
  // `two` was evicted; `one` and `three` are served without a read of the upstream.
  expect([await scene.ask(one), await scene.ask(three)]).toEqual(['lent', 'lent'])
  expect(scene.bodies.map(({ digest }) => digest)).toEqual([one, two, three, four].map(({ name }) => name.digest))
  expect(scene.cache.bytes).toBe(900)
})

test('a blob that is being read is not evicted at once, and counts until its readers release it', async () => {
  const scene = new Scene(1000)
  const [one, two, three] = [1, 2, 3].map((number) => known(number, 450)) as [Known, Known, Known]
  for (const each of [one, one, two, two]) await scene.ask(each)
  const held = [one, two].map(({ name }) => scene.cache.acquire(name)) as [AcquiredBlob, AcquiredBlob]
  expect(await scene.ask(three)).toBe('streamed')
  expect(held.map((each) => each.isEvicted())).toEqual([false, false])
  expect(await scene.ask(three)).toBe('streamed')
  expect(held.map((each) => each.isEvicted())).toEqual([true, false])
  expect(await scene.ask(three), 'still').toBe('streamed')
  expect(held.map((each) => each.isEvicted())).toEqual([true, false])
  expect(await readAll(held[0], 450), 'it may take its time').toEqual(one.content)
  expect(scene.cache.bytes).toBe(900)
  for (let time = 0; time < 2; time++) held[0].release()
  expect(scene.cache.bytes).toBe(450)
  expect([await scene.ask(three), await scene.ask(two)]).toEqual(['lent', 'lent'])
  held[1].release()
  expect(scene.cache.bytes).toBe(900)
})

test('no blob is evicted if that would not free enough memory', async () => {
  const scene = new Scene(1000)
  const [one, two, three] = [known(1, 100), [known(2, 450), known(3, 450)], known(4, 300)] as const
  for (const each of [one, one, two[0], two[0], two[1], two[1]]) await scene.ask(each)
  const held = two.map(({ name }) => scene.cache.acquire(name))
  expect([await scene.ask(three), await scene.ask(three)]).toEqual(['streamed', 'streamed'])
  const before = scene.bodies.length
  expect(await scene.ask(one)).toBe('lent')
  expect(scene.bodies).toHaveLength(before)
  for (const each of held) each?.release()
})

test('requests for ranges neither load a blob nor count towards loading; a cached blob serves them', async () => {
  const scene = new Scene(1000)
  const { name, content } = known(1, 400)
  for (const [first, last] of [
    [0, 0],
    [0, 398],
    [1, 399],
  ] as const)
    for (let time = 0; time < 3; time++) expect(scene.cache.acquire(name, { first, last })).toBeUndefined()
  expect(scene.cache.acquire(name)).toBeUndefined()
  expect(scene.cache.acquire(name, { first: 0, last: 0 })).toBeUndefined()
  const all = scene.cache.acquire(name, { first: 0, last: 399 })
  expect(all).toBeDefined()
  await expect.poll(() => scene.bodies.length).toBe(1)
  expect(scene.cache.acquire(name, { first: 100, last: 399 }), 'begins where nothing is yet').toBeUndefined()
  scene.bodies[0]?.body.write(content.subarray(0, 150))
  await expect.poll(() => all?.blob.available).toBe(150)
  const part = scene.cache.acquire(name, { first: 100, last: 399 })
  expect(Buffer.from((await part?.blob.bytes(100, 400, never)) ?? [])).toEqual(content.subarray(100, 150))
  part?.release()
  all?.release()
})

test('a request during the load gets the loaded bytes, then the rest', async () => {
  const scene = new Scene(1000)
  const one = known(1, 400)
  const acquired = [scene.bring(one), scene.cache.acquire(one.name)] as [AcquiredBlob, AcquiredBlob]
  const reading = acquired.map((each) => readAll(each, 400))
  await expect.poll(() => scene.bodies.length).toBe(1)
  scene.bodies[0]?.body.write(one.content.subarray(0, 150))
  await expect.poll(() => acquired[0].blob.available).toBe(150)
  expect(Buffer.from(await acquired[1].blob.bytes(0, 400, never))).toEqual(one.content.subarray(0, 150))
  scene.bodies[0]?.body.end(one.content.subarray(150))
  expect(await Promise.all(reading)).toEqual([one.content, one.content])
  for (const each of acquired) each.release()
  expect(scene.cache.bytes).toBe(400)
})

const breaks: Readonly<Record<string, { spoil: (body: PassThrough, content: Buffer) => void; message: string; leaves: number }>> = {
  'is interrupted': {
    spoil: (body, content) => {
      body.write(content.subarray(0, 100))
      body.destroy(new Error('its own reason'))
    },
    message: 'its own reason',
    leaves: 100,
  },
  'is closed without a reason': { spoil: (body) => void body.destroy(), message: 'not read completely', leaves: 0 },
  'is too short': { spoil: (body, content) => void body.end(content.subarray(0, 399)), message: '1 bytes are missing', leaves: 399 },
  'is too long': {
    spoil: (body, content) => {
      for (const piece of [content.subarray(0, 100), content, content.subarray(0, 50)]) body.write(piece)
    },
    message: 'more bytes',
    leaves: 100,
  },
  'does not match its digest': {
    spoil: (body, content) => void body.end(Buffer.concat([content.subarray(0, 399), Buffer.of((content.at(-1) ?? 0) ^ 1)])),
    message: 'bytes that do not match',
    leaves: 0,
  },
}

test.each(Object.entries(breaks))('a body that %s fails for all its readers before the last byte, and is not cached', async (_, { spoil, message, leaves }) => {
  const scene = new Scene(1000)
  const one = known(1, 400)
  const acquired = [scene.bring(one), scene.cache.acquire(one.name)] as [AcquiredBlob, AcquiredBlob]
  const reading = Promise.allSettled(acquired.map((each) => readAll(each, 400)))
  await expect.poll(() => scene.bodies.length).toBe(1)
  spoil(scene.bodies[0]!.body, one.content)
  for (const outcome of await reading) expect(outcome).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining(message) as unknown } })
  expect(acquired[0].blob.available).toBe(leaves)
  expect(acquired[0].isEvicted()).toBe(false)
  expect(scene.failures).toEqual([one.name.digest])
  expect(await scene.ask(one), 'while a reader still has the broken one').toBe('lent')
  expect(scene.cache.bytes).toBe(800)
  for (const each of acquired) each.release()
  expect(scene.cache.bytes).toBe(400)
})

test('a body that ended before it was read fails', async () => {
  for (const reason of [new Error('its own reason'), undefined]) {
    const scene = new Scene(1000)
    const opening = Promise.withResolvers<undefined>()
    scene.reading = opening.promise
    const acquired = scene.bring(known(1, 400))
    await expect.poll(() => scene.bodies.length).toBe(1)
    const { body } = scene.bodies[0]!
    body.on('error', () => undefined).destroy(reason)
    await new Promise((resolve) => body.once('close', resolve))
    opening.resolve(undefined)
    await expect(acquired.blob.bytes(0, 400, never)).rejects.toThrow(reason?.message ?? 'not read completely')
    acquired.release()
    expect(scene.cache.bytes).toBe(0)
  }
})

test.each(['while it comes', 'before it begins'])('a load without readers stops early: %s', async (when) => {
  const scene = new Scene(1000)
  const one = known(1, 400)
  const opening = Promise.withResolvers<undefined>()
  if (when === 'before it begins') scene.reading = opening.promise
  const [first, second] = [scene.bring(one), scene.cache.acquire(one.name)]
  await expect.poll(() => scene.bodies.length).toBe(1)
  const { body } = scene.bodies[0]!
  body.write(one.content.subarray(0, 100))
  first.release()
  if (when === 'while it comes') await expect.poll(() => second?.blob.available).toBe(100)
  expect([body.destroyed, scene.cache.bytes]).toEqual([false, 400])
  second?.release()
  expect(scene.cache.bytes).toBe(0)
  opening.resolve(undefined)
  await expect.poll(() => body.destroyed).toBe(true)
  scene.reading = Promise.resolve()
  expect(await scene.ask(one)).toBe('lent')
  expect([scene.cache.bytes, scene.failures]).toEqual([400, []])
})

test('a reader whose client has disconnected stops waiting', async () => {
  const scene = new Scene(1000)
  const acquired = scene.bring(known(1, 400))
  const leaving = new AbortController()
  const reading = acquired.blob.bytes(0, 400, leaving.signal)
  leaving.abort(new Error('left'))
  await expect(reading).rejects.toThrow('left')
  acquired.release()
  expect(scene.cache.bytes).toBe(0)
})

test('without enough free memory a blob is streamed, and no other is evicted', async () => {
  const scene = new Scene(2 ** 60)
  const [one, huge] = [known(1, 300), known(2, 300)]
  for (let time = 0; time < 2; time++) await scene.ask(one)
  const name = { ...huge.name, size: 2 ** 52 }
  for (let time = 0; time < 3; time++) expect(scene.cache.acquire(name)).toBeUndefined()
  expect(await scene.ask(one)).toBe('lent')
})

/** Readers of many blobs, with a simulated upstream. */
class Crowd {
  readonly #bodies = new Map<Digest, PassThrough[]>()
  readonly #reading: { readonly acquired: AcquiredBlob; readonly known: Known; readonly read: Promise<Buffer | 'broken'> }[] = []
  readonly cache: BlobCache

  constructor(maxBytes: number) {
    const read = ({ digest, size }: SizedBlob) => {
      const body = new PassThrough()
      this.#bodies.set(digest, [...(this.#bodies.get(digest) ?? []), body])
      return Promise.resolve({ size, body })
    }
    this.cache = new BlobCache({ maxBytes, clock: systemClock, read, failed: () => undefined })
  }

  readonly steps = {
    ask: (one: Known): void => {
      const acquired = this.cache.acquire(one.name)
      if (acquired !== undefined) this.#reading.push({ acquired, known: one, read: readAll(acquired, one.name.size).catch(() => 'broken' as const) })
    },
    leave: (_: Known, which: number): void => this.#reading.splice(which, 1)[0]?.acquired.release(),
    break: ({ name }: Known): void => void this.#bodies.get(name.digest)?.at(-1)?.destroy(new Error('broken')),
    bring: ({ name, content }: Known): void => void this.#bodies.get(name.digest)?.at(-1)?.end(content),
  }

  /** Bytes of these blobs that are in memory without a reader. */
  held(all: readonly Known[]): number {
    let held = 0
    for (const { name } of all) {
      const acquired = this.cache.acquire(name, { first: 0, last: 0 })
      if (acquired !== undefined) held += acquired.blob.size
      acquired?.release()
    }
    return held
  }

  /** Delivers everything, and lets all readers finish. */
  async end(all: readonly Known[]): Promise<void> {
    for (const one of all) for (const body of this.#bodies.get(one.name.digest) ?? []) if (!body.writableEnded) body.end(one.content)
    for (const { acquired, known: one, read } of this.#reading) {
      const got = await read
      if (got !== 'broken') expect(got).toEqual(one.content)
      acquired.release()
    }
  }
}

test('with any requests, aborts and faults: memory stays within its limit, bytes are right, and all memory is released', async () => {
  const maxBytes = 1000
  const all = Array.from({ length: 6 }, (_, number) => known(number, 90 * (number + 1)))
  const step = fc.record({ what: fc.constantFrom('ask', 'ask', 'ask', 'leave', 'break', 'bring'), which: fc.nat(all.length - 1) })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const crowd = new Crowd(maxBytes)
      for (const { what, which } of steps) {
        crowd.steps[what](all[which]!, which)
        await new Promise((resolve) => setImmediate(resolve))
        expect(crowd.cache.bytes).toBeLessThanOrEqual(maxBytes)
        expect(crowd.cache.bytes).toBeGreaterThanOrEqual(0)
      }
      await crowd.end(all)
      // All counted bytes belong to present blobs.
      expect(crowd.cache.bytes).toBe(crowd.held(all))
      for (const one of all.filter(({ name }) => name.size <= maxBytes / 2)) {
        for (const what of ['ask', 'ask', 'bring'] as const) crowd.steps[what](one)
        const acquired = crowd.cache.acquire(one.name)
        expect(acquired).toBeDefined()
        acquired?.release()
        await crowd.end(all)
      }
    }),
    { numRuns: 200 },
  )
})
