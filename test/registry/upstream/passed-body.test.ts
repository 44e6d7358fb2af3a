import { PassThrough } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { PassedBody } from '../../../src/registry/upstream/passed-body.ts'
import { UpstreamError } from '../../../src/registry/upstream/upstream.ts'
import { uncaughtErrors } from '../../support/uncaught-errors.ts'

const broken = new UpstreamError('unavailable', 'it broke')

test.each([
  ['its source breaks', (source: PassThrough) => void source.destroy(new Error('reset')), broken],
  ['it is aborted', (_: PassThrough, stop: AbortController) => stop.abort(broken), broken],
])('where %s before anything reads it no process ends, and who reads it then hears why', async (_, breakIt, reason) => {
  const errors = uncaughtErrors()
  const source = new PassThrough()
  const stop = new AbortController()
  const body = new PassedBody(source, { translate: () => broken, signal: stop.signal, bytes: 10 })
  breakIt(source, stop)
  await vi.waitUntil(() => body.closed)
  await expect(body.toArray()).rejects.toBe(reason)
  expect(errors).toEqual([])
})
