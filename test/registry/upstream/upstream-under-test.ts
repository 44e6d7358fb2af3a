import type { Upstream } from '../../../src/registry/upstream/upstream.ts'

/** A running upstream. */
export interface UpstreamUnderTest {
  readonly upstream: Upstream
  /** The same upstream in the view of another process, without cached state. */
  another(): Promise<Upstream>
  stop(): Promise<void>
}
