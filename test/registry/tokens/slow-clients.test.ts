import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { startTestServer } from '../../support/test-server.ts'
import { RegistryWorld, type Tenant } from './registry-world.ts'

const each = 250
const asked = 100
const rounds = 3

let world: RegistryWorld
let mine: Tenant
const sockets: Socket[] = []

beforeAll(async () => {
  world = new RegistryWorld(await startTestServer())
  mine = await world.tenant()
})

afterAll(async () => {
  for (const socket of sockets) socket.destroy()
  await world?.server.stop()
})

/** Sends the head of a request, and reads until the answer starts with `answer`, then stops reading. */
async function begin(head: string, answer: string): Promise<Socket> {
  const socket = connect(world.server.config.registry.port, '127.0.0.1')
  sockets.push(socket)
  // The closed connection is checked below.
  socket.on('error', () => undefined)
  socket.write(`${head}\r\nHost: x\r\nAuthorization: ${mine.authorization}\r\n\r\n`)
  const [chunk] = (await once(socket, 'data')) as [Buffer] // a cast: no encoding is set
  socket.pause()
  expect(chunk.subarray(0, answer.length).toString()).toBe(answer)
  return socket
}

/** An upload whose bytes never arrive. */
async function stalledUpload(): Promise<Socket> {
  const { headers } = await world.upload(mine.path, mine.authorization)
  const socket = await begin(`PATCH ${headers.location ?? ''} HTTP/1.1\r\nContent-Length: 1000000\r\nExpect: 100-continue`, 'HTTP/1.1 100')
  socket.write('bytes')
  return socket
}

async function pushBlob(bytes: Buffer): Promise<string> {
  const { headers } = await world.upload(mine.path, mine.authorization)
  const digest = digestOf(bytes)
  const path = `${headers.location ?? ''}&digest=${digest}`
  expect(await world.ask({ method: 'PUT', path, authorization: mine.authorization, body: bytes })).toMatchObject({ status: 201 })
  return `/v2/${mine.path}/blobs/${digest}`
}

/** Processor time of token requests and their uses, in milliseconds: waits for other processes of the machine do not count. */
async function costOfTokens(): Promise<number> {
  const before = process.cpuUsage()
  for (let at = 0; at < asked; at++) {
    const { status, token } = await world.requestToken([`repository:${mine.path}:pull,push`], mine.authorization)
    expect(status).toBe(200)
    expect(await world.list(mine.path, `Bearer ${token}`)).toMatchObject({ status: 200 })
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** The minimum of a few costs: the garbage of what ran before is collected in some of the rounds. */
async function leastCost(): Promise<number> {
  const costs: number[] = []
  for (let round = 0; round < rounds; round++) costs.push(await costOfTokens())
  return Math.min(...costs)
}

test('500 clients that stall in uploads and downloads do not delay tokens', async () => {
  const blob = await pushBlob(randomBytes(16_000_000))
  await costOfTokens()
  const alone = await leastCost()
  for (let at = 0; at < each; at += 50) {
    await Promise.all(Array.from({ length: 50 }, () => stalledUpload()))
    await Promise.all(Array.from({ length: 50 }, () => begin(`GET ${blob} HTTP/1.1`, 'HTTP/1.1 200')))
  }
  const among = await leastCost()
  // Tokens that had to wait for a stalled client would end that client's time.
  expect(sockets.filter(({ closed, readableEnded }) => !closed && !readableEnded)).toHaveLength(2 * each)
  expect(among).toBeLessThan(3 * alone)
})
