import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { UpstreamError, type BlobStream, type Upstream } from '../../../../src/registry/upstream/upstream.ts'
import type { Digest } from '../../../../src/base/digest.ts'
import { describeOnUpstreams } from '../oci-upstreams.ts'
import { startTestHost, type TestHost } from '../test-host.ts'
import { readAnswer, type Answer, type OciClient } from '../oci-client.ts'

/** A pushed blob. */
interface Pushed {
  readonly path: string
  readonly repository: string
  readonly digest: Digest
  readonly bytes: Buffer
}

describeOnUpstreams('blobs that are pulled often', (upstream) => {
  let host: TestHost
  let client: OciClient
  /** Digests read from the upstream since the start of the test. */
  let reads: Digest[] = []
  /** Changes the streams of the upstream. */
  let spoil: ((stream: BlobStream) => BlobStream) | undefined
  let isDown = false
  /** Answers with slow clients. */
  const held: Held[] = []

  /** The upstream, with its reads recorded. */
  const counted = (source: Upstream): Upstream =>
    new Proxy(source, {
      get(target, name) {
        const method = target[name as keyof Upstream] // a cast: nothing else is asked for
        if (name !== 'readBlob') return (...call: unknown[]) => Reflect.apply(method, target, call) as unknown
        return async (...call: Parameters<Upstream['readBlob']>) => {
          reads.push(call[1].digest)
          if (isDown) throw new UpstreamError('unavailable', 'made to fail')
          const stream = await target.readBlob(...call)
          return stream && (spoil?.(stream) ?? stream)
        }
      },
    })

  beforeAll(async () => {
    host = await startTestHost({ upstream, wrap: counted, handler: { blobCacheBytes: 20_000_000 } })
    client = host.client
    host.http.prependListener('request', (request, response) => {
      if (request.headers[slowly] !== undefined) held.push(hold(response))
    })
  })
  afterEach(() => {
    reads = []
    spoil = undefined
    isDown = false
  })
  afterAll(() => host?.stop())

  const pushed = async (size: number): Promise<Pushed> => {
    const [repository, bytes] = [host.freshRepository(), randomBytes(size)]
    const digest = await client.putBlob(repository, bytes)
    return { path: `/v2/${repository}/blobs/${digest}`, bytes, digest, repository }
  }

  const get = (path: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> => client.send('GET', path, { headers })

  test('cached blobs are read twice from the upstream, then served from memory: whole, in ranges, to every caller with access', async () => {
    const { path, bytes, digest } = await pushed(3_000_000)
    const answers = [await get(path), await get(path), await get(path)]
    for (const answer of answers) {
      expect(answer).toMatchObject({ status: 200, headers: { 'content-length': '3000000', 'docker-content-digest': digest, etag: `"${digest}"` } })
      expect(answer.body.equals(bytes)).toBe(true)
    }
    expect(reads).toHaveLength(2)
    const part = await get(path, { range: 'bytes=1500000-2500000' })
    expect(part).toMatchObject({ status: 206, headers: { 'content-range': 'bytes 1500000-2500000/3000000', 'content-length': '1000001' } })
    expect(part.body.equals(bytes.subarray(1_500_000, 2_500_001))).toBe(true)
    expect((await get(path, { range: 'bytes=-1' })).body).toEqual(bytes.subarray(-1))
    expect((await get(path, { 'if-none-match': `"${digest}"` })).status).toBe(304)
    expect((await client.send('HEAD', path)).headers['content-length']).toBe('3000000')
    const other = host.as(await host.member('registry.pull'))
    expect((await other.send('GET', path)).body.equals(bytes)).toBe(true)
    expect(reads).toHaveLength(2)
  })

  test('cached blobs are refused to callers without access, in other repos, and after their deletion', async () => {
    const { path, bytes, digest, repository } = await pushed(10_000)
    for (let at = 0; at < 3; at++) await get(path)
    expect((await host.as(undefined).send('GET', path)).status).toBe(401)
    const elsewhere = await pushed(10)
    expect((await get(`/v2/${elsewhere.repository}/blobs/${digest}`)).status).toBe(404)
    expect((await client.send('DELETE', path)).status).toBe(202)
    expect((await get(path)).status).toBe(404)
    await client.putBlob(repository, bytes)
    expect((await get(path)).body.equals(bytes)).toBe(true)
  })

  test('cached blobs pulled by many at once are read twice', async () => {
    const { path, bytes } = await pushed(5_000_000)
    const answers = await Promise.all(Array.from({ length: 24 }, () => get(path)))
    expect(answers.map(({ status, body }) => status === 200 && body.equals(bytes))).toEqual(answers.map(() => true))
    expect(reads).toHaveLength(2)
  })

  test('cached blobs are served without the upstream', async () => {
    const { path, bytes } = await pushed(100_000)
    const cold = await pushed(100_000)
    for (let at = 0; at < 2; at++) await get(path)
    isDown = true
    expect((await get(path)).body.equals(bytes)).toBe(true)
    expect(await get(cold.path)).toMatchObject({ status: 503, codes: ['UNAVAILABLE'] })
    expect(await get(cold.path), 'the second time').toMatchObject({ status: 503, codes: ['UNAVAILABLE'] })
    isDown = false
    expect((await get(cold.path)).body.equals(cold.bytes)).toBe(true)
  })

  test('cached blobs that break off during the load fail for all readers, and are right the next time', async () => {
    const { path, bytes } = await pushed(4_000_000)
    await get(path)
    const haveAllBegun = Promise.withResolvers<void>()
    spoil = ({ size, body }) => {
      body.on('error', () => undefined).destroy()
      return { size, body: Readable.from(brokenOff(bytes, haveAllBegun.promise)) }
    }
    const begun = (await Promise.all(Array.from({ length: 5 }, () => once(client.open('GET', path).end(), 'response')))) as [IncomingMessage][] // a cast of the event's arguments
    haveAllBegun.resolve()
    const all = await Promise.allSettled(begun.map(([response]) => readAnswer(response)))
    expect(all.map(({ status }) => status)).toEqual(all.map(() => 'rejected'))
    expect(reads).toHaveLength(2)
    spoil = undefined
    for (let at = 0; at < 2; at++) expect((await get(path)).body.equals(bytes)).toBe(true)
    expect(reads).toHaveLength(3)
  })

  test('cached blobs with wrong bytes reach no client completely, and are not cached', async () => {
    const [large, small] = [await pushed(4_000_000), await pushed(1_000)]
    for (const { path } of [large, small]) await get(path)
    spoil = ({ size, body }) => {
      body.on('error', () => undefined).destroy()
      return { size, body: Readable.from([Buffer.alloc(size / 2), Buffer.alloc(size / 2)]) }
    }
    await expect(get(large.path)).rejects.toThrow()
    await expect(get(small.path)).rejects.toThrow()
    spoil = ({ size, body }) => {
      body.on('error', () => undefined).destroy()
      return { size, body: Readable.from([Buffer.alloc(size)]) }
    }
    expect(await get(small.path)).toMatchObject({ status: 500, codes: ['UNKNOWN'] })
    spoil = undefined
    for (const { path, bytes } of [large, small]) expect((await get(path)).body.equals(bytes)).toBe(true)
  })

  test('cached blobs continue for other clients if one leaves or is slow', async () => {
    const { path, bytes } = await pushed(9_000_000)
    await get(path)
    const slow = client.open('GET', path).end()
    const [response] = (await once(slow, 'response')) as [IncomingMessage] // a cast of the event's arguments
    const leaving = client.open('GET', path).end()
    leaving.on('error', () => undefined)
    await once(leaving, 'response')
    leaving.destroy()
    expect((await get(path)).body.equals(bytes)).toBe(true)
    expect((await readAnswer(response)).body.equals(bytes)).toBe(true)
    expect(reads).toHaveLength(2)
  })

  /** Starts a pull by a client that reads only the first piece, until `held` releases it. */
  const pullSlowly = async (path: string, headers: Readonly<Record<string, string>> = {}): Promise<IncomingMessage> => {
    const [response] = (await once(client.open('GET', path, { ...headers, [slowly]: 'yes' }).end(), 'response')) as [IncomingMessage] // a cast of the event's arguments
    return response
  }

  /** Two cached blobs; a third one of their size evicts one of them. */
  const twoCached = async (): Promise<readonly [Pushed, Pushed]> => {
    const both = [await pushed(9_000_000), await pushed(9_000_000)] as const
    for (const { path } of both) for (let time = 0; time < 2; time++) await get(path)
    return both
  }

  const readsOf = ({ digest }: Pushed): number => reads.filter((read) => read === digest).length

  /** Pulls the blob until it is served without a read of the upstream. */
  const untilCached = async (one: Pushed): Promise<void> => {
    await expect
      .poll(async () => {
        const before = readsOf(one)
        expect((await get(one.path)).body.equals(one.bytes)).toBe(true)
        return readsOf(one) - before
      })
      .toBe(0)
  }

  test('cached blobs are evicted from under slow readers when memory is needed; these readers still get the rest', async () => {
    const [one, two] = await twoCached()
    const responses = [await pullSlowly(one.path), await pullSlowly(two.path, { range: 'bytes=1000-8999999' })]
    const third = await pushed(9_000_000)
    for (let time = 0; time < 3; time++) expect((await get(third.path)).body.equals(third.bytes)).toBe(true)
    expect([one, two, third].map(readsOf)).toEqual([2, 2, 3])
    // The client takes one more piece: the rest then comes from the upstream.
    held[0]?.nudge()
    await untilCached(third)
    for (const { letGo } of held.splice(0)) letGo()
    const [first, second] = await Promise.all(responses.map((response) => readAnswer(response)))
    expect(first?.body.equals(one.bytes)).toBe(true)
    expect(second?.body.equals(two.bytes.subarray(1000))).toBe(true)
    expect([one, two].map(readsOf)).toEqual([3, 2])
  })

  test('cached blobs are released when their client leaves in the middle', async () => {
    for (const { path } of await twoCached()) (await pullSlowly(path)).on('error', () => undefined).destroy()
    await untilCached(await pushed(9_000_000))
    for (const { letGo } of held.splice(0)) letGo()
  })

  test('cached blobs are not loaded into memory by requests for ranges', async () => {
    const { path, bytes } = await pushed(3_000_000)
    for (let time = 0; time < 3; time++) expect((await get(path, { range: 'bytes=0-9' })).body).toEqual(bytes.subarray(0, 10))
    expect(reads).toHaveLength(3)
  })

  test('cached blobs that are too large for memory are read each time', async () => {
    const { path, bytes } = await pushed(10_000_001)
    for (let at = 0; at < 3; at++) expect((await get(path)).body.equals(bytes)).toBe(true)
    expect(reads).toHaveLength(3)
  })
})

/** Header of requests with slow clients. */
const slowly = 'x-slowly'

/** An answer whose client has taken one piece. */
interface Held {
  /** Lets the client take one more piece. */
  nudge(): void
  /** Lets the client take everything. */
  letGo(): void
}

/** Simulates a slow client. */
function hold(response: ServerResponse): Held {
  let isHeld = true
  const [write, emit] = [response.write.bind(response), response.emit.bind(response)]
  response.write = (piece: unknown) => write(piece) && !isHeld
  response.emit = (event: string, ...values: unknown[]) => (event === 'drain' && isHeld) || emit(event, ...values)
  return {
    nudge: () => void emit('drain'),
    letGo() {
      isHeld = false
      emit('drain')
    },
  }
}

async function* brokenOff(bytes: Buffer, moment: Promise<void>): AsyncGenerator<Buffer> {
  yield bytes.subarray(0, 1_000_000)
  await moment
  throw new UpstreamError('unavailable', 'made to break')
}
