import { randomBytes, randomInt } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { digestOf } from '../../../../src/base/digest.ts'
import { tarOf } from '../../../contents/tar-of.ts'
import { imageType, manifestOf, OciClient } from '../../../registry/oci/oci-client.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../../soak/factor.ts'
import type { ApiClient } from '../../../support/api-clients.ts'
import { ok } from '../../../support/test-server.ts'
import { makeOperatedHomes, startApi, type ApiHome } from '../harness/api-home.ts'
import { makeDevHome, readToken, startDev } from '../harness/dev-home.ts'
import { isReady, startProcess, type TaprootProcess } from '../harness/taproot-process.ts'

/** One for each phase. */
const kills = campaignLength({ short: 3, full: 60 })
const imagesPerRound = 2
const packagesPerImage = 40
/** Longest time for a phase to begin, and for what was read to be published. A worker on etcd waits for the lease of the killed one. */
const waitMs = 120_000

/** An installation with one process that reads images. It is killed and started again. */
interface Ground {
  readonly rest: ApiClient
  /** The path and uid of a repo. */
  readonly repo: { readonly path: string; readonly uid: string }
  /** The data of the process. */
  readonly dataDir: string
  running: TaprootProcess
  token(): Promise<string>
  /** Returns a client of the registry host. It is closed after use. */
  client(): Promise<OciClient>
  start(): Promise<TaprootProcess>
}

/** What the process does when it is killed. A name in its folders shows it. The kill follows at most so many milliseconds later. */
const phases = [
  { what: 'reads an image', folder: 'contents-reading', isShown: (name: string) => name.startsWith('taproot-reading-'), mostMs: 250 },
  { what: 'builds and merges segments', folder: 'contents', isShown: (name: string) => name.endsWith('.part'), mostMs: 40 },
  { what: 'publishes a segment', folder: 'contents', isShown: (name: string) => name.endsWith('.sqlite'), mostMs: 10 },
] as const

/** A pushed image: its digest and the names of its packages. */
interface Pushed {
  readonly digest: string
  readonly names: readonly string[]
}

/** Pushes an image with the package `shared` and others of its own. */
async function push(client: OciClient, path: string): Promise<Pushed> {
  const salt = randomBytes(8).toString('hex')
  const names = ['shared', ...Array.from({ length: packagesPerImage - 1 }, (_, at) => `only-${salt}-${at}`)].sort()
  const database = names.map((name) => `P:${name}\nV:1.0-r0\nA:x86_64\n\n`).join('')
  const layer = gzipSync(
    tarOf([
      { path: 'etc/os-release', data: 'ID=alpine\nVERSION_ID=3.20.1\n' },
      { path: 'lib/apk/db/installed', data: database },
    ]),
  )
  const config = Buffer.from(JSON.stringify({ os: 'linux', architecture: 'amd64', salt }))
  for (const bytes of [config, layer]) await client.putBlob(path, bytes)
  const described = (bytes: Buffer, mediaType: string): JsonObject => ({ mediaType, digest: digestOf(bytes), size: bytes.length })
  const manifest = manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    config: described(config, 'application/vnd.oci.image.config.v1+json'),
    layers: [described(layer, 'application/vnd.oci.image.layer.v1.tar+gzip')],
  })
  expect((await client.putManifest(path, `t-${salt}`, manifest)).status).toBe(201)
  return { digest: manifest.digest, names }
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch(() => [])
}

/** Kills the process within a phase, if it comes. Resolves with true if the phase was seen. */
async function killWithin({ running, dataDir }: Ground, { folder, isShown, mostMs }: (typeof phases)[number], before: ReadonlySet<string>): Promise<boolean> {
  const deadline = performance.now() + waitMs
  let isSeen = false
  while (!isSeen && performance.now() < deadline) {
    isSeen = (await namesIn(join(dataDir, folder))).some((name) => isShown(name) && !before.has(name))
    if (!isSeen) await delay(1)
  }
  await delay(randomInt(mostMs))
  await running.end('SIGKILL')
  return isSeen
}

/** Resolves with the digests of all images that contain the shared package, from all pages. */
async function sharing({ rest, token, repo }: Ground): Promise<string[]> {
  const digests: string[] = []
  for (let pageToken = ''; ;) {
    const request = { purl: 'pkg:apk/alpine/shared', uidp: { ids: [repo.uid] }, pageSize: 50, pageToken }
    const page = ok(await rest.call('ListPackageImages', request, { token: await token() }))
    digests.push(...(page['images'] as JsonObject[]).map(({ digest }) => String(digest)))
    pageToken = String(page['nextPageToken'] ?? '')
    if (pageToken === '') return digests
  }
}

/** Expects that each image is listed once, and has its packages. */
async function expectWhole(ground: Ground, pushed: readonly Pushed[]): Promise<void> {
  const digests = pushed.map(({ digest }) => digest).sort()
  await expect.poll(() => sharing(ground).catch(String), { timeout: waitMs, interval: 200 }).toEqual(digests)
  const { rest, repo } = ground
  const token = await ground.token()
  for (const { digest, names } of pushed) {
    const answer = ok(await rest.call('ListPackages', { repoUid: repo.uid, digest, pageSize: 200 }, { token }))
    expect(answer).toMatchObject({ images: [{ digest, state: 'READ' }], totalCount: String(names.length) })
    expect((answer['packages'] as JsonObject[]).map(({ name }) => name)).toEqual(names)
  }
}

/** Kills the process in each phase in turn, while images wait. Afterwards all must be listed once and whole. */
async function campaign(ground: Ground): Promise<void> {
  const pushed: Pushed[] = []
  const pushSome = async (): Promise<void> => {
    const client = await ground.client()
    for (let count = 0; count < imagesPerRound; count += 1) pushed.push(await push(client, ground.repo.path))
    client.close()
  }
  await pushSome()
  await expectWhole(ground, pushed)
  let seen = 0
  for (let round = 0; round < kills; round += 1) {
    const phase = phases[round % phases.length] ?? phases[0]
    const before = new Set(await namesIn(join(ground.dataDir, phase.folder)))
    await pushSome()
    if (await killWithin(ground, phase, before)) seen += 1
    ground.running = await ground.start()
    await expectWhole(ground, pushed)
  }
  expect(seen).toBe(kills)
}

async function startAs(role: 'registry' | 'worker', { env, cwd, opsPort }: ApiHome): Promise<TaprootProcess> {
  const started = startProcess({ args: [role], env, cwd })
  await started.until(() => isReady(opsPort))
  return started
}

test(
  `taproot dev: after ${kills} kills while it reads and publishes, each image is listed once and whole`,
  { timeout: timeoutUnlessSoaking(7_200_000) },
  async () => {
    const home = await makeDevHome({ TAPROOT_RATE_LIMIT_ENABLED: 'false' })
    const running = await startDev(home)
    const dataDir = join(home.cwd, '.taproot')
    const token = (): Promise<string> => readToken(home)
    const client = async (): Promise<OciClient> => {
      return new OciClient(Number(home.env['TAPROOT_REGISTRY_PORT']), (await readFile(join(dataDir, 'registry-token'), 'utf8')).trim())
    }
    const { groups } = ok(await home.rest.call('ListGroups', { uidp: { inRoot: true } }, { token: await token() }))
    const [group] = groups as JsonObject[] // the list's answer
    const uid = String(ok(await home.rest.call('CreateRepo', { parent: group?.['uid'] ?? '', repo: { name: 'kills' } }, { token: await token() }))['uid'])
    const repo = { path: `${String(group?.['name'])}/kills`, uid }
    await campaign({ rest: home.rest, repo, dataDir, running, token, client, start: () => startDev(home) })
  },
)

test(
  `taproot worker on etcd: after ${kills} kills while it reads and publishes, each image is listed once and whole`,
  { timeout: timeoutUnlessSoaking(7_200_000) },
  async () => {
    const { homes, operatorToken } = await makeOperatedHomes(3)
    const [api, worker, registry] = homes
    if (api === undefined || worker === undefined || registry === undefined) throw new Error('three homes')
    await startApi(api)
    await startAs('registry', registry)
    const token = await operatorToken()
    const group = String(ok(await api.rest.call('CreateGroup', { group: { name: 'root' } }, { token }))['uid'])
    const uid = String(ok(await api.rest.call('CreateRepo', { parent: group, repo: { name: 'kills' } }, { token }))['uid'])
    const start = (): Promise<TaprootProcess> => startAs('worker', worker)
    const { TAPROOT_REGISTRY_PORT: port, TAPROOT_REGISTRY_HOST: host } = registry.env
    const client = async (): Promise<OciClient> => new OciClient(Number(port), await operatorToken(host))
    const repo = { path: 'root/kills', uid }
    const dataDir = worker.env['TAPROOT_DATA_DIR'] ?? ''
    await campaign({ rest: api.rest, repo, dataDir, running: await start(), token: () => Promise.resolve(token), client, start })
  },
)
