import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { describeOnChosenStore } from '../../support/parts/require-part.ts'
import { closeNow, listenOnLoopback } from '../../support/parts/loopback.ts'
import type { TestManifest } from '../../registry/oci/oci-client.ts'
import { pollOptions, ScanWorld } from './scan-world.ts'
import { reportOf, reportType, sendReport, usualAnswer, type AnswerReport } from './scanner-service.ts'

function* endless(piece: Buffer): Generator<Buffer, void> {
  for (;;) yield piece
}

const otherDigest = `sha256:${'0'.repeat(64)}`
const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value))

describeOnChosenStore('hostile scanners', (store) => {
  let world: ScanWorld
  let strangers = 0
  const stranger = createServer((_, response) => {
    strangers += 1
    response.end()
  })
  beforeAll(async () => void (world = await new ScanWorld().start(store, { timeoutSeconds: 20 })))
  afterAll(async () => {
    await world.stop()
    await closeNow(stranger)
  })

  test('answers that cannot be used are refused and logged, and images stay as they are', async () => {
    const port = await listenOnLoopback(stranger)
    const elsewhere =
      (status: number): AnswerReport =>
      (_, response) =>
        void response.writeHead(status, { location: `http://127.0.0.1:${port}/` }).end()
    const answers: Readonly<Record<string, AnswerReport>> = {
      huge: (_, response) => {
        response.writeHead(200, { 'content-type': reportType })
        const piece = Buffer.alloc(1024 * 1024, ' ')
        Readable.from(endless(piece)).pipe(response)
      },
      endless: (_, response) => {
        response.writeHead(200, { 'content-type': reportType })
        const timer = setInterval(() => response.write(' '), 50)
        response.on('close', () => clearInterval(timer))
      },
      moved: elsewhere(307),
      gone: elsewhere(301),
      page: ({ artifact: { digest } }, response) => sendReport(response, reportOf(digest), 'text/html'),
      'another image': (_, response) => sendReport(response, reportOf(otherDigest)),
      'no image': (_, response) => sendReport(response, json({ scanner: {}, vulnerabilities: [] })),
      text: (_, response) => sendReport(response, Buffer.from('no JSON')),
      deep: (_, response) => sendReport(response, Buffer.from('['.repeat(100_000))),
      sbom: ({ artifact: { digest } }, response) => sendReport(response, json({ artifact: { digest }, scanner: {}, sbom: {} })),
      many: ({ artifact: { digest } }, response) =>
        sendReport(
          response,
          reportOf(
            digest,
            Array.from({ length: 10_001 }, (_, at) => `CVE-2026-${at}`),
          ),
        ),
      failed: (_, response) => void response.writeHead(500).end('{"error":{"message":"secret of the scanner"}}'),
    }
    const images = new Map<string, { readonly path: string; readonly image: TestManifest }>()
    const names = new Map<string, string>()
    world.service.answer = (scan, response, asked) => (answers[names.get(scan.artifact.repository) ?? ''] ?? usualAnswer)(scan, response, asked)
    for (const name of Object.keys(answers)) {
      const path = world.freshPath()
      names.set(path, name)
      images.set(name, { path, image: await world.push(path) })
    }
    const good = world.freshPath()
    await world.scanned(good, await world.push(good))
    const refused = (): Map<unknown, unknown> =>
      new Map(world.server.logs.filter(({ message }) => message === 'an image was not scanned').map(({ fields }) => [fields['digest'], fields['error']]))
    await vi.waitFor(() => expect(refused().size).toBe(images.size), pollOptions)
    const reasons = [...images].map(([name, { image }]) => [name, String(refused().get(image.digest))])
    expect(Object.fromEntries(reasons)).toMatchObject({
      huge: expect.stringContaining('too_large'),
      endless: expect.stringContaining('timeout'),
      moved: expect.stringContaining('redirect'),
      gone: expect.stringContaining('redirect'),
      page: expect.stringContaining('another type'),
      'another image': expect.stringContaining('another image'),
      'no image': expect.stringContaining('another image'),
      text: expect.stringContaining('no JSON object'),
      deep: expect.stringContaining('no JSON object'),
      sbom: expect.stringContaining('form of Harbor'),
      many: expect.stringContaining('more than 10000 vulnerabilities'),
      failed: expect.stringContaining('status 500'),
    })
    expect(JSON.stringify(world.server.logs)).not.toContain('secret of the scanner')
    expect(strangers).toBe(0)
    expect(await world.counted('failed')).toBe(images.size)
    for (const { path, image } of images.values()) {
      expect(await world.referrers(path, image)).toEqual([])
      expect((await (await world.pusher()).send('GET', `/v2/${path}/manifests/${image.digest}`)).status).toBe(200)
    }
  })

  test('a scanner that makes other reports, or does not scan such images, gets none', async () => {
    const { metadata } = world.service
    world.service.metadata = {
      capabilities: [{ type: 'sbom', consumes_mime_types: [], produces_mime_types: ['application/vnd.security.sbom.report+json; version=1.0'] }],
    }
    await world.restart()
    const path = world.freshPath()
    const image = await world.push(path)
    const failures = (): readonly string[] => world.server.logs.filter(({ fields }) => fields['work'] === 'scans').map(({ fields }) => String(fields['error']))
    await vi.waitFor(() => expect(failures()).toContainEqual(expect.stringContaining('makes no reports of vulnerabilities')), pollOptions)
    world.service.metadata = {
      capabilities: [{ consumes_mime_types: ['application/vnd.docker.distribution.manifest.v2+json'], produces_mime_types: [reportType] }],
    }
    await vi.waitFor(async () => expect(await world.counted('unsupported')).toBe(1), pollOptions)
    expect(world.service.scans.filter(({ artifact }) => artifact.digest === image.digest)).toEqual([])
    world.service.metadata = metadata
  })
})
