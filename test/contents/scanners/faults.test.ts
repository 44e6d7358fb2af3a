import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import type { TestManifest } from '../../registry/oci/oci-client.ts'
import { describeOnChosenStore } from '../../support/parts/require-part.ts'
import { pollOptions, ScanWorld } from './scan-world.ts'
import { reportOf, reportType, sendReport, sendWait, usualAnswer } from './scanner-service.ts'

const imageType = 'application/vnd.oci.image.manifest.v1+json'

describeOnChosenStore('faults of scanners', (store) => {
  let world: ScanWorld
  let metadata: unknown
  beforeAll(async () => {
    world = await new ScanWorld().start(store)
    metadata = world.service.metadata
  })
  afterAll(() => world.stop())
  afterEach(() => {
    world.service.answer = usualAnswer
    world.service.metadata = metadata
  })

  const stops = (): readonly string[] => world.server.logs.filter(({ fields }) => fields['work'] === 'scans').map(({ fields }) => String(fields['error']))
  const pushed = async (count: number): Promise<readonly { path: string; image: TestManifest }[]> => {
    const made: { path: string; image: TestManifest }[] = []
    for (let at = 0; at < count; at++) {
      const path = world.freshPath()
      made.push({ path, image: await world.push(path) })
    }
    return made
  }
  const allScanned = async (images: readonly { path: string; image: TestManifest }[]): Promise<void> => {
    for (const { path, image } of images) await world.scanned(path, image)
  }

  test('images wait while the metadata of the scanner cannot be used, and the log has nothing of it', async () => {
    const useless: readonly [unknown, string][] = [
      [{ capabilities: [{ consumes_mime_types: null, produces_mime_types: [reportType] }] }, 'names no type of images'],
      [
        {
          capabilities: [{ consumes_mime_types: [imageType], produces_mime_types: [reportType] }],
          properties: { 'harbor.scanner-adapter/registry-authorization-type': 'Basic' },
        },
        'takes no bearer token',
      ],
      ['secret', 'no JSON object'],
    ]
    world.service.metadata = useless[0]?.[0]
    await world.restart()
    const images = await pushed(1)
    for (const [answer, message] of useless) {
      world.service.metadata = answer
      await vi.waitFor(() => expect(stops()).toContainEqual(expect.stringContaining(message)), pollOptions)
    }
    world.service.metadata = metadata
    await allScanned(images)
    expect(JSON.stringify(stops())).not.toContain('secret')
    expect(await world.counted('unsupported')).toBe(0)
  })

  test('the job pauses as the scanner asks, and counts no try', async () => {
    const askedMs: number[] = []
    world.service.answer = (scan, response, asked) => {
      askedMs.push(performance.now())
      if (askedMs.length === 1) response.writeHead(429, { 'retry-after': '4' }).end()
      else usualAnswer(scan, response, asked)
    }
    const failed = await world.counted('failed')
    await allScanned(await pushed(1))
    expect((askedMs[1] ?? 0) - (askedMs[0] ?? 0)).toBeGreaterThan(3_000)
    expect(await world.counted('failed')).toBe(failed)
  })

  test('an image that stops the scanner again and again waits for later, and others are scanned', async () => {
    const [bad, forbidden] = [world.freshPath(), world.freshPath()]
    world.service.answer = (scan, response, asked) => {
      const { repository } = scan.artifact
      if (repository === forbidden) response.writeHead(403).end()
      else if (repository === bad) {
        world.service.forget()
        void world.service
          .down()
          .then(() => sleep(1_500))
          .then(() => world.service.up())
      } else if (asked < 2) sendWait(response)
      else usualAnswer(scan, response, asked)
    }
    const failed = await world.counted('failed')
    const image = await world.push(bad)
    await world.push(forbidden)
    await allScanned(await pushed(2))
    await vi.waitFor(async () => expect(await world.counted('failed')).toBe(failed + 1), pollOptions)
    const key = `x/unscanned/stand-in/${world.uidOf(bad)}/${image.digest}`
    const noted = async (): Promise<string | undefined> => {
      const entry = await world.server.running.engine.store.get(key, AbortSignal.timeout(60_000))
      return entry && Buffer.from(entry.value).toString()
    }
    for (const stopped of ['"stops":1', '"stops":2', undefined]) {
      await vi.waitFor(async () => expect(await noted()).toEqual(stopped && expect.stringContaining(stopped)), pollOptions)
      // A new worker does not know that the image waits some minutes.
      if (stopped !== undefined) await world.restart()
    }
    const { entries } = await world.server.running.engine.store.range({ prefix: 'x/rescan/', limit: 10 }, AbortSignal.timeout(60_000))
    const later = entries.map(({ key }) => key.split('/').slice(3, -1).join('/'))
    expect(later.toSorted()).toEqual([world.uidOf(bad), world.uidOf(forbidden)].toSorted())
    expect(stops().filter((text) => text.includes(world.uidOf(bad)))).not.toEqual([])
  })

  test('a report that is late is asked for again, without another scan', async () => {
    world.service.answer = (_, response) => sendWait(response)
    const [one] = await pushed(1)
    if (one === undefined) throw new Error('no image was pushed')
    await world.noted(one.path, one.image)
    const failed = await world.counted('failed')
    world.clock.advance(31 * 60_000)
    await vi.waitFor(async () => expect(await world.counted('failed')).toBe(failed + 1), pollOptions)
    world.service.answer = (scan, response) => sendReport(response, reportOf(scan.artifact.digest))
    world.clock.advance(6 * 60_000)
    await world.scanned(one.path, one.image)
    expect(world.service.scans.filter(({ artifact }) => artifact.digest === one.image.digest)).toHaveLength(1)
  })

  test('images that are scanned while the scanner stops at another one are not the reason, however often that one is pushed', async () => {
    const bad = world.freshPath()
    const client = await world.pusher()
    let crashes = 0
    const crash = async (): Promise<void> => {
      crashes += 1
      world.service.forget()
      await world.service.down()
      await sleep(1_500)
      await world.service.up()
      await client.putManifest(bad, 'latest', image)
    }
    world.service.answer = (scan, response, asked) => {
      if (scan.artifact.repository === bad && asked >= 3) void crash()
      else if (scan.artifact.repository === bad || asked < 6) sendWait(response)
      else usualAnswer(scan, response, asked)
    }
    const failed = await world.counted('failed')
    const image = await world.push(bad)
    const good = await pushed(3)
    await allScanned(good)
    const { entries } = await world.server.running.engine.store.range({ prefix: 'x/rescan/', limit: 10 }, AbortSignal.timeout(60_000))
    const later = entries.map(({ key }) => key)
    for (const { path } of good) expect(later.filter((key) => key.includes(world.uidOf(path)))).toEqual([])
    expect(crashes).toBeGreaterThan(0)
    expect(await world.counted('failed')).toBeLessThanOrEqual(failed + 1)
  })
})
