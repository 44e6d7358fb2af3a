import { afterAll, beforeAll, describe } from 'vitest'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { blobContract } from './contract-blobs.ts'
import { manifestContract } from './contract-manifests.ts'
import { uploadContract } from './contract-uploads.ts'

/** A running upstream. */
export interface UpstreamUnderTest {
  readonly upstream: Upstream
  /** The same upstream as another process has it, which remembers nothing. */
  another(): Promise<Upstream>
  stop(): Promise<void>
}

/** What every adapter of the upstream port keeps to. */
export function upstreamContract(start: () => Promise<UpstreamUnderTest>): void {
  let running: UpstreamUnderTest
  const upstream = (): UpstreamUnderTest => running
  beforeAll(async () => {
    running = await start()
  })
  afterAll(() => running?.stop())

  describe('manifests', () => manifestContract(upstream))
  describe('blobs', () => blobContract(upstream))
  describe('uploads', () => uploadContract(upstream))
}
