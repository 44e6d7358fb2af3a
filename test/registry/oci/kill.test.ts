import { randomInt } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { etcdSettings, shareEtcd } from '../../support/parts/etcd.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { makeDevHome, startDev, type DevHome } from '../../e2e/process/harness/dev-home.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'
import { OciClient, type TestManifest } from './oci-client.ts'

const kills = campaignLength({ short: 4, full: 15 })
/** The maximum of acknowledged pushes in a round before the kill, and of the kill's delay in milliseconds. The kill hits one of the next pushes. */
const mostPushes = 4
const killWithinMs = 150
const repository = 'demo/killed'

/** Pushes images under one tag, and records acknowledgements. */
class Pusher {
  readonly tag: string
  /** The manifest of the last acknowledged push. */
  acknowledged: TestManifest | undefined
  /** The push that was pending at the kill. */
  pending: TestManifest | undefined
  /** The acknowledged digests, in order. */
  readonly moves: string[] = []
  /** The statuses of refused pushes. */
  readonly refusals: number[] = []

  constructor(tag: string) {
    this.tag = tag
  }

  /** Pushes until the server has ended. */
  async push(client: OciClient): Promise<void> {
    try {
      for (;;) {
        const manifest = await client.image(repository)
        this.pending = manifest
        const { status } = await client.putManifest(repository, this.tag, manifest)
        if (status !== 201) {
          this.refusals.push(status)
          return
        }
        this.#took(manifest)
      }
    } catch {
      // The server was killed: the pending push may exist or not.
    }
  }

  #took(manifest: TestManifest): void {
    this.acknowledged = manifest
    this.moves.push(manifest.digest)
    this.pending = undefined
  }

  /** Asserts that the old or the new state is complete; the present one counts as acknowledged. */
  async check(client: OciClient): Promise<void> {
    const answer = await client.send('GET', `/v2/${repository}/manifests/${this.tag}`)
    if (this.acknowledged === undefined && answer.status === 404) return
    expect(answer.status).toBe(200)
    const digest = digestOf(answer.body)
    expect([this.acknowledged?.digest, this.pending?.digest]).toContain(digest)
    if (digest === this.pending?.digest) this.#took(this.pending)
    const { config, layers } = JSON.parse(answer.body.toString()) as { config: { digest: string }; layers: { digest: string }[] } // a cast of what was pushed
    for (const part of [config, ...layers]) {
      const blob = await client.send('GET', `/v2/${repository}/blobs/${part.digest}`)
      expect([blob.status, digestOf(blob.body)]).toEqual([200, part.digest])
    }
    const { history } = JSON.parse((await client.send('GET', `/v2/${repository}/_service/history/${this.tag}`)).body.toString()) as {
      history: { digest: string }[]
    } // a cast of what the spec says
    expect(history.map((record) => record.digest)).toEqual(this.moves)
    this.pending = undefined
  }
}

function movesOf(pushers: readonly Pusher[]): number {
  return pushers.reduce((sum, { moves }) => sum + moves.length, 0)
}

async function clientOf(home: DevHome): Promise<OciClient> {
  const token = (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim()
  return new OciClient(Number(home.env['TAPROOT_REGISTRY_PORT']), token)
}

/** The storage of a server, with the processes that are sometimes killed with it, and their restart. */
interface Setting {
  readonly home: DevHome
  killToo(): Promise<void>
  bringBack(): Promise<void>
}

async function embedded(): Promise<Setting> {
  const nothing = (): Promise<void> => Promise.resolve()
  return { home: await makeDevHome(), killToo: nothing, bringBack: nothing }
}

/** Storage in etcd and a distribution registry, which is killed too. */
async function ofParts(): Promise<Setting> {
  const [etcd, registry] = await Promise.all([shareEtcd(), startRegistry()])
  onTestFinished(() => registry.stop())
  const home = await makeDevHome({ ...etcdSettings(etcd), TAPROOT_REGISTRY_UPSTREAM_URL: registry.url })
  return { home, killToo: () => registry.kill(), bringBack: () => registry.restart() }
}

test.for([
  ['on the embedded store and upstream', embedded, kills],
  ['on etcd and a distribution registry that is killed too', ofParts, Math.ceil(kills / 2)],
] as const)(
  'taproot dev %s: after kills during pushes, each tag has its old or its new state',
  { timeout: timeoutUnlessSoaking(300_000) },
  async ([, set, rounds]) => {
    const { home, killToo, bringBack } = await set()
    const pushers = ['one', 'two', 'three'].map((tag) => new Pusher(tag))
    for (let round = 0; round <= rounds; round++) {
      const running = await startDev(home)
      const client = await clientOf(home)
      for (const pusher of pushers) if (round > 0) await pusher.check(client)
      const pushing = pushers.map((pusher) => pusher.push(client))
      const goal = movesOf(pushers) + 1 + randomInt(mostPushes)
      await vi.waitFor(() => expect(movesOf(pushers)).toBeGreaterThanOrEqual(goal), { timeout: 120_000, interval: 5 })
      await delay(randomInt(killWithinMs))
      const together = round % 2 === 1
      if (together) await killToo()
      await running.end('SIGKILL')
      await Promise.all(pushing)
      client.close()
      if (together) await bringBack()
    }
    expect(movesOf(pushers)).toBeGreaterThan(rounds)
    // The server refuses only if another process was killed before it.
    expect(pushers.flatMap(({ refusals }) => refusals).filter((status) => status !== 503)).toEqual([])
  },
)
