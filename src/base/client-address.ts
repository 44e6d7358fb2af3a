import { BlockList, isIP } from 'node:net'

/** Returns the client address of a request: the peer address, or the one that a trusted proxy reports in `X-Forwarded-For`. */
export type ClientAddress = (peer: string | undefined, forwardedFor: string | undefined) => string

/** A list of networks in CIDR notation and single addresses. `has` treats IPv4-mapped IPv6 addresses as IPv4. */
export interface Networks {
  readonly isEmpty: boolean
  has(address: string | undefined): boolean
}

/** Maximum number of proxies in `X-Forwarded-For` that are checked. */
const maxHops = 32

/** True if the text is an IP address with or without a prefix length. */
export function isNetwork(text: string): boolean {
  const [address = '', prefix, ...more] = text.split('/')
  const family = isIP(address)
  if (family === 0 || more.length > 0) return false
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bitsOf(family))
}

/** Builds Networks from addresses and CIDR networks. Each text must pass `isNetwork`. */
export function createNetworks(networks: readonly string[]): Networks {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', prefix] = network.split('/')
    const family = isIP(address)
    list.addSubnet(address, prefix === undefined ? bitsOf(family) : Number(prefix), typeOf(family))
  }
  return {
    isEmpty: networks.length === 0,
    has(address) {
      const plain = plainAddress(address ?? '')
      const family = isIP(plain)
      return networks.length > 0 && family !== 0 && list.check(plain, typeOf(family))
    },
  }
}

/**
 * Builds a ClientAddress. It reads `X-Forwarded-For` from its end and uses an entry only if a trusted proxy appended it, so a client cannot forge its address.
 * It stops at an entry that is not an address.
 */
export function createClientAddress(trusted: Networks): ClientAddress {
  return (peer, forwardedFor) => {
    let client = plainAddress(peer ?? '')
    if (forwardedFor === undefined || !trusted.has(client)) return client
    for (const entry of forwardedFor.split(',').slice(-maxHops).reverse()) {
      const before = entryAddress(entry.trim())
      if (before === undefined) return client
      client = before
      if (!trusted.has(client)) return client
    }
    return client
  }
}

/** Returns the address in an entry of `X-Forwarded-For`, without its port: `203.0.113.7:4711`, `[2001:db8::1]:4711`. */
function entryAddress(entry: string): string | undefined {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+)$/.exec(entry) ?? []
  const address = plainAddress(bracketed ?? plain ?? entry)
  return isIP(address) === 0 ? undefined : address
}

function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '')
}

function bitsOf(family: number): number {
  return family === 4 ? 32 : 128
}

function typeOf(family: number): 'ipv4' | 'ipv6' {
  return family === 4 ? 'ipv4' : 'ipv6'
}
