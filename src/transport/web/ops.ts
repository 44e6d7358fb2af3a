import { randomUUID } from 'node:crypto'
import type { Server } from 'node:http'
import type { Registry } from 'prom-client'
import type { Log } from '../../base/log.ts'
import { createHttpApp } from '../http/http-api.ts'
import { createLimitedServer, type HttpListenerOptions } from '../http/http-listener.ts'
import { textAnswer } from './web-answers.ts'
import { createWebRoutes } from './web-routes.ts'

/** A condition for the process to be ready. It resolves true if the condition holds, and resolves false or rejects if not. */
export interface ReadyCheck {
  readonly name: string
  check(signal: AbortSignal): Promise<boolean>
}

/** The dependencies and options of the ops port, which serves health and metrics. */
export interface OpsOptions extends HttpListenerOptions {
  readonly checks: readonly ReadyCheck[]
  readonly registry: Registry
  readonly log: Log
  /** Maximum time for a check in milliseconds, after which it counts as failed; 2000 by default. */
  readonly checkTimeoutMs?: number
}

/** Runs all checks at the same time. Returns the names of those that failed, in their order. Never rejects. */
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
 * Creates the HTTP server of the ops port, which does not listen yet. It serves `/healthz` (200 while the process runs), `/readyz` (200, or 503 with the names
 * of failing checks) and `/metrics` (Prometheus text).
 */
export function createOpsServer({ checks, registry, log, checkTimeoutMs = 2000, ...limits }: OpsOptions): Server {
  const routes = createWebRoutes([
    { method: 'GET', path: '/healthz', handle: () => textAnswer(200, 'ok\n') },
    {
      method: 'GET',
      path: '/readyz',
      async handle() {
        const failing = await failingChecks(checks, checkTimeoutMs)
        return failing.length === 0 ? textAnswer(200, 'ok\n') : textAnswer(503, `not ready: ${failing.join(', ')}\n`)
      },
    },
    {
      method: 'GET',
      path: '/metrics',
      async handle() {
        return textAnswer(200, await registry.metrics(), { 'Content-Type': registry.contentType })
      },
    },
  ])
  return createLimitedServer(limits).on('request', createHttpApp({ log, newRequestId: randomUUID, routes }))
}
