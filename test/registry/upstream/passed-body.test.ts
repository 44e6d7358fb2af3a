import { PassThrough } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { PassedBody } from '../../../src/registry/upstream/passed-body.ts'
import { UpstreamError } from '../../../src/registry/upstream/upstream.ts'
import { uncaughtErrors } from '../../support/uncaught-errors.ts'

const broken = new UpstreamError('unavailable', 'it broke')

test.each([
  ['the source of a body breaks', (source: PassThrough) => void source.destroy(new Error('reset')), broken],
  ['a body is aborted', (_: PassThrough, stop: AbortController) => stop.abort(broken), broken],
])('if %s before it is read, the process continues, and a later reader gets the reason', async (_, breakIt, reason) => {
  const errors = uncaughtErrors()
  const source = new PassThrough()
  const stop = new AbortController()
  const body = new PassedBody(source, { translate: () => broken, signal: stop.signal, bytes: 10 })
  breakIt(source, stop)
  await vi.waitUntil(() => body.closed)
  await expect(body.toArray()).rejects.toBe(reason)
  expect(errors).toEqual([])
})
