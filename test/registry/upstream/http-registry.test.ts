import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { expect, onTestFinished, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { createHttpUpstream, type HttpUpstreamOptions } from '../../../src/registry/upstream/http/http-upstream.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { registryAccount, startRegistry, type DistributionRegistry, type RegistryOptions } from '../../support/parts/registry.ts'
import { describeWithPart, skipFor } from '../../support/parts/require-part.ts'
import { startTcpProxy } from '../../support/parts/tcp-proxy.ts'
import { blobBytes, bodyOf, drain, failureOf, freshBytes, freshImage, freshRepo, never, putBlob } from './content.ts'
import { startTokenService, type TokenService } from './token-service.ts'

const account = { ...registryAccount, password: () => registryAccount.password }
const quick = { headersMs: 2_000, finishMs: 2_000, stallMs: 2_000 }

async function running(options: RegistryOptions = {}): Promise<DistributionRegistry> {
  const registry = await startRegistry(options)
  onTestFinished(() => registry.stop())
  return registry
}

function connected(url: string, options: Partial<HttpUpstreamOptions> = {}): Upstream {
  const upstream = createHttpUpstream({ url, clock: Date, ...options })
  onTestFinished(() => upstream.close())
  return upstream
}

async function tokenService(): Promise<TokenService> {
  const service = await startTokenService()
  onTestFinished(() => service.stop())
  return service
}

describeWithPart('registry', 'a distribution registry as upstream', () => {
  test('a right password is accepted; a wrong or missing one is refused', async () => {
    const { url } = await running({ auth: 'basic' })
    const repo = freshRepo()
    const bytes = freshBytes(10)
    expect(await putBlob(connected(url, account), repo, bytes)).toBe(digestOf(bytes))
    for (const wrong of [{}, { ...account, password: () => 'other' }]) {
      const upstream = connected(url, wrong)
      expect(await failureOf(upstream.ready(never))).toBe('refused')
      expect(await failureOf(upstream.statBlob(repo, digestOf(bytes), never))).toBe('refused')
      expect(await failureOf(upstream.startUpload(repo, never))).toBe('refused')
    }
  })

  test('a token is fetched once for each repo and kind of access, for any number of concurrent calls', async () => {
    const service = await tokenService()
    const { url } = await running({ auth: service.auth })
    const upstream = connected(url, account)
    const repo = freshRepo()
    await upstream.ready(never)
    const digest = await putBlob(upstream, repo, freshBytes(10))
    await putBlob(upstream, repo, freshBytes(10))
    await Promise.all(Array.from({ length: 20 }, () => upstream.statBlob(repo, digest, never)))
    await upstream.deleteBlob(repo, digest, never)
    expect(service.given).toEqual([[], ...['pull,push', 'pull', 'delete'].map((actions) => [`repository:${repo}:${actions}`])])
  })

  test('a token is fetched again before it expires', async () => {
    const service = await tokenService()
    const { url } = await running({ auth: service.auth })
    let now = Date.now()
    const upstream = connected(url, { ...account, clock: { now: () => now } })
    const repo = freshRepo()
    for (const seconds of [0, 40, 20]) {
      now += seconds * 1000
      expect(await upstream.statBlob(repo, digestOf(Buffer.from('x')), never)).toBeUndefined()
    }
    expect(service.given).toHaveLength(2)
  })

  test('a token service that refuses the account differs from one that is down; both recover', async () => {
    const service = await tokenService()
    const { url } = await running({ auth: service.auth })
    expect(await failureOf(connected(url, { username: 'x', password: () => 'y' }).ready(never))).toBe('refused')
    expect(await failureOf(connected(url).ready(never))).toBe('refused')
    const upstream = connected(url, account)
    service.answer(503)
    expect(await failureOf(upstream.ready(never))).toBe('unavailable')
    service.answer(undefined)
    await upstream.ready(never)
  })

  test('a process that continues an upload requests a token before it sends the chunk', async () => {
    const service = await tokenService()
    const { url } = await running({ auth: service.auth })
    const repo = freshRepo()
    const { state } = await connected(url, account).startUpload(repo, never)
    const bytes = freshBytes(2_000_000)
    const chunk = { body: bodyOf(bytes), length: bytes.length }
    const result = connected(url, account).finishUpload(repo, { state, digest: digestOf(bytes), chunk }, never)
    expect(await result).toMatchObject({ size: bytes.length })
  })

  test('a certificate is checked against the configured authority', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'taproot-tls-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    const tls = { keyFile: join(directory, 'key.pem'), certFile: join(directory, 'cert.pem') }
    if (spawnSync('openssl', ['version']).status !== 0) skipFor('openssl is not installed')
    const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']
    const kind = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
    execFileSync('openssl', [...kind, '-keyout', tls.keyFile, '-out', tls.certFile, ...subject], { stdio: 'ignore' })
    const { url } = await running({ tls })
    const repo = freshRepo()
    const bytes = freshBytes(1000)
    const upstream = connected(url, { ca: () => readFileSync(tls.certFile, 'utf8') })
    expect(await blobBytes(upstream, repo, await putBlob(upstream, repo, bytes))).toEqual(bytes)
    expect(await failureOf(connected(url).ready(never))).toBe('unavailable')
  })

  test('deletes that the registry does not support are refused', async () => {
    const { url } = await running({ deleteEnabled: false })
    const upstream = connected(url)
    const repo = freshRepo()
    const image = await freshImage(upstream, repo)
    await upstream.putManifest(repo, image, never)
    expect(await failureOf(upstream.deleteManifest(repo, image.digest, never))).toBe('refused')
    expect(await upstream.hasManifest(repo, image.digest, never)).toBe(true)
  })

  test('a manifest with missing layers is refused', async () => {
    const { url } = await running()
    const upstream = connected(url)
    const image = await freshImage(upstream, freshRepo())
    expect(await failureOf(upstream.putManifest(freshRepo(), image, never))).toBe('refused')
  })

  test('a push fails without a retry if the upstream registry rejects the manifest for several reasons', async () => {
    const { url } = await running()
    const upstream = connected(url)
    const repo = freshRepo()
    const layers = [
      {
        mediaType: 'application/vnd.oci.image.layer.nondistributable.v1.tar+gzip',
        digest: digestOf(freshBytes(5)),
        size: 5,
        urls: ['https://example.com/layer'],
      },
    ]
    expect(await failureOf(upstream.putManifest(repo, await freshImage(upstream, repo, { layers }), never))).toBe('refused')
  })

  test('an upload continues after the registry was killed, although its new secret does not accept the old state', async () => {
    const registry = await running()
    const upstream = connected(registry.url)
    const repo = freshRepo()
    const bytes = freshBytes(300_000)
    const { state: started } = await upstream.startUpload(repo, never)
    let upload = await upstream.appendUpload(repo, { state: started, chunk: { body: bodyOf(bytes.subarray(0, 100_000)), length: 100_000 } }, never)
    await registry.kill()
    expect(await failureOf(upstream.uploadStatus(repo, upload.state, never))).toBe('unavailable')
    expect(await failureOf(upstream.ready(never))).toBe('unavailable')
    await registry.restart()
    const next = () => ({ body: bodyOf(bytes.subarray(100_000)), offset: 100_000, length: 200_000 })
    expect(await failureOf(upstream.appendUpload(repo, { state: upload.state, chunk: next() }, never))).toBe('range_invalid')
    upload = await upstream.uploadStatus(repo, upload.state, never)
    expect(upload.offset).toBe(100_000)
    upload = await upstream.appendUpload(repo, { state: upload.state, chunk: next() }, never)
    await registry.kill()
    await registry.restart()
    expect(await upstream.finishUpload(repo, { state: upload.state, digest: digestOf(bytes) }, never)).toMatchObject({ size: 300_000 })
    expect((await blobBytes(upstream, repo, digestOf(bytes)))?.equals(bytes)).toBe(true)
  })

  test('after a kill of the registry during a chunk the call fails, and the upload continues after the received bytes', async () => {
    const registry = await running()
    const upstream = connected(registry.url)
    const repo = freshRepo()
    const bytes = freshBytes(4_000_000)
    const { state } = await upstream.startUpload(repo, never)
    const body = new Readable({ read: () => undefined })
    body.push(bytes.subarray(0, 1_000_000))
    const call = failureOf(upstream.appendUpload(repo, { state, chunk: { body, length: bytes.length } }, never))
    await expect.poll(() => body.readableLength).toBe(0)
    await registry.kill()
    expect(await call).toBe('unavailable')
    expect(body.destroyed).toBe(true)
    await registry.restart()
    const upload = await upstream.uploadStatus(repo, state, never)
    const rest = { body: bodyOf(bytes.subarray(upload.offset)), offset: upload.offset, length: bytes.length - upload.offset }
    expect(await upstream.finishUpload(repo, { state: upload.state, digest: digestOf(bytes), chunk: rest }, never)).toMatchObject({ size: bytes.length })
  })

  test('while the registry is suspended each call fails in time, and everything continues afterwards', async () => {
    const registry = await running()
    const upstream = connected(registry.url, { timeouts: quick })
    const repo = freshRepo()
    const digest = await putBlob(upstream, repo, freshBytes(10))
    const { state } = await upstream.startUpload(repo, never)
    await registry.pause()
    const body = new Readable({ read: () => undefined })
    body.push(freshBytes(30_000_000))
    const calls = [
      upstream.ready(never),
      upstream.getManifest(repo, digest, never),
      upstream.statBlob(repo, digest, never),
      upstream.readBlob(repo, { digest }, never),
      upstream.startUpload(repo, never),
      upstream.appendUpload(repo, { state, chunk: { body } }, never),
    ]
    expect(await Promise.all(calls.map(failureOf))).toEqual(calls.map(() => 'unavailable'))
    registry.resume()
    expect(await upstream.statBlob(repo, digest, never)).toBe(10)
  })

  // The first request differs from later ones: it detects the registry's kind of credentials.
  test.for<[string, number]>([
    ['first', 0],
    ['second', 1],
  ])("a read fails if the blob's bytes stop, but not if its reader pauses for as long: the %s request", async ([, before]) => {
    const registry = await running()
    const proxy = await startTcpProxy(registry.port)
    onTestFinished(() => proxy.close())
    const repo = freshRepo()
    const bytes = freshBytes(20_000_000)
    // The time of a whole blob is not limited here.
    const digest = await putBlob(connected(registry.url), repo, bytes)
    const read = async (url: string): Promise<Readable> => {
      const upstream = connected(url, { timeouts: quick })
      for (let asked = 0; asked < before; asked++) await upstream.ready(never)
      return (await upstream.readBlob(repo, { digest }, never))!.body
    }
    const unread = await read(registry.url)
    const stalled = await read(`http://127.0.0.1:${proxy.port}`)
    stalled.once('data', () => proxy.stall())
    expect(await failureOf(drain(stalled))).toBe('unavailable')
    expect((await drain(unread)).equals(bytes)).toBe(true)
  })

  test('an interrupted connection breaks the read of a blob', async () => {
    const registry = await running()
    const proxy = await startTcpProxy(registry.port)
    onTestFinished(() => proxy.close())
    const upstream = connected(`http://127.0.0.1:${proxy.port}`)
    const repo = freshRepo()
    const digest = await putBlob(upstream, repo, freshBytes(20_000_000))
    const found = await upstream.readBlob(repo, { digest }, never)
    found?.body.once('data', () => proxy.cut())
    expect(await failureOf(drain(found!.body))).toBe('unavailable')
    expect(await failureOf(upstream.statBlob(repo, digest, never))).toBe('unavailable')
    proxy.resume()
    expect(await upstream.statBlob(repo, digest, never)).toBe(20_000_000)
  })
})
