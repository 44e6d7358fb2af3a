import { BlockList, isIP } from 'node:net'

/** Address ranges that URLs from tenants must not lead to: everything except public unicast addresses. */
const refusedRanges: readonly (readonly [address: string, prefix: number, family: 'ipv4' | 'ipv6'])[] = [
  ['0.0.0.0', 8, 'ipv4'], // This network, unspecified.
  ['10.0.0.0', 8, 'ipv4'], // Private.
  ['100.64.0.0', 10, 'ipv4'], // Carrier-grade NAT.
  ['127.0.0.0', 8, 'ipv4'], // Loopback.
  ['169.254.0.0', 16, 'ipv4'], // Link-local, cloud metadata.
  ['172.16.0.0', 12, 'ipv4'], // Private.
  ['192.0.0.0', 24, 'ipv4'], // Protocol assignments.
  ['192.0.2.0', 24, 'ipv4'], // Documentation.
  ['192.88.99.0', 24, 'ipv4'], // 6to4 relays.
  ['192.168.0.0', 16, 'ipv4'], // Private.
  ['198.18.0.0', 15, 'ipv4'], // Benchmarks.
  ['198.51.100.0', 24, 'ipv4'], // Documentation.
  ['203.0.113.0', 24, 'ipv4'], // Documentation.
  ['224.0.0.0', 4, 'ipv4'], // Multicast.
  ['240.0.0.0', 4, 'ipv4'], // Reserved, broadcast.
  ['168.63.129.16', 32, 'ipv4'], // Azure metadata, at a public address.
  ['100::', 8, 'ipv6'], // Discard, reserved.
  ['200::', 7, 'ipv6'], // Reserved.
  ['400::', 6, 'ipv6'], // Reserved.
  ['800::', 5, 'ipv6'], // Reserved.
  ['1000::', 4, 'ipv6'], // Reserved.
  ['2001::', 23, 'ipv6'], // Protocol assignments, Teredo.
  ['2001:db8::', 32, 'ipv6'], // Documentation.
  ['2002::', 16, 'ipv6'], // 6to4.
  ['3fff::', 20, 'ipv6'], // Documentation.
  ['4000::', 2, 'ipv6'], // Reserved, segment routing.
  ['8000::', 2, 'ipv6'], // Reserved.
  ['c000::', 3, 'ipv6'], // Reserved.
  ['e000::', 4, 'ipv6'], // Reserved.
  ['f000::', 5, 'ipv6'], // Reserved.
  ['f800::', 6, 'ipv6'], // Reserved.
  ['fc00::', 7, 'ipv6'], // Unique local.
  ['fe80::', 10, 'ipv6'], // Link-local.
  ['fec0::', 10, 'ipv6'], // Site-local.
  ['ff00::', 8, 'ipv6'], // Multicast.
]

const refused = new BlockList()
for (const [address, prefix, family] of refusedRanges) refused.addSubnet(address, prefix, family)
// All of ::/8 except IPv4-mapped addresses (::ffff:0:0/96), which are checked as IPv4. It contains the unspecified, loopback, IPv4-compatible, IPv4-translated
// (::ffff:0:0:0/96) and NAT64 (64:ff9b::) addresses.
refused.addRange('::', '::fffe:ffff:ffff', 'ipv6')
refused.addRange('::1:0:0:0', 'ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'ipv6')

/** Host names of cloud metadata services, which return credentials of the machine. They are refused whatever their address. */
const metadataHosts =
  /^(?:metadata|instance-data|(?:.+\.)?(?:metadata\.google\.internal|metadata\.goog|instance-data\.ec2\.internal|metadata\.tencentyun\.com|metadata\.platformequinix\.com|metadata\.packet\.net))\.?$/i

/** True if `host` is the name of a cloud metadata service. */
export function isMetadataHost(host: string): boolean {
  return metadataHosts.test(host)
}

/** True if `address` is a public unicast IP address. IPv4-mapped IPv6 addresses are checked as IPv4. */
export function isPublicAddress(address: string): boolean {
  const bare = address.replace(/%.*$/, '')
  const family = isIP(bare)
  if (family === 0) return false
  return !refused.check(bare, family === 4 ? 'ipv4' : 'ipv6')
}

/** Suffixes of host names in private networks. */
const privateSuffixes = ['localhost', 'internal', 'local'] as const

/**
 * Returns why the host of a URL is refused, judged by its text alone; undefined if it is allowed. The addresses must be checked again when connecting.
 * `allowed` contains private networks that may be reached. If it is not empty, names are only checked when connecting.
 */
export function hostError(text: string, allowed?: { has(address: string): boolean; readonly isEmpty: boolean }): string | undefined {
  if (!URL.canParse(text)) return 'is not a URL'
  const host = new URL(text).hostname.replace(/\.$/, '')
  const address = host.replace(/^\[|\]$/g, '')
  if (isIP(address) !== 0) return isPublicAddress(address) || allowed?.has(address) === true ? undefined : 'must not resolve to a private address'
  if (host.length > 253 || !host.split('.').every((label) => label.length >= 1 && label.length <= 63))
    return 'must be a host name with labels of 1 to 63 characters'
  if (isMetadataHost(host)) return 'must not be in a private network'
  if (allowed?.isEmpty === false) return undefined
  if (privateSuffixes.some((suffix) => host === suffix || host.endsWith(`.${suffix}`))) return 'must not be in a private network'
  return host.includes('.') ? undefined : 'must name a public host'
}
