import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Registry } from 'prom-client'

/** A readiness condition of the process; resolves false or rejects if it does not hold. */
export interface ReadyCheck {
  readonly name: string
  check(signal: AbortSignal): Promise<boolean>
}

/** The content of the ops port. */
export interface OpsOptions {
  readonly checks: readonly ReadyCheck[]
  readonly registry: Registry
  /** Time after which a check counts as failed, in milliseconds; 2000 by default. */
  readonly checkTimeoutMs?: number
}

/** Runs all checks at once and returns the names of the failed ones, in their order; never rejects. */
export async function failingChecks(checks: readonly ReadyCheck[], timeoutMs: number): Promise<string[]> {
  const signal = AbortSignal.timeout(timeoutMs)
  const results = await Promise.all(checks.map((check) => passes(check, signal)))
  return checks.filter((_, index) => results[index] !== true).map((check) => check.name)
}

async function passes(check: ReadyCheck, signal: AbortSignal): Promise<boolean> {
  const timedOut = new Promise<boolean>((resolve) => {
    signal.addEventListener('abort', () => resolve(false), { once: true })
  })
  const result = Promise.resolve()
    .then(() => check.check(signal))
    .catch(() => false)
  return Promise.race([result, timedOut])
}

/**
 * Creates the ops port's request handler. It serves `/healthz` (200 while the process runs), `/readyz` (200, or 503 with the names of failing checks) and
 * `/metrics` (Prometheus text). GET and HEAD only; it never throws.
 */
export function createOpsHandler(options: OpsOptions): (request: IncomingMessage, response: ServerResponse) => void {
  const pages: Readonly<Record<string, (response: ServerResponse) => Promise<void>>> = {
    '/healthz': async (response) => answer(response, 200, 'ok\n'),
    '/readyz': async (response) => {
      const failing = await failingChecks(options.checks, options.checkTimeoutMs ?? 2000)
      if (failing.length === 0) answer(response, 200, 'ok\n')
      else answer(response, 503, `not ready: ${failing.join(', ')}\n`)
    },
    '/metrics': async (response) => {
      response.setHeader('Content-Type', options.registry.contentType)
      answer(response, 200, await options.registry.metrics())
    },
  }
  return (request, response) => {
    const path = (request.url ?? '/').split('?', 1)[0] ?? '/'
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined
    if (page === undefined) answer(response, 404, 'not found\n')
    else if (request.method !== 'GET' && request.method !== 'HEAD') answer(response, 405, 'method not allowed\n')
    else page(response).catch(() => answer(response, 500, 'internal error\n'))
  }
}

function answer(response: ServerResponse, status: number, text: string): void {
  if (!response.hasHeader('Content-Type')) response.setHeader('Content-Type', 'text/plain; charset=utf-8')
  response.writeHead(status, { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' }).end(text)
}
