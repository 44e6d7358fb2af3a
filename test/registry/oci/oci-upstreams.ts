import { describe } from 'vitest'
import { systemClock } from '../../../src/server/runtime.ts'
import { createHttpUpstream } from '../../../src/registry/upstream/http/http-upstream.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { startDiskUpstream, type TestUpstream } from './test-host.ts'

/** A separate distribution registry, with the index validation of docs/registry.md. */
export async function startHttpUpstream(): Promise<TestUpstream> {
  const registry = await startRegistry({ configuration: { validation: { manifests: { indexes: { platforms: 'none' } } } } })
  const upstream = createHttpUpstream({ url: registry.url, clock: systemClock })
  return {
    upstream,
    stop: async () => {
      await upstream.close()
      await registry.stop()
    },
  }
}

/** One `describe` for each upstream: `<title> over disk`, `<title> over a distribution registry`; the latter needs one, as `describeWithPart` says. */
export function describeOnUpstreams(title: string, body: (upstream: () => Promise<TestUpstream>) => void): void {
  describe(`${title} over disk`, () => body(startDiskUpstream))
  describeWithPart('registry', `${title} over a distribution registry`, () => body(startHttpUpstream))
}
