import { get } from 'node:http'
import { expect, onTestFinished, test } from 'vitest'
import { slowness } from '../budgets.ts'
import { cpuTimeMs } from '../support/cpu-time.ts'
import { makeOrganisation, startTestServer } from '../support/test-server.ts'
import { openStream, type EventStream } from './event-streams.ts'

const polls = 699
const streamsOfEach = 150

/** Returns the share of a core that this process uses until each stream has sent its next heartbeat. */
async function shareOf(streams: readonly EventStream[]): Promise<number> {
  const [cpuMs, startedAtMs] = [cpuTimeMs(), performance.now()]
  await Promise.all(streams.map((stream) => stream.nextCursor()))
  return (cpuTimeMs() - cpuMs) / (performance.now() - startedAtMs)
}

// docs/spec/events.md#streams
test('1,000 idle long polls and streams use less than 1 % of a core more than one stream, including their clients', async () => {
  const server = await startTestServer({ env: { TAPROOT_RATE_LIMIT_ENABLED: 'false', TAPROOT_CONNECTIONS_PER_ADDRESS: '2000' } })
  onTestFinished(() => server.stop())
  const { group, token } = await makeOrganisation(server)
  const { port } = server.config.api
  const { readers } = server.running.engine.services.eventLog
  const url = `http://127.0.0.1:${port}/events/v2/events?uidp.descendants_of=${group}&cursor=now&wait=60s`
  const request = { uidp: { descendantsOf: group }, cursor: 'now' }
  const first = await openStream(request, { port, transport: 'rest', token })
  onTestFinished(() => first.close())
  await first.nextCursor()
  const idleShare = await shareOf([first])
  for (let number = 0; number < polls; number += 1) {
    const poll = get(url, { agent: false, headers: { authorization: `Bearer ${token}` } })
    poll.on('error', () => undefined)
    onTestFinished(() => void poll.destroy())
  }
  const opening = (['rest', 'grpc'] as const).flatMap((transport) =>
    Array.from({ length: streamsOfEach }, () => openStream(request, { port, transport, token })),
  )
  const streams = await Promise.all(opening)
  for (const stream of streams) onTestFinished(() => stream.close())
  await Promise.all(streams.map((stream) => stream.nextCursor()))
  await expect.poll(() => readers.taken).toBe(1 + polls + 2 * streamsOfEach)
  const share = await shareOf(streams)
  expect(readers.taken).toBe(1 + polls + 2 * streamsOfEach)
  expect(share - idleShare).toBeLessThan(0.01 * slowness())
})
