import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { openConnection } from '../../src/cli/client/connection.ts'
import { createPlatformClient } from '../../src/cli/client/platform-client.ts'
import { printEvents, type EventsRequest } from '../../src/cli/events.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { contextOf, type TestContext } from './client-world.ts'

const groupEvents = 'dev.taproot.api.iam.group.'

describe('taproot events', () => {
  let server: TestServer
  let organisation: Organisation
  beforeAll(async () => {
    server = await startTestServer()
    organisation = await makeOrganisation(server)
  })
  afterAll(() => server.stop())

  const newGroup = async (): Promise<string> => {
    const reply = await server.rest.call('CreateGroup', { parent: organisation.group, group: { name: freshName('group') } }, { token: organisation.token })
    return String(ok(reply)['uid'])
  }
  const asked = (more: Partial<EventsRequest> = {}): EventsRequest => ({ in: organisation.group, type: [groupEvents], output: 'table', ...more })
  const follow = (context: TestContext, more: Partial<EventsRequest> = {}): { ended: Promise<void> } => {
    const stop = new AbortController()
    onTestFinished(() => stop.abort())
    return { ended: printEvents(context, asked({ follow: true, output: 'json', signal: stop.signal, ...more })) }
  }
  const subjects = (context: TestContext): unknown[] => {
    const lines = context.printed().trim().split('\n')
    return lines.filter((line) => line !== '').map((line) => (JSON.parse(line) as { subject: unknown }).subject)
  }

  test('taproot events prints one page, one line for each event, and the cursor to continue', async () => {
    const context = contextOf(server, organisation.token)
    const uid = await newGroup()
    await printEvents(context, asked())
    const lines = context.printed().trimEnd().split('\n')
    expect(lines.at(-1)).toMatch(new RegExp(`^\\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z  ${groupEvents}created.v1 +${uid}  ${organisation.owner}$`))
    const cursor = context.notes[0]?.replace('continue with --cursor ', '') ?? ''
    const next = await newGroup()
    const again = contextOf(server, organisation.token)
    await printEvents(again, asked({ cursor, output: 'json' }))
    expect(subjects(again)).toEqual([next])
  })

  test('--follow prints each event once, also after interruptions, and continues where it stopped', async () => {
    const proxy = await startProxy(server.config.api.port)
    const client = createPlatformClient({ baseUrl: `http://127.0.0.1:${proxy.port}`, token: organisation.token })
    const context = { ...contextOf(server, organisation.token), client }
    follow(context, { cursor: 'now' })
    const made: string[] = []
    await expect.poll(() => proxy.requests).toBe(1)
    for (let round = 1; round <= 3; round += 1) {
      await expect.poll(() => server.running.engine.services.eventLog.readers.taken).toBeGreaterThan(0)
      made.push(await newGroup())
      await expect.poll(() => subjects(context)).toEqual(made)
      proxy.cut()
      made.push(await newGroup())
      await expect.poll(() => subjects(context)).toEqual(made)
    }
    expect(proxy.requests).toBeGreaterThan(3)
  })

  test('events --follow reads the token file again if the server refuses the token or the file is missing', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const tokenFile = join(folder, 'token')
    await writeFile(tokenFile, organisation.token)
    const proxy = await startProxy(server.config.api.port)
    const connection = await openConnection({ server: `http://127.0.0.1:${proxy.port}`, tokenFile }, {})
    const context = { ...contextOf(server, organisation.token), ...connection }
    const first = await newGroup()
    follow(context)
    await expect.poll(() => subjects(context)).toContain(first)
    for (const spoil of [() => writeFile(tokenFile, 'expired'), () => rm(tokenFile)]) {
      await spoil()
      proxy.cut()
      const made = await newGroup()
      await expect.poll(() => context.notes.at(-1)).toBe('the token was refused or cannot be read: reading it again')
      context.notes.length = 0
      await writeFile(tokenFile, organisation.token)
      await expect.poll(() => subjects(context)).toContain(made)
    }
  })

  test('events --follow ends with the error of the server if the token is fixed', async () => {
    const proxy = await startProxy(server.config.api.port)
    let token = organisation.token
    const client = createPlatformClient({ baseUrl: `http://127.0.0.1:${proxy.port}`, token: () => Promise.resolve(token) })
    const context = { ...contextOf(server, token), client }
    const first = await newGroup()
    const { ended } = follow(context)
    await expect.poll(() => subjects(context)).toContain(first)
    token = 'expired'
    proxy.cut()
    await expect(ended).rejects.toMatchObject({ code: 16 })
  })

  test('taproot events explains what to do if the cursor is too old or the server can not be reached', async () => {
    const context = contextOf(server, organisation.token)
    await printEvents(context, asked())
    const cursor = context.notes[0]?.replace('continue with --cursor ', '') ?? ''
    const { store } = server.running.engine
    const { OutboxExpirer } = await import('../../src/engine/jobs/outbox.ts')
    await newGroup()
    await new OutboxExpirer(store, { lifeMs: 3 * 24 * 3_600_000, bytesPerRoot: 1 }).expireOverSize(Date.now() + 120_000, AbortSignal.timeout(60_000))
    for (const more of [{ cursor }, { cursor, follow: true as const }])
      await expect(printEvents(contextOf(server, organisation.token), asked(more))).rejects.toMatchObject({ code: 11, message: /start again without --cursor/ })
    const client = createPlatformClient({ baseUrl: 'http://127.0.0.1:1', token: organisation.token })
    await expect(follow({ ...contextOf(server, organisation.token), client }).ended).rejects.toMatchObject({ message: /cannot be reached/ })
  })
})

/** A proxy in front of a server that can cut its connections. */
interface Proxy {
  readonly port: number
  readonly requests: number
  cut(): void
}

async function startProxy(target: number): Promise<Proxy> {
  let requests = 0
  const server: Server = createServer((request, response) => {
    requests += 1
    const abort = new AbortController()
    response.once('close', () => abort.abort())
    const relay = async (): Promise<void> => {
      const headers = { accept: request.headers.accept ?? '', authorization: request.headers.authorization ?? '' }
      const answer = await fetch(`http://127.0.0.1:${target}${request.url}`, { headers, signal: abort.signal })
      response.writeHead(answer.status, Object.fromEntries([...answer.headers].filter(([name]) => name === 'content-type')))
      for await (const chunk of answer.body ?? []) response.write(chunk)
      response.end()
    }
    relay().catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo // a server on a port
  return {
    port,
    get requests() {
      return requests
    },
    cut: () => server.closeAllConnections(),
  }
}
