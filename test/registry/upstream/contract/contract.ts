import { afterAll, beforeAll, describe } from 'vitest'
import { blobContract } from './contract-blobs.ts'
import { manifestContract } from './contract-manifests.ts'
import { uploadContract } from './contract-uploads.ts'
import type { UpstreamUnderTest } from '../upstream-under-test.ts'

/** The contract of all adapters of the upstream port. */
export function upstreamContract(start: () => Promise<UpstreamUnderTest>): void {
  let running: UpstreamUnderTest
  const upstream = (): UpstreamUnderTest => running
  beforeAll(async () => {
    running = await start()
  })
  afterAll(() => running?.stop())

  describe('stored manifests', () => manifestContract(upstream))
  describe('stored blobs', () => blobContract(upstream))
  describe('uploads', () => uploadContract(upstream))
}
