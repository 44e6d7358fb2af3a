import { describe } from 'vitest'
import { startDiskUpstream, type TestUpstream } from './test-host.ts'

/** One `describe` for each upstream: `<title> over disk`. */
export function describeOnUpstreams(title: string, body: (upstream: () => Promise<TestUpstream>) => void): void {
  describe(`${title} over disk`, () => body(startDiskUpstream))
}
