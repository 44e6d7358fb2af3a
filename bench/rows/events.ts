import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { PostLoad } from '../load/load.ts'
import { compare, cpuTimeOf, median, type Measured } from '../measure.ts'
import { startSink, type SinkReport, type SinkServer } from '../subjects/sinks.ts'
import type { Taproot } from '../subjects/taproot.ts'
import { taprootLoad } from './loads.ts'
import { costRow, type Row, type RowGroup } from './row.ts'

/** Number of subscriptions that receive each event. Together they may have as many concurrent deliveries as one organisation may have. */
const subscriptions = 8
const underWay = 64
const eventsPerRound = 400
const writers = 16
/** Number of subscriptions on the root group in which creates are measured. */
const many = 1_000
const groupEvents = 'dev.taproot.api.iam.group.'

/** An organisation on a server with the embedded store. */
class World {
  readonly #server: Taproot
  readonly #token: string
  readonly group: string

  constructor(server: Taproot, token: string, group: string) {
    this.#server = server
    this.#token = token
    this.group = group
  }

  static async start(server: Taproot): Promise<World> {
    const token = await server.tokenOf(subjects.operator)
    const { uid } = await server.call(token, '/iam/v2/groups', { name: `team-${Date.now()}-${process.hrtime.bigint()}` })
    return new World(server, token, String(uid))
  }

  async subscribe(sink: string, types: readonly string[]): Promise<string> {
    return String((await this.#call(`/events/v2/subscriptions/${this.group}`, { sink, types }))['uid'])
  }

  async verb(subscription: string, verb: 'pause' | 'resume'): Promise<void> {
    await this.#call(`/events/v2/subscriptions/${subscription}:${verb}`, {})
  }

  async makeEvents(count: number): Promise<void> {
    let left = count
    const write = async (): Promise<void> => {
      while (left > 0) await this.#call(`/iam/v2/groups/${this.group}`, { name: `event-${(left -= 1)}-${process.hrtime.bigint()}` })
    }
    await Promise.all(Array.from({ length: writers }, write))
  }

  #call(path: string, body: unknown): Promise<Record<string, unknown>> {
    return this.#server.call(this.#token, path, body)
  }
}

async function startServer(environment: Environment, sink?: SinkServer): Promise<Taproot> {
  const directory = join(await environment.directory(), `events-${Date.now()}`)
  await mkdir(directory)
  const sinkCaFile = join(directory, 'sinks.pem')
  if (sink !== undefined) await writeFile(sinkCaFile, sink.ca)
  return environment.startTaproot({ store: { sqlite: join(directory, 'taproot.db') }, ...(sink && { sinkCaFile }) })
}

/** Duration of one round of deliveries. */
interface Deliveries {
  readonly perSecond: number
  readonly cpuMicros: number
}

/** Creates events while deliveries are paused, then measures their delivery. */
async function deliver(world: World, { server, sink, uids, before }: { server: Taproot; sink: SinkServer; uids: readonly string[]; before: number }) {
  for (const uid of uids) await world.verb(uid, 'pause')
  await world.makeEvents(eventsPerRound)
  const [cpu, start] = [await cpuTimeOf(server.pid), performance.now()]
  await Promise.all(uids.map((uid) => world.verb(uid, 'resume')))
  const count = eventsPerRound * uids.length
  const report = await sink.received(before + count)
  const seconds = (performance.now() - start) / 1000
  const deliveries: Deliveries = { perSecond: count / seconds, cpuMicros: ((await cpuTimeOf(server.pid)) - cpu) / count }
  return { report, deliveries }
}

/** Returns the request that a sink received, for the bare loop. */
function loadOf(sink: SinkServer, { headers, body }: SinkReport): PostLoad {
  const pairs = headers.flatMap((name, at) => (at % 2 === 0 ? [[name, headers[at + 1] ?? ''] as const] : []))
  const own = pairs.filter(([name]) => /^(?:ce-|authorization$|content-type$)/i.test(name))
  return { kind: 'post', url: sink.url, ca: sink.ca, headers: Object.fromEntries(own), body, connections: underWay }
}

function summary(name: string, rounds: readonly Deliveries[]): Measured {
  const ofRounds = { perSecond: median(rounds.map((round) => round.perSecond)), cpuMicros: median(rounds.map((round) => round.cpuMicros)) }
  return { name, ...ofRounds, cpuMicrosOf: {}, p50: NaN, p99: NaN, classes: {}, generatorBusy: NaN, bytesPerAnswer: 0 }
}

/** Returns the medians of the rounds' ratios: of deliveries per second, and of processor time. */
function ratios([first, second]: readonly [readonly Deliveries[], readonly Deliveries[]]): Pick<Row, 'unit' | 'value' | 'cpu'> {
  const ratio = (of: (one: Deliveries, other: Deliveries) => number): number => median(first.map((one, at) => of(one, second[at] ?? one)))
  const value = ratio((one, other) => one.perSecond / other.perSecond)
  return { unit: 'x', value, cpu: ratio((one, other) => other.cpuMicros / one.cpuMicros) }
}

async function measureDeliveries(environment: Environment): Promise<Row> {
  const sink = await startSink()
  const server = await startServer(environment, sink)
  try {
    const world = await World.start(server)
    const uids = await Promise.all(Array.from({ length: subscriptions }, () => world.subscribe(sink.url, [groupEvents])))
    const first = await deliver(world, { server, sink, uids, before: 0 })
    let { events } = first.report
    return await environment.withGenerators([loadOf(sink, first.report)], async ([bare]) => {
      const done: [Deliveries[], Deliveries[]] = [[], []]
      const { rounds, milliseconds } = environment.scale.rounds
      for (let round = -2; round < rounds; round += 1) {
        const ours = await deliver(world, { server, sink, uids, before: events })
        const counts = await bare.round(2 * milliseconds)
        events = ours.report.events + counts.requests
        // The first rounds are for warm-up.
        if (round < 0) continue
        done[0].push(ours.deliveries)
        done[1].push({ perSecond: counts.requests / counts.seconds, cpuMicros: counts.cpuMicros / counts.requests })
      }
      return {
        id: 'events-deliver',
        title: 'deliveries to fast sinks to a bare loop of undici with ready requests',
        goal: { atLeast: 0.5 },
        ...ratios(done),
        measured: [summary('Taproot', done[0]), summary('bare undici', done[1])],
        note: `${subscriptions} subscriptions, ${underWay} events under way, each event signed once`,
      }
    })
  } finally {
    await server.stop()
    await sink.stop()
  }
}

/** Compares deliveries in alternating rounds, with and without another subscription whose sink never answers. */
async function measureBadSink(environment: Environment): Promise<Row> {
  const sink = await startSink()
  const server = await startServer(environment, sink)
  try {
    const world = await World.start(server)
    const uids = await Promise.all(Array.from({ length: subscriptions }, () => world.subscribe(sink.url, [groupEvents])))
    let { events } = (await deliver(world, { server, sink, uids, before: 0 })).report
    const round = async (): Promise<Deliveries> => {
      const { report, deliveries } = await deliver(world, { server, sink, uids, before: events })
      events = report.events
      return deliveries
    }
    const done: [Deliveries[], Deliveries[]] = [[], []]
    for (let number = -1; number < environment.scale.rounds.rounds; number += 1) {
      const silent = await world.subscribe(sink.silentUrl, [groupEvents])
      const beside = await round()
      await world.verb(silent, 'pause')
      const alone = await round()
      // The first rounds are for warm-up.
      if (number < 0) continue
      done[0].push(beside)
      done[1].push(alone)
    }
    return {
      id: 'events-bad-sink',
      title: 'deliveries while one sink of the organisation never answers to deliveries without it',
      goal: { atLeast: 0.9 },
      ...ratios(done),
      measured: [summary('with a silent sink', done[0]), summary('without', done[1])],
    }
  } finally {
    await server.stop()
    await sink.stop()
  }
}

/** Compares two organisations on one server. One has many subscriptions, to events that its creates do not cause. */
async function measureSubscriptions(environment: Environment): Promise<Row> {
  const { connections, rounds } = environment.scale
  const server = await startServer(environment)
  try {
    const [subscribed, bare] = [await World.start(server), await World.start(server)]
    for (let number = 0; number < many; number += 1) await subscribed.subscribe('https://hooks.example.com/events', ['dev.taproot.registry.push.'])
    const loadIn = ({ group }: World) => {
      const requests = [{ method: 'POST', path: `/iam/v2/groups/${group}`, body: JSON.stringify({ name: 'team-$N' }) }] as const
      return taprootLoad(server, subjects.operator, { connections, requests })
    }
    return await environment.withGenerators([await loadIn(subscribed), await loadIn(bare)], async ([first, second]) => {
      const pids = [server.pid]
      const comparison = await compare({ name: 'with subscriptions', generator: first, pids }, { name: 'without', generator: second, pids }, rounds)
      const title = `cost of a create with ${many.toLocaleString('en')} subscriptions on its root to one without`
      return costRow({ id: 'events-subscriptions', title, goal: { atMost: 1.05 } }, comparison)
    })
  } finally {
    await server.stop()
  }
}

/** Deliveries of events, and the cost of subscriptions for creates. */
export const eventRows: RowGroup = {
  name: 'events',
  about:
    'deliveries against a bare loop of undici with the same requests, and with a silent sink against without; create with many subscriptions against create without',
  needs: 'etcd',
  rows: [
    { id: 'events-deliver', measure: measureDeliveries },
    { id: 'events-bad-sink', measure: measureBadSink },
    { id: 'events-subscriptions', measure: measureSubscriptions },
  ],
}
