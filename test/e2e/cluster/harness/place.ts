import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The highest number of clusters. Each has 4096 addresses of 198.18.0.0/15, set aside for benchmarks (RFC 2544), so they are in use nowhere else. */
export const blocks = 32
const blockAddresses = 4096
const firstAddress = 198 * 2 ** 24 + 18 * 2 ** 16

/** What a cluster has of the machine. All names follow from the number, so that one which was left behind can be removed. */
export interface Place {
  /** Of the network namespace, the cgroups and, in front of it, the state directory. */
  readonly name: string
  /** Everything that it writes is below. */
  readonly directory: string
  /** The ends of the pair of interfaces between the machine and the cluster. */
  readonly hostInterface: string
  readonly nodeInterface: string
  /** Their addresses: the one of the machine as pods see it, and the one of the node. */
  readonly hostAddress: string
  readonly nodeAddress: string
  readonly serviceRange: string
  readonly podRange: string
}

/** The place of that number, from 0 to `blocks` - 1. */
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

/** Where `ip netns add` mounts the network namespace. */
export function namespaceFile({ name }: Place): string {
  return join('/run/netns', name)
}
