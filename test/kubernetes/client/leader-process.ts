// A candidate in its own process. It prints one JSON line when it is ready, and one for each action as leader.
import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { createKubeClient } from '../../../src/kubernetes/client/kube-client.ts'
import type { KubeEndpoint } from '../../../src/kubernetes/client/kube-endpoint.ts'
import { lead } from '../../../src/kubernetes/runtime/leader.ts'
import { silentLog } from '../../store/store-harness.ts'

/** The options of the process, as JSON, as its only argument. */
export interface CandidateOptions {
  readonly endpoint: KubeEndpoint
  readonly lease: { readonly namespace: string; readonly name: string }
  readonly identity: string
  /** Error of its wall clock in milliseconds. */
  readonly skewMs: number
  /** Duration of its work after the request to end, in milliseconds. */
  readonly drainMs: number
}

/** One printed line. */
export interface Act {
  readonly identity: string
  /** The number of its leadership; 0 when it reports that it is ready. */
  readonly term: number
  /** Time of the machine's monotonic clock in milliseconds. */
  readonly atMs: number
}

const { endpoint, lease, identity, skewMs, drainMs } = JSON.parse(process.argv[2] ?? '') as CandidateOptions // a cast of what the test wrote
const actEveryMs = 20
const random = { bytes: (count: number): Uint8Array => randomBytes(count) }
const api = createKubeClient({ endpoint, userAgent: 'taproot-test', random })
const stopping = new AbortController()
process.once('SIGTERM', () => stopping.abort())
let term = 0

function act(): void {
  const said: Act = { identity, term, atMs: Number(process.hrtime.bigint() / 1000n) / 1000 }
  process.stdout.write(`${JSON.stringify(said)}\n`)
}

act()
await lead(
  { api, lease, identity, clock: { now: () => Date.now() + skewMs }, log: silentLog, random },
  async (leadership) => {
    term++
    while (leadership.held()) {
      act()
      await delay(actEveryMs)
    }
    for (let drained = 0; drained < drainMs; drained += actEveryMs) {
      act()
      await delay(actEveryMs)
    }
  },
  stopping.signal,
)
await api.close()
