import { requirePart } from '../../../support/parts/require-part.ts'
import { run } from './command.ts'
import { namespaceFile, type Place } from './place.ts'

/** Returns the command prefix for the cluster's network namespace. `ip netns exec` would mount another /sys, without the cgroups that kubelet needs. */
export function enterNetwork(place: Place): string[] {
  return [requirePart('nsenter'), `--net=${namespaceFile(place)}`, '--']
}

/**
 * Creates the cluster's network namespace and a pair of interfaces, by which the machine reaches node, pods and Services, and pods reach the machine. The
 * default route of the namespace ends at that pair. No host answers there for other addresses, so nothing leaves the machine.
 */
export async function makeNetwork(place: Place): Promise<void> {
  const { name, hostInterface, nodeInterface } = place
  const ip = requirePart('ip')
  const onHost = (...args: string[]): Promise<string> => run(ip, args)
  const inside = (...args: string[]): Promise<string> => run(ip, ['-netns', name, ...args])
  await onHost('netns', 'add', name)
  await onHost('link', 'add', hostInterface, 'type', 'veth', 'peer', 'name', nodeInterface, 'netns', name)
  await inside('address', 'add', `${place.nodeAddress}/24`, 'dev', nodeInterface)
  await inside('link', 'set', 'lo', 'up')
  await inside('link', 'set', nodeInterface, 'up')
  await inside('route', 'add', 'default', 'dev', nodeInterface)
  await onHost('address', 'add', `${place.hostAddress}/24`, 'dev', hostInterface)
  await onHost('link', 'set', hostInterface, 'up')
  for (const range of [place.serviceRange, place.podRange]) await onHost('route', 'add', range, 'via', place.nodeAddress)
  const [nsenter = '', ...entry] = enterNetwork(place)
  await run(nsenter, [...entry, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward'])
}
