import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { until } from '../../e2e/process/harness/ops.ts'
import { startTcpProxy, type TcpProxy } from '../../support/parts/tcp-proxy.ts'
import type { Act, CandidateOptions } from './leader-process.ts'

// Leases expire in seconds.
vi.setConfig({ testTimeout: 150_000, maxConcurrency: 3 })

const program = resolve(import.meta.dirname, 'leader-process.ts')
/** Maximum time in milliseconds from the end of a leader to the first action of the next. */
const handoverMs = 15_000

/** Maximum time in milliseconds of other waits, on a busy machine. */
const timeoutMs = 60_000

/** Returns the machine's monotonic time, as the candidates report it. */
function nowMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000
}

/** Registers a cleanup of one test, because several tests run at once. */
type AtEnd = (end: () => Promise<void>) => void

/** Candidates for one Lease, and all their actions. */
class Candidates {
  readonly lease = { namespace: 'default', name: `lease-${randomBytes(4).toString('hex')}` }
  readonly acts: Act[] = []
  readonly #there = new Set<string>()
  readonly #kube: Kube
  readonly #atEnd: AtEnd

  constructor(kube: Kube, atEnd: AtEnd) {
    this.#kube = kube
    this.#atEnd = atEnd
  }

  /** Starts a candidate that is killed after the test. */
  start(identity: string, options: Partial<CandidateOptions> & { readonly port?: number } = {}): ChildProcess {
    const { port = this.#kube.apiserver.port, ...more } = options
    const { caPem: ca, token } = this.#kube.access
    const endpoint = { from: 'token', server: `https://127.0.0.1:${port}`, ca, token } as const
    const candidate: CandidateOptions = { endpoint, lease: this.lease, identity, skewMs: 0, drainMs: 0, ...more }
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, JSON.stringify(candidate)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    createInterface(child.stdout).on('line', (line) => {
      const act = JSON.parse(line) as Act // a cast of what the candidate wrote
      if (act.term === 0) this.#there.add(act.identity)
      else this.acts.push(act)
    })
    const exited = once(child, 'exit')
    this.#atEnd(async () => {
      child.kill('SIGKILL')
      await exited
    })
    return child
  }

  /** Resolves when it is a candidate. */
  there(identity: string): Promise<void> {
    return until(() => this.#there.has(identity), timeoutMs)
  }

  /** Resolves with its first action after a time. */
  async actOf(identity: string, afterMs = 0, withinMs = timeoutMs): Promise<Act> {
    const find = (): Act | undefined => this.acts.find((act) => act.identity === identity && act.atMs > afterMs)
    await until(() => find() !== undefined, withinMs)
    return find() as Act // a cast: it was just there
  }

  /** Returns the terms in order. Throws if one began to act before an earlier one had stopped. */
  terms(): readonly string[] {
    const spans = new Map<string, { first: number; last: number }>()
    for (const { identity, term, atMs } of this.acts) {
      const name = `${identity}${term}`
      const span = spans.get(name)
      spans.set(name, { first: Math.min(atMs, span?.first ?? atMs), last: Math.max(atMs, span?.last ?? atMs) })
    }
    const ordered = [...spans].sort(([, one], [, other]) => one.first - other.first)
    for (const [index, [name, { first }]] of ordered.entries()) {
      const earlier = ordered[index - 1]
      if (earlier !== undefined && earlier[1].last >= first) throw new Error(`${name} acted ${earlier[1].last - first} ms before ${earlier[0]} had ended`)
    }
    return ordered.map(([name]) => name)
  }
}

/** Returns a network to the API server that can fail. */
async function farFrom({ apiserver }: Kube, atEnd: AtEnd): Promise<TcpProxy> {
  const proxy = await startTcpProxy(apiserver.port)
  atEnd(() => proxy.close())
  return proxy
}

describeWithPart('kube-apiserver', 'leader election', () => {
  let kube: Kube

  beforeAll(async () => void (kube = await startKube()))
  afterAll(() => kube?.stop())

  test.concurrent('leader election has one leader of many candidates; the next follows at once when it stops', async ({ onTestFinished }) => {
    const candidates = new Candidates(kube, onTestFinished)
    const children = new Map(['a', 'b', 'c'].map((identity) => [identity, candidates.start(identity)]))
    await Promise.all([...children.keys()].map((identity) => candidates.there(identity)))
    await until(() => candidates.acts.length > 0, timeoutMs)
    for (let round = 0; round < 2; round++) {
      const leader = candidates.acts.at(-1)?.identity ?? ''
      const child = children.get(leader)
      const stoppedAtMs = nowMs()
      child?.kill('SIGTERM')
      await until(() => candidates.acts.at(-1)?.identity !== leader)
      const next = candidates.acts.at(-1) as Act // a cast: there is one by now
      expect((await candidates.actOf(next.identity, stoppedAtMs)).atMs - stoppedAtMs).toBeLessThan(5_000)
    }
    expect(candidates.terms()).toHaveLength(3)
    const lease = await kube.kubectl(['get', 'lease', candidates.lease.name, '-o', 'json'])
    expect(JSON.parse(lease)).toMatchObject({ spec: { holderIdentity: candidates.acts.at(-1)?.identity, leaseDurationSeconds: 12 } })
  })

  test.concurrent('leader election waits until a stopping leader has finished its work, however long that takes', async ({ onTestFinished }) => {
    const candidates = new Candidates(kube, onTestFinished)
    const first = candidates.start('a', { drainMs: 15_000 })
    await candidates.actOf('a')
    candidates.start('b')
    await candidates.there('b')
    first.kill('SIGTERM')
    await once(first, 'exit')
    await candidates.actOf('b')
    expect(candidates.terms()).toEqual(['a1', 'b1'])
  })

  test.concurrent.for([
    ['', 0] as const,
    [', also where its clock is an hour late', -3_600_000] as const,
    [', also where its clock is an hour early', 3_600_000] as const,
  ])('leader election changes the leader in under 15 s after kill -9 of the leader%s', async ([, skewMs], { onTestFinished }) => {
    const candidates = new Candidates(kube, onTestFinished)
    const first = candidates.start('a', { skewMs })
    await candidates.actOf('a')
    candidates.start('b')
    await candidates.there('b')
    const killedAtMs = nowMs()
    first.kill('SIGKILL')
    const { atMs } = await candidates.actOf('b')
    expect(atMs - killedAtMs).toBeLessThan(handoverMs)
    expect(candidates.terms()).toEqual(['a1', 'b1'])
  })

  test.concurrent('a leader that was suspended does nothing more when it continues, and becomes a candidate again', async ({ onTestFinished }) => {
    const candidates = new Candidates(kube, onTestFinished)
    const first = candidates.start('a')
    await candidates.actOf('a')
    const second = candidates.start('b')
    await candidates.there('b')
    first.kill('SIGSTOP')
    const taken = await candidates.actOf('b')
    first.kill('SIGCONT')
    // By then an action of `b` would have been seen: it leads again only after the other one has gone.
    await candidates.actOf('b', taken.atMs + 3_000)
    second.kill('SIGTERM')
    const again = await candidates.actOf('a', taken.atMs)
    expect(again.term).toBe(2)
    expect(candidates.terms()).toEqual(['a1', 'b1', 'a2'])
  })

  test.concurrent('a leader that is suspended for less than the duration of its Lease stays the leader', async ({ onTestFinished }) => {
    const candidates = new Candidates(kube, onTestFinished)
    const first = candidates.start('a')
    await candidates.actOf('a')
    candidates.start('b')
    await candidates.there('b')
    first.kill('SIGSTOP')
    const stoppedAtMs = nowMs()
    await until(() => nowMs() - stoppedAtMs > 3_000)
    first.kill('SIGCONT')
    await candidates.actOf('a', stoppedAtMs + 13_000)
    expect(candidates.terms()).toEqual(['a1'])
  })

  test.concurrent(
    'a leader whose network stops delivering stops before another acts, and leads again if it was the only candidate',
    async ({ onTestFinished }) => {
      const candidates = new Candidates(kube, onTestFinished)
      const proxy = await farFrom(kube, onTestFinished)
      candidates.start('a', { port: proxy.port })
      await candidates.actOf('a')
      const second = candidates.start('b')
      await candidates.there('b')
      const stalledAtMs = nowMs()
      proxy.stall()
      const taken = await candidates.actOf('b')
      const last = Math.max(...candidates.acts.filter(({ identity }) => identity === 'a').map(({ atMs }) => atMs))
      expect(last - stalledAtMs).toBeLessThan(9_500)
      expect(taken.atMs - last).toBeGreaterThan(1_000)
      proxy.resume()
      second.kill('SIGKILL')
      await candidates.actOf('a', taken.atMs)
      expect(candidates.terms()).toEqual(['a1', 'b1', 'a2'])
    },
  )

  test.concurrent('a leader continues after a short outage of the API server, and is elected again after a long one', async ({ onTestFinished }) => {
    const candidates = new Candidates(kube, onTestFinished)
    const proxy = await farFrom(kube, onTestFinished)
    candidates.start('a', { port: proxy.port })
    await candidates.actOf('a')
    const cutAtMs = nowMs()
    proxy.cut()
    await candidates.actOf('a', cutAtMs + 4_000)
    proxy.resume()
    await candidates.actOf('a', cutAtMs + 12_000)
    expect(candidates.terms()).toEqual(['a1'])
    proxy.cut()
    const lastAtMs = (): number => candidates.acts.at(-1)?.atMs ?? 0
    await until(() => nowMs() - lastAtMs() > 2_000)
    proxy.resume()
    await candidates.actOf('a', lastAtMs())
    expect(candidates.terms()).toEqual(['a1', 'a2'])
  })
})
