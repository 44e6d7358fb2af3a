import { setTimeout as delay } from 'node:timers/promises'
import type { TestServer } from '../../../support/test-server.ts'

async function ops({ config }: TestServer, path: string): Promise<{ status: number; text: string }> {
  const response = await fetch(`http://127.0.0.1:${config.ops.port}${path}`)
  return { status: response.status, text: await response.text() }
}

/** Returns the answer of `/readyz`. */
export function readiness(server: TestServer): Promise<{ status: number; text: string }> {
  return ops(server, '/readyz')
}

/** Returns the value of a metric without labels from `/metrics`; undefined if it does not exist. */
export async function metricOf(server: TestServer, name: string): Promise<number | undefined> {
  const { text } = await ops(server, '/metrics')
  const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]
  return value === undefined ? undefined : Number(value)
}

/** Waits until `condition` holds; throws after `withinMs`. */
export async function until(condition: () => boolean | Promise<boolean>, withinMs = 20_000): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`waited longer than ${withinMs} ms`)
    await delay(20)
  }
}
