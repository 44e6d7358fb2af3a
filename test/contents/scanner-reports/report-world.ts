import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import type { Digest } from '../../../src/base/digest.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../../registry/oci/test-host.ts'

/** A registry host, and a folder for the processes that read reports. */
export interface ReportWorld {
  readonly host: TestHost
  readonly folder: string
  stop(): Promise<void>
}

export async function startReportWorld(): Promise<ReportWorld> {
  const host = await startTestHost({ upstream: startDiskUpstream })
  const folder = await mkdtemp(join(tmpdir(), 'taproot-reports-'))
  return { host, folder, stop: () => host.stop().finally(() => rm(folder, { recursive: true, force: true })) }
}

/** Returns the upstream with other streams for some blobs. */
export function withBlobs(upstream: Upstream, bodyOf: (digest: Digest) => Readable | undefined): Upstream {
  return new Proxy(upstream, {
    get(target, key) {
      if (key !== 'readBlob') return (target[key as keyof Upstream] as () => unknown).bind(target) // the port has methods only
      const readBlob: Upstream['readBlob'] = async (repo, source, signal) => {
        const found = await target.readBlob(repo, source, signal)
        const body = bodyOf(source.digest)
        if (found === undefined || body === undefined) return found
        found.body.destroy()
        return { size: found.size, body }
      }
      return readBlob
    },
  })
}
