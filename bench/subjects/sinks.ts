import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createAuthority } from '../../test/support/parts/sign-in/authority.ts'

/** The number of events that a sink has received, and the last request. */
export interface SinkReport {
  readonly events: number
  /** Header names and values, alternating. */
  readonly headers: readonly string[]
  readonly body: string
}

/** An HTTPS sink in a separate process. */
export interface SinkServer {
  readonly url: string
  /** URL that never answers a request. */
  readonly silentUrl: string
  /** CA certificate of the sink, PEM. */
  readonly ca: string
  /** Resolves once the sink has received this many events since its start. */
  received(events: number): Promise<SinkReport>
  stop(): Promise<void>
}

/** Starts a sink that answers every event with 200 at once. */
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
      // a cast: the process sends reports
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
