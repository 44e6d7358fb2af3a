import { startRegistry, type DistributionRegistry } from '../../test/support/parts/registry.ts'

/** A running CNCF distribution registry. */
export type Distribution = Pick<DistributionRegistry, 'url' | 'port' | 'pid' | 'stop'>

/** Starts a registry with the settings of its example configuration: files on disk, descriptors of blobs in memory. */
export function startDistribution(): Promise<Distribution> {
  return startRegistry({ configuration: { storage: { filesystem: {}, delete: { enabled: true }, cache: { blobdescriptor: 'inmemory' } } } })
}
