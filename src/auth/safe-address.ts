import { BlockList, isIP } from 'node:net'

/** Address ranges refused in URLs from tenants: everything except public unicast addresses. */
const refusedRanges: readonly (readonly [address: string, prefix: number, family: 'ipv4' | 'ipv6'])[] = [
  ['0.0.0.0', 8, 'ipv4'], // this network, unspecified
  ['10.0.0.0', 8, 'ipv4'], // private
  ['100.64.0.0', 10, 'ipv4'], // carrier-grade NAT
  ['127.0.0.0', 8, 'ipv4'], // loopback
  ['169.254.0.0', 16, 'ipv4'], // link-local, cloud metadata
  ['172.16.0.0', 12, 'ipv4'], // private
  ['192.0.0.0', 24, 'ipv4'], // protocol assignments
  ['192.0.2.0', 24, 'ipv4'], // documentation
  ['192.88.99.0', 24, 'ipv4'], // 6to4 relays
  ['192.168.0.0', 16, 'ipv4'], // private
  ['198.18.0.0', 15, 'ipv4'], // benchmarks
  ['198.51.100.0', 24, 'ipv4'], // documentation
  ['203.0.113.0', 24, 'ipv4'], // documentation
  ['224.0.0.0', 4, 'ipv4'], // multicast
  ['240.0.0.0', 4, 'ipv4'], // reserved, broadcast
  ['168.63.129.16', 32, 'ipv4'], // Azure metadata, at a public address
  ['100::', 8, 'ipv6'], // discard, reserved
  ['200::', 7, 'ipv6'], // reserved
  ['400::', 6, 'ipv6'], // reserved
  ['800::', 5, 'ipv6'], // reserved
  ['1000::', 4, 'ipv6'], // reserved
  ['2001::', 23, 'ipv6'], // protocol assignments, Teredo
  ['2001:db8::', 32, 'ipv6'], // documentation
  ['2002::', 16, 'ipv6'], // 6to4
  ['3fff::', 20, 'ipv6'], // documentation
  ['4000::', 2, 'ipv6'], // reserved, segment routing
  ['8000::', 2, 'ipv6'], // reserved
  ['c000::', 3, 'ipv6'], // reserved
  ['e000::', 4, 'ipv6'], // reserved
  ['f000::', 5, 'ipv6'], // reserved
  ['f800::', 6, 'ipv6'], // reserved
  ['fc00::', 7, 'ipv6'], // unique local
  ['fe80::', 10, 'ipv6'], // link-local
  ['fec0::', 10, 'ipv6'], // site-local
  ['ff00::', 8, 'ipv6'], // multicast
]

const refused = new BlockList()
for (const [address, prefix, family] of refusedRanges) refused.addSubnet(address, prefix, family)
// All of ::/8 except ::ffff:0:0/96 (IPv4 in IPv6, checked as IPv4): unspecified, loopback, IPv4-compatible, IPv4-translated (::ffff:0:0:0/96), NAT64
// (64:ff9b::).
refused.addRange('::', '::fffe:ffff:ffff', 'ipv6')
refused.addRange('::1:0:0:0', 'ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'ipv6')

/** Names of metadata services, which give out a machine's credentials. Refused at any address. */
const metadataHosts =
  /^(?:metadata|instance-data|(?:.+\.)?(?:metadata\.google\.internal|metadata\.goog|instance-data\.ec2\.internal|metadata\.tencentyun\.com|metadata\.platformequinix\.com|metadata\.packet\.net))\.?$/i

/** True if `host` is the name of a cloud's metadata service. */
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

/** Ends of host names that only a private network has. */
const privateSuffixes = ['localhost', 'internal', 'local'] as const

/**
 * Returns why the host of a URL is refused, judged by its text alone; undefined if it is not. Connecting must check the addresses again. `allowed` holds private
 * networks that may be reached; with any of them, names are judged only when connecting.
 */
export function hostError(text: string, allowed?: { has(address: string): boolean; readonly isEmpty: boolean }): string | undefined {
  if (!URL.canParse(text)) return 'is not a URL'
  const host = new URL(text).hostname.replace(/\.$/, '')
  const address = host.replace(/^\[|\]$/g, '')
  if (isIP(address) !== 0) return isPublicAddress(address) || allowed?.has(address) === true ? undefined : 'must not resolve to a private address'
  if (isMetadataHost(host)) return 'must not be in a private network'
  if (allowed?.isEmpty === false) return undefined
  if (privateSuffixes.some((suffix) => host === suffix || host.endsWith(`.${suffix}`))) return 'must not be in a private network'
  return host.includes('.') ? undefined : 'must name a public host'
}
