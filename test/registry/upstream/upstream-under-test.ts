import type { Upstream } from '../../../src/registry/upstream/upstream.ts'

/** A running upstream. */
export interface UpstreamUnderTest {
  readonly upstream: Upstream
  /** The same upstream as another process has it, which remembers nothing. */
  another(): Promise<Upstream>
  stop(): Promise<void>
}
