import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The maximum number of clusters. Each has 4096 addresses of 198.18.0.0/15, which is reserved for benchmarks (RFC 2544) and not used elsewhere. */
export const blocks = 32
const blockAddresses = 4096
const firstAddress = 198 * 2 ** 24 + 18 * 2 ** 16

/** The resources of a cluster on the machine. All names follow from its number, so that those of a killed cluster can be removed. */
export interface Place {
  /** The name of the network namespace and the cgroups, and the prefix of the state directory. */
  readonly name: string
  /** The folder of all its files. */
  readonly directory: string
  /** The ends of the pair of interfaces between the machine and the cluster. */
  readonly hostInterface: string
  readonly nodeInterface: string
  /** The address of the machine for pods, and that of the node. */
  readonly hostAddress: string
  readonly nodeAddress: string
  readonly serviceRange: string
  readonly podRange: string
}

/** Returns the resources of the cluster with that number, from 0 to `blocks` - 1. */
export function placeOf(block: number): Place {
  const address = (offset: number): string => {
    const value = firstAddress + block * blockAddresses + offset
    return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.')
  }
  const name = `taproot-${block}`
  return {
    name,
    directory: join(tmpdir(), `taproot-cluster-${block}`),
    hostInterface: `${name}-host`,
    nodeInterface: `${name}-node`,
    nodeAddress: address(1),
    hostAddress: address(2),
    serviceRange: `${address(1024)}/22`,
    podRange: `${address(2048)}/21`,
  }
}

/** Returns the path at which `ip netns add` mounts the network namespace. */
export function namespaceFile({ name }: Place): string {
  return join('/run/netns', name)
}
