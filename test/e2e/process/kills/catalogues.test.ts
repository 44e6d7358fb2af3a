import { randomInt } from 'node:crypto'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { JsonObject } from '@bufbuild/protobuf'
import { decodeJwt } from 'jose'
import { expect, test } from 'vitest'
import { campaignLength, timeoutUnlessSoaking } from '../../../soak/factor.ts'
import type { ApiClient } from '../../../support/api-clients.ts'
import { osvDocument } from '../../../support/import-advisories.ts'
import { ok } from '../../../support/test-server.ts'
import { makeOperatedHomes, startApi } from '../harness/api-home.ts'
import { makeDevHome, readToken, startDev } from '../harness/dev-home.ts'
import { startProcess, type TaprootProcess } from '../harness/taproot-process.ts'

const kills = campaignLength({ short: 3, full: 100 })
const documents = 400
/** Longest time from the start of an import to the kill, in milliseconds. Some imports end before. */
const importingMs = 4_000
/** Maximum time in milliseconds until all processes serve the same catalogue. */
const agreeMs = 10_000

/** A process that serves catalogues, and is killed and started again. */
interface Server {
  readonly rest: ApiClient
  running: TaprootProcess
  start(): Promise<TaprootProcess>
}

/** Servers of one installation, with the command that imports. */
interface Ground {
  readonly servers: readonly Server[]
  readonly folder: string
  readonly group: string
  token(): Promise<string>
  importing(path: string): TaprootProcess
}

/** Writes the documents of a version: each names it. */
async function writeVersion(folder: string, version: number): Promise<string> {
  const path = join(folder, `version-${version}.jsonl`)
  const all = Array.from({ length: documents }, (_, at) => `${JSON.stringify(osvDocument(`D-${at}`, { aliases: [`version-${version}`] }))}\n`)
  await writeFile(path, all.join(''))
  return path
}

/** Resolves with the versions of all advisories that a server lists, one for each; undefined while it loads its first catalogue. */
async function versionsOf({ rest }: Server, token: string): Promise<string[] | undefined> {
  const versions: string[] = []
  for (let pageToken = ''; ;) {
    const reply = await rest.call('ListAdvisories', { pageSize: 200, pageToken }, { token })
    if (reply.code === 14) return undefined
    const body = ok(reply)
    versions.push(...((body['advisories'] ?? []) as JsonObject[]).map(({ aliases }) => String(aliases)))
    pageToken = String(body['nextPageToken'] ?? '')
    if (pageToken === '') return versions
  }
}

/** Waits until all servers list the same of these versions, whole, and returns it. */
async function agreed({ servers, token }: Ground, versions: readonly string[]): Promise<string> {
  const deadline = performance.now() + agreeMs
  for (;;) {
    const own = await token()
    const seen = await Promise.all(servers.map((server) => versionsOf(server, own)))
    const [first] = seen
    const whole = seen.every((all) => all?.length === documents && new Set(all).size === 1)
    const version = first?.[0]
    if (whole && version !== undefined && versions.includes(version) && seen.every((all) => all?.[0] === version)) return version
    if (performance.now() > deadline)
      throw new Error(`the servers disagree: ${JSON.stringify(seen.map((all) => [all?.length, ...new Set(all)]))}, expected ${versions.join()}`)
    await delay(50)
  }
}

/** Kills imports and servers at random times. After each, all servers must list the old or the new version whole. */
async function campaign(ground: Ground): Promise<void> {
  const { servers, folder } = ground
  expect(await ground.importing(await writeVersion(folder, 0)).ending()).toMatchObject({ code: 0 })
  // The last version that was seen, and those of killed imports since: each may have been published.
  let possible = ['version-0']
  await agreed(ground, possible)
  let finished = 0
  for (let round = 1; round <= kills; round += 1) {
    const importing = ground.importing(await writeVersion(folder, round))
    await delay(randomInt(importingMs))
    // In turn: the command, or a server that imports or switches.
    const server = round % 2 === 0 ? servers[randomInt(servers.length)] : undefined
    await (server?.running ?? importing).end('SIGKILL')
    const { code } = await importing.ending()
    if (server !== undefined) server.running = await server.start()
    if (code === 0) finished += 1
    const version = `version-${round}`
    possible = code === 0 ? [version] : [...possible, version]
    const seen = await agreed(ground, possible)
    possible = possible.slice(possible.indexOf(seen))
  }
  expect(await ground.importing(await writeVersion(folder, kills + 1)).ending()).toMatchObject({ code: 0 })
  await agreed(ground, [`version-${kills + 1}`])
  // Otherwise the kills came always, or never, before the end.
  if (kills > 20) expect(finished).toBeGreaterThan(0)
}

test(
  `taproot dev: ${kills} kills during imports and switches leave the old or the new catalogue, whole`,
  { timeout: timeoutUnlessSoaking(7_200_000) },
  async () => {
    const home = await makeDevHome({ TAPROOT_RATE_LIMIT_ENABLED: 'false' })
    const running = await startDev(home)
    const group = (decodeJwt(await readToken(home)).sub ?? '').split('/')[0] ?? ''
    const server: Server = { rest: home.rest, running, start: () => startDev(home) }
    const importing = (path: string): TaprootProcess => startProcess({ args: ['import', path, '--group', group, '--replace'], env: home.env, cwd: home.cwd })
    await campaign({ servers: [server], folder: home.cwd, group, token: () => readToken(home), importing })
    const left = await readdir(join(home.cwd, '.taproot', 'catalogues'))
    expect(left.filter((name) => name.endsWith('.sqlite')).length).toBeLessThanOrEqual(6)
  },
)

test(
  `three taproot api on etcd: ${kills} kills during imports and switches leave the old or the new catalogue, whole and everywhere`,
  { timeout: timeoutUnlessSoaking(7_200_000) },
  async () => {
    const { homes, operatorToken } = await makeOperatedHomes(3)
    const [first] = homes
    if (first === undefined) throw new Error('three homes')
    const servers = await Promise.all(
      homes.map(async (home): Promise<Server> => ({ rest: home.rest, running: await startApi(home), start: () => startApi(home) })),
    )
    const token = await operatorToken()
    const group = String(ok(await first.rest.call('CreateGroup', { group: { name: 'root' } }, { token }))['uid'])
    const importing = (path: string): TaprootProcess =>
      startProcess({ args: ['import', path, '--group', group, '--replace', '--role', 'api'], env: first.env, cwd: first.cwd })
    await campaign({ servers, folder: first.cwd, group, token: () => Promise.resolve(token), importing })
  },
)
