import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { decodeJwt } from 'jose'
import { seededRandom, type SeededRandom } from '../schedules/random.ts'
import { ApiCalls } from './api-calls.ts'
import { createGuestKey, Guest } from './guest.ts'
import type { History, HistoryKind, Operation, Outcome, Seen } from './history.ts'
import { kinds, Place, Versions } from './known-records.ts'
import { RecordedCalls, type Send, type Unsettled } from './recorded-calls.ts'
import { isForeignTo, queryOf, WorkloadClient, type SharedWorld } from './workload-client.ts'

/** The options of a workload. */
export interface WorkloadOptions {
  /** Base URLs of the replicas; each serves REST and gRPC. */
  readonly endpoints: readonly string[]
  /** Returns an operator's access token. Called every few minutes, and after a refusal. */
  readonly token: () => Promise<string>
  /** Decides all choices of all clients, but not how they interleave. */
  readonly seed: number
  /** Number of concurrent clients. Each performs one action at a time. */
  readonly clients: number
  readonly history: History
  /** Maximum wait for an answer in milliseconds; 5,000 by default. A later answer counts as an unknown outcome. */
  readonly callTimeoutMs?: number
  /** False if idempotency keys are unreliable, as after clock jumps of more than a day. Then no create is repeated. True by default. */
  readonly repeatsCreations?: boolean
  /** False if tokens may end at any time: then there is no guest, whose refusals show its rights. True by default. */
  readonly hasGuest?: boolean
}

/** The result of a workload. */
export interface WorkloadSummary {
  readonly seed: number
  /** The root group that it created; undefined if it did not get that far. */
  readonly root: string | undefined
  readonly operations: number
  readonly outcomes: Readonly<Record<Outcome, number>>
  /** Longest time between two acknowledged writes, in milliseconds. */
  readonly longestGapMs: number
}

/** A running workload. */
export interface Workload {
  /** Number of acknowledged writes, which schedules wait for. */
  readonly acknowledged: number
  /** Number of completed operations, with any outcome. */
  readonly ended: number
  /** Lets every client complete its action, in at most `callTimeoutMs`. Rejects after an answer that the API may not give. */
  stop(): Promise<WorkloadSummary>
  /**
   * Repeats the unanswered creates after `stop`, when all replicas work again. Then reads and lists everything through every replica, as part of the history.
   * Rejects if there is no answer.
   */
  settle(): Promise<void>
}

const defaultTimeoutMs = 5_000
/** Number of groups in use at one time. */
const openPlaces = 3
const chiefs = 3
/** Maximum pause after an action without effect, in milliseconds. */
const pauseMs = 150
/** Maximum time to settle one answer, in milliseconds. */
const settleTimeoutMs = 30_000
/** Number of deleted records of a group that are read again. */
const goneSampled = 20

/** Starts the clients. They create their own root group, so that any number of workloads can run on one installation, each with its own history. */
export function startWorkload(options: WorkloadOptions): Workload {
  return new RunningWorkload(options)
}

class RunningWorkload implements Workload {
  acknowledged = 0
  ended = 0
  readonly #options: WorkloadOptions
  readonly #calls: ApiCalls
  readonly #outcomes: Record<Outcome, number> = { ok: 0, absent: 0, stale: 0, taken: 0, refused: 0, unknown: 0 }
  readonly #wrong: string[] = []
  readonly #stopping = new AbortController()
  readonly #versions = new Versions()
  readonly #run = `r${randomBytes(4).toString('hex')}`
  readonly #unsettled: Unsettled[] = []
  #guestCalls: ApiCalls | undefined
  #guestPlace: Place | undefined
  readonly #playing: Promise<unknown>
  #world: SharedWorld | undefined
  #lastAcknowledgedAt = performance.now()
  #longestGapMs = 0

  constructor(options: WorkloadOptions) {
    this.#options = options
    const { endpoints, token, callTimeoutMs = defaultTimeoutMs } = options
    this.#calls = new ApiCalls({ endpoints, token, timeoutMs: callTimeoutMs })
    this.#playing = this.#play()
    // Called by stop().
    this.#playing.catch(() => undefined)
  }

  async stop(): Promise<WorkloadSummary> {
    this.#stopping.abort()
    await this.#playing
    this.#noteGap()
    if (this.#wrong.length > 0) throw new Error(`${this.#wrong.length} wrong answers: ${this.#wrong.slice(0, 5).join('; ')}`)
    return {
      seed: this.#options.seed,
      root: this.#world?.root.uid,
      operations: this.ended,
      outcomes: { ...this.#outcomes },
      longestGapMs: this.#longestGapMs,
    }
  }

  async settle(): Promise<void> {
    const random = seededRandom(`${this.#options.seed} settle`)
    const recorded = this.#recordedCalls(this.#options.clients, (call) => this.#calls.callAny(random, call))
    for (const unsettled of this.#unsettled.splice(0)) await insist(() => recorded.settle(unsettled))
    const world = this.#world
    if (world !== undefined) {
      const guestPlaces = this.#guestPlace === undefined ? [] : [this.#guestPlace]
      for (const place of [world.root, ...world.places, ...world.closed, ...guestPlaces]) await this.#reread(world, place)
    }
    this.#calls.close()
    this.#guestCalls?.close()
    if (this.#wrong.length > 0) throw new Error(`wrong answers: ${this.#wrong.slice(0, 5).join('; ')}`)
  }

  /** Lists a group completely and reads its records through every endpoint; reads a replaced group through one. */
  async #reread(world: SharedWorld, place: Place): Promise<void> {
    const { apiClients } = this.#calls
    const closedAt = world.closed.indexOf(place)
    const through = closedAt < 0 ? apiClients : apiClients.filter((_, index) => index === closedAt % apiClients.length)
    const known = closedAt < 0 ? [...place.all(), ...place.gone().slice(-goneSampled)] : [...place.all().slice(-goneSampled)]
    for (const [index, apiClient] of through.entries()) {
      const recorded = this.#recordedCalls(this.#options.clients, (call) => this.#calls.callAt(apiClient, call))
      for (const kind of place === world.root ? (['Group', 'Identity', 'RoleBinding'] as const) : kinds) {
        const query = queryOf(place, { below: place !== world.root && index % 2 === 1 })
        await insist(async () => (await recorded.list({ kind, parent: place.uid, query, isForeign: isForeignTo(world, place) })) !== undefined)
      }
      const records = known.filter((_, at) => at % through.length === index)
      for (const { kind, seen } of records) await insist(async () => (await recorded.read({ kind, parent: place.uid, uid: seen.uid })) !== undefined)
    }
  }

  async #play(): Promise<void> {
    const world = await this.#prepare()
    this.#world = world
    if (world === undefined) return
    const clients = Array.from({ length: this.#options.clients }, (_, number) => this.#client(world, number))
    const guestRandom = seededRandom(`${this.#options.seed} guest`)
    const guest = (this.#options.hasGuest ?? true) ? await this.#invite(world, guestRandom) : undefined
    const guests = guest === undefined ? [] : [this.#keepActing(guest, guestRandom)]
    await Promise.all([...guests, ...clients.map(({ client, random }) => this.#keepActing(client, random))])
  }

  async #keepActing(client: Pick<WorkloadClient, 'act'>, random: SeededRandom): Promise<void> {
    try {
      while (!this.#stopping.signal.aborted) if (!(await client.act())) await this.#pause(random)
    } catch (error) {
      // The others need not continue either.
      this.#stopping.abort()
      throw error
    }
  }

  #client(world: SharedWorld, number: number): { client: WorkloadClient; random: SeededRandom } {
    const random = seededRandom(`${this.#options.seed} client ${number}`)
    const calls = this.#recordedCalls(number, (call) => this.#calls.callAny(random, call))
    return { client: new WorkloadClient({ number, calls, world, random }), random }
  }

  /** Creates the root group and the permanent records; undefined if the workload was stopped before. */
  async #prepare(): Promise<SharedWorld | undefined> {
    const random = seededRandom(`${this.#options.seed} prepare`)
    const calls = this.#recordedCalls(this.#options.clients, (call) => this.#calls.callAny(random, call))
    let attempts = 0
    const seen = await this.#untilStopped(random, () => {
      attempts += 1
      const tag = `${this.#run}-root-${attempts}`
      const [name, value] = [`faults ${tag}`, `${tag} 0`]
      const creation = { kind: 'Group', parent: '/', fields: { name, description: value }, value, tag, name, idempotencyKey: tag } as const
      return calls.create(creation, (left) => this.#unsettled.push(left))
    })
    if (seen === undefined) return undefined
    const root = new Place(seen.uid, 'root')
    const caller = decodeJwt(await this.#options.token()).sub ?? ''
    const shared = { run: this.#run, root, versions: this.#versions, unsettled: this.#unsettled, caller }
    const world: SharedWorld = { ...shared, places: [], closed: [], repeatsCreations: this.#options.repeatsCreations ?? true }
    const { client } = this.#client(world, this.#options.clients)
    for (let place = 0; place < openPlaces; place += 1) await this.#untilStopped(random, () => client.openPlace())
    for (let chief = 0; chief < chiefs; chief += 1) await this.#untilStopped(random, () => client.appointChief())
    return world.places.length === 0 ? undefined : world
  }

  /** Creates an identity without rights, in its own group; undefined if the workload was stopped before. */
  async #invite({ root, unsettled }: SharedWorld, random: SeededRandom): Promise<Guest | undefined> {
    const { clients, endpoints, callTimeoutMs: timeoutMs = defaultTimeoutMs } = this.#options
    const host = this.#recordedCalls(clients + 1, (call) => this.#calls.callAny(random, call))
    let attempts = 0
    const make = (kind: HistoryKind, parent: string, more: Record<string, object> = {}): Promise<Seen | undefined> =>
      this.#untilStopped(random, () => {
        attempts += 1
        const tag = `${this.#run}-guest-${attempts}`
        const [name, value] = [`guest ${attempts}`, `${tag} 0`]
        this.#versions.wrote(value, name)
        const claim = kind === 'Group' ? { name } : {}
        const creation = { kind, parent, fields: { name, description: value, ...more }, value, tag, idempotencyKey: tag, ...claim }
        return host.create(creation, (left) => this.#unsettled.push(left))
      })
    const key = await createGuestKey()
    const group = await make('Group', root.uid)
    if (group === undefined) return undefined
    const place = (this.#guestPlace = new Place(group.uid, 'guest'))
    const identity = (await make('Identity', group.uid, { staticKeys: key.staticKeys }))?.uid
    if (identity === undefined) return undefined
    const calls = (this.#guestCalls = new ApiCalls({ endpoints, token: () => key.signIn({ endpoints, identity, random, timeoutMs }), timeoutMs }))
    const guest = this.#recordedCalls(clients + 2, (call) => calls.callAny(random, call))
    return new Guest({ run: this.#run, place, identity, random, host, guest, unsettled })
  }

  /** Repeats an attempt until it has an effect. */
  async #untilStopped<T>(random: SeededRandom, attempt: () => Promise<T | undefined | false>): Promise<T | undefined> {
    while (!this.#stopping.signal.aborted) {
      const result = await attempt()
      if (result !== undefined && result !== false) return result
      await this.#pause(random)
    }
    return undefined
  }

  #recordedCalls(client: number, send: Send): RecordedCalls {
    const { history, seed } = this.#options
    const random = seededRandom(`${seed} pauses ${client}`)
    return new RecordedCalls({
      client,
      history,
      versions: this.#versions,
      send,
      pause: () => this.#pause(random),
      ended: (operation) => this.#note(operation),
      wrong: (text) => this.#wrong.push(text),
    })
  }

  #note({ action, outcome }: Operation): void {
    this.ended += 1
    this.#outcomes[outcome] += 1
    if (outcome !== 'ok' || action === 'read' || action === 'list' || action === 'use') return
    this.acknowledged += 1
    this.#noteGap()
  }

  #noteGap(): void {
    const now = performance.now()
    this.#longestGapMs = Math.max(this.#longestGapMs, now - this.#lastAcknowledgedAt)
    this.#lastAcknowledgedAt = now
  }

  /** False once the workload is stopping. */
  async #pause(random: SeededRandom): Promise<boolean> {
    try {
      await delay(random.between(5, pauseMs), undefined, { signal: this.#stopping.signal })
      return true
    } catch {
      // It was stopped during the pause.
      return false
    }
  }
}

/** Repeats an attempt until it succeeds. Throws after the time limit. */
async function insist(attempt: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + settleTimeoutMs
  while (!(await attempt())) {
    if (performance.now() > deadline) throw new Error('no answer although everything should be well')
    await delay(100)
  }
}
