import { Agent, request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'

const timeoutMs = 30_000
const pauseMs = 50

/** A request over HTTP/1.1. */
export interface Ask {
  readonly url: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Its connections. If absent, the request gets a new one. */
  readonly agent?: Agent
}

/** An answer. */
export interface Answer {
  readonly status: number
  readonly type: string
  readonly text: string
}

/** Sends a request once and reads the whole answer. Throws without an answer within 30 seconds. */
export function ask({ url, agent, body, ...options }: Ask): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { ...options, agent: agent ?? false, signal: AbortSignal.timeout(timeoutMs) }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => (text += chunk))
      response.on('error', reject)
      response.on('end', () => resolve({ status: response.statusCode ?? 0, type: response.headers['content-type'] ?? '', text }))
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

/** The outcome of a load: the number of successful requests of each kind, and all failures. */
export interface LoadResult {
  readonly answered: Readonly<Record<string, number>>
  readonly failed: readonly string[]
}

/**
 * Sends requests of several kinds, each kind sequentially with pauses, without retries. Alternates between reused and new connections. `stop` ends it and
 * returns the outcome.
 */
export function startLoad(kinds: Readonly<Record<string, (count: number) => Ask>>): { stop(): Promise<LoadResult> } {
  const agent = new Agent({ keepAlive: true })
  const stopping = new AbortController()
  const answered: Record<string, number> = {}
  const failed: string[] = []
  const repeat = async (name: string, make: (count: number) => Ask): Promise<void> => {
    for (let count = 0; !stopping.signal.aborted; count += 1) {
      const kept = count % 2 === 0
      const fail = (what: unknown): number => failed.push(`${new Date().toISOString()} ${name}, ${kept ? 'kept' : 'new'} connection: ${String(what)}`)
      try {
        const { status, text } = await ask({ ...make(count), ...(kept && { agent }) })
        if (status >= 200 && status < 300) answered[name] = (answered[name] ?? 0) + 1
        else fail(`${status} ${text}`)
      } catch (error) {
        fail(error)
      }
      await delay(pauseMs)
    }
  }
  const running = Object.entries(kinds).map(([name, make]) => repeat(name, make))
  return {
    stop: async () => {
      stopping.abort()
      await Promise.all(running)
      agent.destroy()
      return { answered, failed }
    },
  }
}
