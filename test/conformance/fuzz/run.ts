import { setTimeout as delay } from 'node:timers/promises'
import { dumpOf } from './dump.ts'
import { sendGrpc } from './grpc-client.ts'
import type { GrpcDraft } from './requests/grpc-draft.ts'
import { sendHttp } from './http-client.ts'
import { sendHttp2Bytes } from './http2-wire.ts'
import { judgeGrpc } from './judge-grpc.ts'
import { judgeHttp, type BreachKind, type Finding } from './judge-http.ts'
import { makeRequest, requestIdOf, type Made, type Transport } from './requests/make-request.ts'
import type { Corpus, StateChange } from './protocol.ts'
import { Tally, type Breach } from './report.ts'
import type { Target } from './target.ts'

/** The options of a run. */
export interface RunOptions {
  readonly seed: number
  /** The number of the first request; 1 by default. */
  readonly from?: number
  readonly requests: number
  readonly only?: Transport | undefined
  /** How long one request may take, milliseconds. */
  readonly boundMs: number
  /** After so many breaches the run ends. */
  readonly maxBreaches?: number
  /** Called with the progress, every thousand requests. */
  readonly progress?: (done: number) => void
}

/** The result of a run. */
export interface RunResult {
  readonly tally: Tally
  readonly breaches: readonly Breach[]
  readonly sent: number
  readonly accepted: number
  /** Memory in bytes, over the run. */
  readonly memory: readonly number[]
}

/** The fate of a request: accepted, refused, or unknown. It decides whether a change is allowed. */
type Fate = 'accepted' | 'refused' | 'unknown'

const batchSize = 200
/** Number of concurrent requests that change nothing. */
const lanes = 8
/** Number of batches after which the records are created again, so that deleted ones exist. */
const batchesPerWorld = 10
/** Number of later requests after which a request without a reader has ended. */
const timeouts = 30
/** Number of memory samples in a run, the first after a quarter of it. */
const memoryLooks = 6
/**
 * Growth that is not a leak: code and caches that fill in the first thousand requests, and each request's share of the records.
 * A healthy server grew by 2 MiB from the 400th to the 1,000th request. In 20,000 requests it grew by 0.7 KiB (SQLite) or 1.3 KiB (etcd) for each.
 */
const memoryNoise = 4 * 1024 * 1024
const memoryPerRequest = 2 * 1024

/** A permitted change by a refused request. */
interface MeantChange {
  readonly why: string
  readonly matches: (made: Made, change: StateChange) => boolean
}

/** The complete table. Any other is a breach. */
const meantChanges: readonly MeantChange[] = [
  {
    why: 'a refresh token that is used twice ends all that followed it (docs/security.md)',
    matches: ({ what }, { key }) =>
      ['SecurityTokenService/ExchangeRefreshToken', 'POST /oauth/token for a refresh token'].includes(what) && key.startsWith('x/refresh/'),
  },
  {
    why: 'a first push makes its repo, and the groups above it, before its bytes are judged (docs/registry.md)',
    matches: ({ what }, { key }) => what === 'registry POST' && /^(?:(?:i\/name|r)\/(?:Group|Repo)|x\/outbox)\//.test(key),
  },
]

/** The memory of the process after a number of requests. */
interface MemoryLook {
  readonly sent: number
  readonly bytes: number
}

function leastOf(looks: readonly MemoryLook[]): MemoryLook | undefined {
  return looks.toSorted((a, b) => a.bytes - b.bytes)[0]
}

/** Sends requests and checks their effects. */
export class Run {
  readonly #target: Target
  readonly #options: RunOptions
  readonly #tally = new Tally()
  readonly #breaches: Breach[] = []
  readonly #memory: MemoryLook[] = []
  #accepted = 0
  #sent = 0
  #last: Made | undefined
  /** Number of requests since the last one without a reader, which may still run. */
  #sinceUnknown = Infinity

  constructor(target: Target, options: RunOptions) {
    this.#target = target
    this.#options = options
  }

  /** Sends all requests. Ends early if the server ended or enough breaches were found. */
  async all(): Promise<RunResult> {
    const { from = 1, requests, seed, only, progress } = this.#options
    let corpus: Corpus | undefined
    try {
      for (let done = 0, batch = 0; done < requests && !this.#isEnough(); done += batchSize, batch += 1) {
        if (corpus === undefined || batch % batchesPerWorld === 0) corpus = await this.#freshCorpus()
        const numbers = Array.from({ length: Math.min(batchSize, requests - done) }, (_, index) => from + done + index)
        // A constant, so that the closure does not see a later world.
        const world = corpus
        await this.#batch(numbers.map((number) => makeRequest({ seed, number, corpus: world, only })))
        await this.#lookAtMemory(done / requests)
        if (Math.floor((done + batchSize) / 1000) > Math.floor(done / 1000)) progress?.(done + batchSize)
      }
      await this.#lookAtMemory(1)
      this.#judgeMemory()
    } catch (error) {
      if (this.#target.running()) throw error
      this.#breach({ kind: 'end', text: `by this request or one just before: ${String(error)}` }, this.#last)
    }
    const memory = this.#memory.map(({ bytes }) => bytes)
    return { tally: this.#tally, breaches: this.#breaches, sent: this.#sent, accepted: this.#accepted, memory }
  }

  #isEnough(): boolean {
    return this.#breaches.length >= (this.#options.maxBreaches ?? 20)
  }

  async #freshCorpus(): Promise<Corpus> {
    const corpus = await this.#target.corpus()
    await this.#quiet()
    return corpus
  }

  /** Sends requests that change nothing concurrently, then those that may change something one by one, then those without a reader. */
  async #batch(made: readonly Made[]): Promise<void> {
    const calm = made.filter(({ mutating }) => !mutating)
    const queue = [...calm]
    const lane = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined && !this.#isEnough(); next = queue.shift()) await this.#send(next)
    }
    await Promise.all(Array.from({ length: lanes }, lane))
    const changes = await this.#target.changes(true)
    if (changes.length > 0) await this.#nameCulprit(calm, changes)
    const mutating = made.filter((each) => each.mutating)
    const blind = mutating.filter(endsBlindly)
    for (const each of mutating.filter((one) => !endsBlindly(one))) if (!this.#isEnough()) await this.#sendWatched(each)
    for (const each of blind) await this.#send(each)
    if (blind.length > 0) await this.#quiet()
    await this.#lookAtLog(made)
  }

  /** Sends one request alone, and checks that it changes nothing if it is refused. */
  async #sendWatched(made: Made): Promise<void> {
    const fate = await this.#send(made)
    if (fate === 'unknown') return await this.#quiet()
    const changes = await this.#target.changes(fate === 'accepted')
    const unmeant = changes.filter((change) => !meantChanges.some(({ matches }) => matches(made, change)))
    if (fate !== 'refused' || unmeant.length === 0) return
    if (this.#sinceUnknown <= timeouts && !(await this.#changesAgain(made))) return
    this.#breach({ kind: 'state', text: `refused, and changed ${shownChanges(unmeant)}` }, made)
  }

  /** Returns whether the request makes the change again. The first change may be that of an earlier request that still ran. */
  async #changesAgain(made: Made): Promise<boolean> {
    await this.#quiet()
    const fate = await this.#send(made)
    return fate === 'refused' && (await this.#target.changes(true)).length > 0
  }

  /** Sends each of many requests again alone, because one of them made a change. */
  async #nameCulprit(made: readonly Made[], changes: readonly StateChange[]): Promise<void> {
    for (const each of made) {
      await this.#send(each)
      const again = await this.#target.changes(true)
      if (again.length > 0) return this.#breach({ kind: 'state', text: `it reads, and changed ${shownChanges(again)}` }, each)
    }
    if (this.#sinceUnknown < made.length * 2 + timeouts) return
    const numbers = made.map(({ number }) => number)
    this.#breach({ kind: 'state', text: `one of the requests ${numbers.join(', ')} changed ${shownChanges(changes)}` }, undefined)
  }

  /** Waits until the store no longer changes. */
  async #quiet(): Promise<void> {
    for (let calm = 0, looks = 0; calm < 2 && looks < 200; looks += 1) {
      calm = (await this.#target.changes(true)).length === 0 ? calm + 1 : 0
      await delay(10)
    }
  }

  async #send(made: Made): Promise<Fate> {
    if (!this.#target.running()) throw new Error('the server ended')
    this.#sent += 1
    this.#last = made
    const fate = made.transport === 'rest' ? await this.#sendRest(made) : await this.#sendGrpc(made)
    if (fate !== 'refused') this.#accepted += 1
    // A request that is refused as unreadable may have been executed in part.
    const isOver = fate !== 'unknown' && (made.transport === 'grpc' || made.draft.wire === undefined)
    this.#sinceUnknown = isOver ? this.#sinceUnknown + 1 : 0
    return fate
  }

  async #sendRest(made: Made & { transport: 'rest' }): Promise<Fate> {
    const { draft, forms, mutations } = made
    const outcome = await sendHttp(draft, { port: this.#target.ports[draft.port], boundMs: this.#options.boundMs })
    const answers = draft.wire === undefined ? outcome.answers.slice(0, 1) : outcome.answers
    this.#tally.add(`rest/${draft.port}`, answers.length === 0 ? outcome.ended : [...new Set(answers.map(({ status }) => status))].join('+'), mutations)
    for (const finding of judgeHttp(draft, outcome, forms)) this.#breach(finding, made)
    if (answers.some(({ status }) => status < 400)) return 'accepted'
    // After 4 seconds the server answers with a timeout, and may continue to work.
    const isDone = answers.length > 0 && answers.every(({ status }) => status !== 504) && draft.wire?.ending !== 'reset'
    return isDone ? 'refused' : 'unknown'
  }

  async #sendGrpc(made: Made & { transport: 'grpc' }): Promise<Fate> {
    if (made.draft.connection !== undefined) return await this.#sendConnection(made, made.draft.connection)
    const outcome = await sendGrpc(made.draft, { port: this.#target.ports.api, boundMs: this.#options.boundMs })
    const { code, ended, httpStatus } = outcome
    this.#tally.add('grpc', code === undefined ? (ended === 'closed' ? `HTTP ${httpStatus ?? 'none'}` : ended) : `code ${code}`, made.mutations)
    for (const finding of judgeGrpc(made.draft, outcome)) this.#breach(finding, made)
    if (code === 0) return 'accepted'
    return code === undefined || code === 4 || code === 1 || made.draft.ending === 'cancel' ? 'unknown' : 'refused'
  }

  async #sendConnection(made: Made, { bytes, isOpen }: NonNullable<GrpcDraft['connection']>): Promise<Fate> {
    const ended = await sendHttp2Bytes(bytes, { isOpen, port: this.#target.ports.api, boundMs: this.#options.boundMs })
    this.#tally.add('http2', ended, made.mutations)
    if (ended === 'late') this.#breach({ kind: 'hang', text: 'the connection neither goes on nor ends' }, made)
    return 'unknown'
  }

  async #lookAtLog(made: readonly Made[]): Promise<void> {
    for (const { requestId, text } of await this.#target.errors()) {
      const by = made.find(({ number }) => requestIdOf(number) === requestId)
      this.#breach({ kind: 'log', text: text.slice(0, 3000) }, by)
    }
  }

  async #lookAtMemory(part: number): Promise<void> {
    const due = 0.25 + (this.#memory.length * 0.75) / (memoryLooks - 1)
    if (part < Math.min(1, due)) return
    const { heap, external } = await this.#target.memory()
    this.#memory.push({ sent: this.#sent, bytes: heap + external })
  }

  /** Compares the first half of the samples with the last two. The least of each counts, since the rest is about to be freed. */
  #judgeMemory(): void {
    const half = Math.floor(this.#memory.length / 2)
    const [early, late] = [leastOf(this.#memory.slice(0, half)), leastOf(this.#memory.slice(-2))]
    if (half < 2 || early === undefined || late === undefined) return
    const requests = late.sent - early.sent
    const allowed = memoryNoise + requests * memoryPerRequest
    const grown = late.bytes - early.bytes
    if (grown > allowed) this.#breach({ kind: 'memory', text: `${grown} bytes more after ${requests} requests, of at most ${allowed}` }, undefined)
  }

  #breach({ kind, text }: Finding & { kind: BreachKind }, made: Made | undefined): void {
    this.#breaches.push({
      kind,
      request: made?.number ?? 0,
      mutations: made === undefined ? [] : [made.what, ...made.mutations],
      text,
      dump: made === undefined ? '' : dumpOf(made),
    })
  }
}

/** Returns whether no client reads how the request ended. */
function endsBlindly(made: Made): boolean {
  return made.transport === 'rest' ? made.draft.wire?.ending === 'reset' : made.draft.ending === 'cancel' || made.draft.connection !== undefined
}

function shownChanges(changes: readonly StateChange[]): string {
  const shown = changes.slice(0, 10).map(({ key, how }) => `${key} (${how})`)
  return `${shown.join(', ')}${changes.length > shown.length ? ` and ${changes.length - shown.length} more` : ''}`
}
