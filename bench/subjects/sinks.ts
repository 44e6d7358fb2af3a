import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createAuthority } from '../../test/support/parts/sign-in/authority.ts'

/** What a sink has received: the number of events, and the last request. */
export interface SinkReport {
  readonly events: number
  /** Names and values in turn. */
  readonly headers: readonly string[]
  readonly body: string
}

/** An HTTPS sink in a process of its own. */
export interface SinkServer {
  readonly url: string
  /** Requests to it are never answered. */
  readonly silentUrl: string
  /** PEM of its authority. */
  readonly ca: string
  /** Resolves once so many events came since its start. */
  received(events: number): Promise<SinkReport>
  stop(): Promise<void>
}

/** Starts a sink that answers 200 at once. */
export async function startSink(): Promise<SinkServer> {
  const authority = createAuthority('sinks of the benchmark')
  const { certificate, key } = authority.issue()
  const child = fork(join(import.meta.dirname, 'sink-server.ts'), { execArgv: ['--disable-warning=ExperimentalWarning'] })
  child.send({ cert: certificate, key })
  const [port] = await once(child, 'message')
  const origin = `https://localhost:${String(port)}`
  return {
    url: `${origin}/events`,
    silentUrl: `${origin}/silent`,
    ca: authority.certificate,
    async received(events) {
      child.send(events)
      // What the process sends is a report.
      const [report] = (await once(child, 'message')) as [SinkReport]
      return report
    },
    async stop() {
      const exited = once(child, 'exit')
      child.disconnect()
      await exited
    },
  }
}
