import { createHash } from 'node:crypto'
import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { systemClock } from '../../../src/cmd/runtime.ts'
import { digestOf, type Digest } from '../../../src/core/digest.ts'
import type { Uid } from '../../../src/core/uid.ts'
import { BlobCache, type BlobName, type LentBlob } from '../../../src/registry/oci/blob-cache.ts'

const never = new AbortController().signal
const repo = 'a'.repeat(40) as Uid // a cast: it looks like one

/** Bytes that follow from a number. */
function contentOf(number: number, size: number): Buffer {
  const block = createHash('sha256').update(String(number)).digest()
  return Buffer.concat(Array.from({ length: Math.ceil(size / block.length) }, () => block)).subarray(0, size)
}

interface Known {
  readonly name: BlobName
  readonly content: Buffer
}

function known(number: number, size: number): Known {
  const content = contentOf(number, size)
  return { name: { repo, digest: digestOf(content), size }, content }
}

/** A cache over blobs that come when a test says so. */
class Scene {
  nowMs = 1_000_000
  readonly bodies: { readonly digest: Digest; readonly body: PassThrough }[] = []
  readonly cache: BlobCache

  constructor(maxBytes: number) {
    const read = ({ digest, size }: BlobName) => {
      const body = new PassThrough()
      this.bodies.push({ digest, body })
      return Promise.resolve({ size, body })
    }
    this.cache = new BlobCache({ maxBytes, clock: { now: () => this.nowMs }, read })
  }

  /** Asks for all of it, and reads it where it is lent. */
  async ask({ name, content }: Known): Promise<'lent' | 'streamed'> {
    const before = this.bodies.length
    const lent = this.cache.lend(name)
    if (lent === undefined) return 'streamed'
    this.bodies[before]?.body.end(content)
    expect(await readAll(lent, name.size)).toEqual(content)
    lent.giveBack()
    return 'lent'
  }
}

async function readAll({ blob }: LentBlob, size: number): Promise<Buffer> {
  const pieces: Uint8Array[] = []
  for (let at = 0; at < size; at += pieces.at(-1)?.length ?? 0) pieces.push(await blob.bytes(at, size, never))
  return Buffer.concat(pieces)
}

test('with the second ask a blob comes into memory, and is read from there afterwards', async () => {
  const scene = new Scene(1000)
  const one = known(1, 300)
  expect([await scene.ask(one), await scene.ask(one), await scene.ask(one)]).toEqual(['streamed', 'lent', 'lent'])
  expect(scene.bodies).toHaveLength(1)
  expect(scene.cache.bytes).toBe(300)
  expect(await scene.ask({ ...one, name: { ...one.name, repo: 'b'.repeat(40) as Uid } }), 'of another repo').toBe('streamed')
})

test('two asks that are far apart are not of one time', async () => {
  const scene = new Scene(1000)
  const one = known(1, 300)
  expect(await scene.ask(one)).toBe('streamed')
  scene.nowMs += 3_600_000
  expect([await scene.ask(one), await scene.ask(one)]).toEqual(['streamed', 'lent'])
})

test('none, and those that are larger than half of the memory, never come there', async () => {
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

test('what is pulled in turn, more than there is room for, takes nothing from what is there', async () => {
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

test('what nobody asked for since the first ask for another one gives way to it, oldest first', async () => {
  const scene = new Scene(1000)
  const [one, two, three, four] = [1, 2, 3, 4].map((number) => known(number, 300)) as [Known, Known, Known, Known]
  for (const each of [one, one, two, two, three, three]) await scene.ask(each)
  await scene.ask(one)
  expect([await scene.ask(four), await scene.ask(four)]).toEqual(['streamed', 'lent'])
  // `two` went; `one` and `three` are there, and reads nothing more of the upstream.
  expect([await scene.ask(one), await scene.ask(three)]).toEqual(['lent', 'lent'])
  expect(scene.bodies.map(({ digest }) => digest)).toEqual([one, two, three, four].map(({ name }) => name.digest))
  expect(scene.cache.bytes).toBe(900)
})

test('what is being read does not give way, and counts until it is given back', async () => {
  const scene = new Scene(1000)
  const [one, two, three] = [1, 2, 3].map((number) => known(number, 450)) as [Known, Known, Known]
  for (const each of [one, one, two, two]) await scene.ask(each)
  const held = [one, two].map(({ name }) => scene.cache.lend(name))
  expect([await scene.ask(three), await scene.ask(three)]).toEqual(['streamed', 'streamed'])
  expect(await readAll(held[0]!, 450)).toEqual(one.content)
  held[0]?.giveBack()
  expect(await scene.ask(three)).toBe('lent')
  held[1]?.giveBack()
  expect(scene.cache.bytes).toBe(900)
})

test('who asks while it comes gets what is there, then the rest', async () => {
  const scene = new Scene(1000)
  const { name, content } = known(1, 400)
  scene.cache.lend(name)
  const lent = [scene.cache.lend(name), scene.cache.lend(name)] as [LentBlob, LentBlob]
  const reading = lent.map((each) => readAll(each, 400))
  await expect.poll(() => scene.bodies.length).toBe(1)
  expect(scene.cache.lend(name, 100), 'what begins in a part that is not there yet').toBeUndefined()
  scene.bodies[0]?.body.write(content.subarray(0, 150))
  await expect.poll(() => lent[0].blob.available).toBe(150)
  const part = scene.cache.lend(name, 100)
  expect(Buffer.from((await part?.blob.bytes(100, 400, never)) ?? [])).toEqual(content.subarray(100, 150))
  scene.bodies[0]?.body.end(content.subarray(150))
  expect(await Promise.all(reading)).toEqual([content, content])
  for (const each of [...lent, part]) each?.giveBack()
  expect(scene.cache.bytes).toBe(400)
})

const breaks: Readonly<Record<string, (body: PassThrough, content: Buffer) => void>> = {
  'breaks off': (body, content) => {
    body.write(content.subarray(0, 100))
    body.destroy(new Error('gone'))
  },
  'ends too early': (body, content) => void body.end(content.subarray(0, 399)),
  'does not end': (body, content) => void body.end(Buffer.concat([content, content])),
  'is not what the digest names': (body, content) => void body.end(Buffer.concat([content.subarray(0, 399), Buffer.of((content.at(-1) ?? 0) ^ 1)])),
}

test.each(Object.entries(breaks))('one that %s fails for all who read it before the last byte, and is not kept', async (_, spoil) => {
  const scene = new Scene(1000)
  const { name, content } = known(1, 400)
  scene.cache.lend(name)
  const lent = [scene.cache.lend(name), scene.cache.lend(name)] as [LentBlob, LentBlob]
  const reading = Promise.allSettled(lent.map((each) => readAll(each, 400)))
  await expect.poll(() => scene.bodies.length).toBe(1)
  spoil(scene.bodies[0]!.body, content)
  expect((await reading).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(lent[0].blob.available).toBeLessThan(400)
  for (const each of lent) each.giveBack()
  expect(scene.cache.bytes).toBe(0)
  expect(await scene.ask({ name, content })).toBe('lent')
})

test('where nobody waits any more it is not read to its end', async () => {
  const scene = new Scene(1000)
  const { name, content } = known(1, 400)
  scene.cache.lend(name)
  const [first, second] = [scene.cache.lend(name), scene.cache.lend(name)]
  await expect.poll(() => scene.bodies.length).toBe(1)
  const { body } = scene.bodies[0]!
  body.write(content.subarray(0, 100))
  first?.giveBack()
  await expect.poll(() => second?.blob.available).toBe(100)
  expect([body.destroyed, scene.cache.bytes]).toEqual([false, 400])
  second?.giveBack()
  expect(scene.cache.bytes).toBe(0)
  await expect.poll(() => body.destroyed).toBe(true)
  expect(await scene.ask({ name, content })).toBe('lent')
})

test('a reader whose client is gone waits no more', async () => {
  const scene = new Scene(1000)
  const { name } = known(1, 400)
  scene.cache.lend(name)
  const lent = scene.cache.lend(name)
  const leaving = new AbortController()
  const reading = lent?.blob.bytes(0, 400, leaving.signal)
  leaving.abort(new Error('left'))
  await expect(reading).rejects.toThrow('left')
  lent?.giveBack()
  expect(scene.cache.bytes).toBe(0)
})

/** Readers of many blobs, whose upstream does what it is told to. */
class Crowd {
  readonly #bodies = new Map<Digest, PassThrough[]>()
  readonly #reading: { readonly lent: LentBlob; readonly known: Known; readonly read: Promise<Buffer | 'broken'> }[] = []
  readonly cache: BlobCache

  constructor(maxBytes: number) {
    const read = ({ digest, size }: BlobName) => {
      const body = new PassThrough()
      this.#bodies.set(digest, [...(this.#bodies.get(digest) ?? []), body])
      return Promise.resolve({ size, body })
    }
    this.cache = new BlobCache({ maxBytes, clock: systemClock, read })
  }

  readonly steps = {
    ask: (one: Known): void => {
      const lent = this.cache.lend(one.name)
      if (lent !== undefined) this.#reading.push({ lent, known: one, read: readAll(lent, one.name.size).catch(() => 'broken' as const) })
    },
    leave: (_: Known, which: number): void => this.#reading.splice(which, 1)[0]?.lent.giveBack(),
    break: ({ name }: Known): void => void this.#bodies.get(name.digest)?.at(-1)?.destroy(new Error('broken')),
    bring: ({ name, content }: Known): void => void this.#bodies.get(name.digest)?.at(-1)?.end(content),
  }

  /** Lets everything come, and everybody read to the end. */
  async end(all: readonly Known[]): Promise<void> {
    for (const one of all) for (const body of this.#bodies.get(one.name.digest) ?? []) if (!body.writableEnded) body.end(one.content)
    for (const { lent, known: one, read } of this.#reading) {
      const got = await read
      if (got !== 'broken') expect(got).toEqual(one.content)
      lent.giveBack()
    }
  }
}

test('whatever is asked for, left, broken or brought: never more than the memory, always the right bytes, and room for all again', async () => {
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
      }
      await crowd.end(all)
      expect(crowd.cache.bytes).toBeLessThanOrEqual(maxBytes)
      for (const one of all.filter(({ name }) => name.size <= maxBytes / 2)) {
        for (const what of ['ask', 'ask', 'bring'] as const) crowd.steps[what](one)
        const lent = crowd.cache.lend(one.name)
        expect(lent).toBeDefined()
        lent?.giveBack()
        await crowd.end(all)
      }
    }),
    { numRuns: 200 },
  )
})
